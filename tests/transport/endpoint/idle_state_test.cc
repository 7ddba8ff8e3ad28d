// SPDX-License-Identifier: Apache-2.0
//
// What a peer costs that is connected and has nothing to say.
//
// How it is counted: operator new of this program notes every allocation that is made on the polling
// thread outside the device's calls, as what glibc takes for it (size and eight bytes, in sixteens,
// 32 at least). The difference that several hundred peers make, divided by their number, is
// the state of one: peer, queue target, connection, indices, name. The device's own (cm_id, address
// handles) are made inside its calls, and not counted. Nor are buffers: those are configured, not
// kept per peer.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"
#include "transport/verbs/verbs_api.h"

namespace {

thread_local bool counts = false;
// Signed: what is freed may have been taken before.
thread_local int64_t live_bytes = 0;

struct alignas(16) Head {
  int64_t counted_bytes;
};

int64_t ChunkBytes(size_t size) {
  return std::max<int64_t>(32, (static_cast<int64_t>(size) + 8 + 15) / 16 * 16);
}

}  // namespace

void* operator new(size_t size) {
  auto* head = static_cast<Head*>(std::malloc(sizeof(Head) + size));
  if (head == nullptr) throw std::bad_alloc();
  head->counted_bytes = counts ? ChunkBytes(size) : 0;
  live_bytes += head->counted_bytes;
  return head + 1;
}

// Sanitizers have one of their own, whose memory is not for the operator delete below.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  try {
    return operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  Head* head = static_cast<Head*>(memory) - 1;
  live_bytes -= head->counted_bytes;
  std::free(head);
}

void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace sluice::endpoint {
namespace {

// Bytes per idle peer.
constexpr int64_t kBound = 256;

class Uncounted {
 public:
  Uncounted() : before_(std::exchange(counts, false)) {}
  ~Uncounted() { counts = before_; }

 private:
  const bool before_;
};

// A table that does what softdc's does, uncounted.
template <auto Member, typename F>
struct Wrapped;
template <auto Member, typename R, typename... A>
struct Wrapped<Member, R (*)(A...)> {
  static R Call(A... arguments) {
    const Uncounted device;
    return (softdc::Verbs().*Member)(arguments...);
  }
};

verbs::VerbsApi UncountedVerbs() {
  verbs::VerbsApi api = softdc::Verbs();
#define SLUICE_WRAP(name) \
  api.name = Wrapped<&verbs::VerbsApi::name, decltype(verbs::VerbsApi::name)>::Call;
#define SLUICE_IBV(name) SLUICE_WRAP(name)
#define SLUICE_DV(name) SLUICE_WRAP(dv_##name)
#define SLUICE_CM(name) SLUICE_WRAP(cm_##name)
#include "transport/verbs/verbs_functions.inc"
#undef SLUICE_IBV
#undef SLUICE_DV
#undef SLUICE_CM
#undef SLUICE_WRAP
  return api;
}

struct Counter : Handler {
  void OnPeerUp(PeerId, const PeerInfo&) override { ++ups; }
  void OnPeerDown(PeerId, const absl::Status& why) override { ADD_FAILURE() << why; }
  bool OnMessage(PeerId, std::span<const std::byte>) override {
    ++messages;
    return true;
  }
  void OnWritable(PeerId) override {}

  int ups = 0;
  int messages = 0;
};

// All its commands run on the polling thread, to be counted as well.
struct InlineNode {
  InlineNode(const Options& options, const verbs::VerbsApi& api) {
    device = std::move(*device::Device::Open("softdc0", {&api}));
    endpoint = std::move(*CreateEndpoint(options, *device, clock, random, commands, &handler));
  }

  base::RealClock clock;
  base::SystemRandom random;
  poller::InlineCommands commands;
  Counter handler;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<Endpoint> endpoint;
};

TEST(IdleState, Of512PeersIsBounded) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's allocator takes what libraries allocate, uncounted";
#endif
  constexpr int kPorts = 64;
  constexpr int kPeersPerPort =
      8;  // more would have to wait: an address is asked ten times a second
  constexpr int kPeers = kPorts * kPeersPerPort;
  constexpr int64_t kPatienceNs = 600'000'000'000;
  Options options;
  options.max_peers = 2 * kPeers;
  options.srq_size = 8 * kPeers;
  options.credits_per_peer = 4;
  options.max_message_bytes = 64;
  options.accept_timeout_ns = kPatienceNs;
  const verbs::VerbsApi api = UncountedVerbs();
  InlineNode server(options, api), client(options, api);
  std::vector<uint16_t> ports;
  for (int i = 0; i < kPorts; ++i) ports.push_back(*server.endpoint->Listen("127.0.0.1", 0));
  const auto poll = [&] {
    counts = true;
    server.endpoint->Poll();
    client.endpoint->Poll();
    counts = false;
  };
  std::vector<PeerId> peers;
  peers.reserve(kPeers);
  const auto connect = [&](int count_per_port) {
    for (const uint16_t port : ports) {
      for (int i = 0; i < count_per_port; ++i) {
        counts = true;
        const auto peer =
            client.endpoint->Connect("127.0.0.1", port, client.clock.NowNs() + kPatienceNs);
        counts = false;
        ASSERT_TRUE(peer.ok()) << peer.status();
        peers.push_back(*peer);
      }
      const int wanted = static_cast<int>(peers.size());
      while (client.handler.ups < wanted || server.handler.ups < wanted) poll();
    }
    // Each has sent something, and nothing is under way any more.
    for (const PeerId peer : peers) {
      const int wanted = server.handler.messages + 1;
      auto buffer = client.endpoint->Reserve(peer, 1);
      while (!buffer.ok()) {
        poll();
        buffer = client.endpoint->Reserve(peer, 1);
      }
      client.endpoint->Commit(peer, *buffer, 1, false);
      client.endpoint->Release(buffer->slot);
      while (server.handler.messages < wanted) poll();
    }
  };
  // Allocates what an endpoint has once, such as the levels of its timer wheel.
  connect(1);
  const int64_t before = live_bytes;
  connect(kPeersPerPort - 1);
  const double bytes = static_cast<double>(live_bytes - before) / (2.0 * (kPeers - kPorts));
  RecordProperty("bytes_per_idle_peer", std::to_string(bytes));
  std::printf("bytes per idle peer: %.1f\n", bytes);
  EXPECT_LE(bytes, kBound);
  EXPECT_GE(bytes, 100);  // it is being counted
}

}  // namespace
}  // namespace sluice::endpoint
