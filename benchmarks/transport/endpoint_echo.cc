// SPDX-License-Identifier: Apache-2.0
//
// Echo of small messages between two pinned processes over endpoints, against a bare cache-line ping-pong of the
// same two processes.
//
// Workload      One client, one server, SEND over a DC stream each way, CQ path, no RPC, no serialisation.
//               Latency: one message under way. Rate: `window` messages under way.
// Meaning       Round trip in nanoseconds, median over the samples; raw and echo blocks alternate, so that both
//               see the same machine. Million messages per second counts requests.
// Usage         endpoint_echo [--cpus=A,B] [--size=64] [--window=32] [--seconds=2]
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/clock.h"
#include "transport/base/histogram.h"
#include "transport/base/random.h"
#include "transport/device/tables.h"
#include "transport/endpoint/create.h"

namespace sluice {
namespace {

struct Arguments {
  int cpus[2] = {0, 1};
  uint32_t size_bytes = 64;
  uint32_t window = 32;
  double seconds = 2;
};

// Shared by the two processes: the ping-pong's lines and the phase that both are in.
struct Shared {
  alignas(128) std::atomic<uint64_t> ping{0};
  alignas(128) std::atomic<uint64_t> pong{0};
  alignas(128) std::atomic<int> phase{0};  // 0 nothing, 1 raw, 2 echo, 3 end
  alignas(128) std::atomic<int> port{0};
};

void Pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) std::perror("sched_setaffinity");
}

struct Echo : endpoint::Handler {
  endpoint::Endpoint* endpoint = nullptr;
  endpoint::PeerId peer;
  bool server = false;
  bool up = false;
  bool down = false;
  uint64_t received = 0;

  void OnPeerUp(endpoint::PeerId id, const endpoint::PeerInfo&) override {
    peer = id;
    up = true;
  }
  void OnPeerDown(endpoint::PeerId, const absl::Status& why) override {
    if (!server) std::fprintf(stderr, "%s\n", std::string(why.message()).c_str());
    down = true;
  }
  void OnWritable(endpoint::PeerId) override {}
  bool OnMessage(endpoint::PeerId id, std::span<const std::byte> bytes) override {
    ++received;
    if (!server) return true;
    auto buffer = endpoint->Reserve(id, static_cast<uint32_t>(bytes.size()));
    if (!buffer.ok()) std::abort();  // the client keeps within the window
    std::memcpy(buffer->data, bytes.data(), bytes.size());
    endpoint->Commit(id, *buffer, static_cast<uint32_t>(bytes.size()), false);
    endpoint->Release(buffer->slot);
    return true;
  }
};

struct Node {
  Node() {
    auto opened = device::Device::Open("auto", device::AllTables());
    if (!opened.ok()) Fail(opened.status());
    device = std::move(*opened);
    endpoint::Options options;
    options.max_message_bytes = 4096;
    auto created = endpoint::CreateEndpoint(options, *device, clock, random, commands, &handler);
    if (!created.ok()) Fail(created.status());
    endpoint = std::move(*created);
    handler.endpoint = endpoint.get();
  }
  static void Fail(const absl::Status& status) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::exit(1);
  }

  base::RealClock clock;
  base::SystemRandom random;
  poller::ThreadCommands commands;
  Echo handler;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<endpoint::Endpoint> endpoint;
};

int Serve(const Arguments& arguments, Shared* shared) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Node node;
  Pin(arguments.cpus[1]);
  node.handler.server = true;
  const auto port = node.endpoint->Listen("127.0.0.1", 0);
  if (!port.ok()) Node::Fail(port.status());
  shared->port.store(*port, std::memory_order_release);
  uint64_t expected = 1;
  for (;;) {
    switch (shared->phase.load(std::memory_order_acquire)) {
      case 1:
        if (shared->ping.load(std::memory_order_acquire) == expected) {
          shared->pong.store(expected++, std::memory_order_release);
        }
        break;
      case 3:
        return 0;
      default:
        for (int i = 0; i < 64; ++i) node.endpoint->Poll();
    }
  }
}

int Drive(const Arguments& arguments, Shared* shared) {
  Node node;
  Pin(arguments.cpus[0]);
  while (shared->port.load(std::memory_order_acquire) == 0) {
  }
  auto peer = node.endpoint->Connect("127.0.0.1", static_cast<uint16_t>(shared->port.load()),
                                     node.clock.NowNs() + 10'000'000'000);
  if (!peer.ok()) Node::Fail(peer.status());
  while (!node.handler.up) {
    node.endpoint->Poll();
    if (node.handler.down) return 1;
  }
  const auto send = [&] {
    auto buffer = node.endpoint->Reserve(node.handler.peer, arguments.size_bytes);
    if (!buffer.ok()) return false;
    std::memset(buffer->data, 7, arguments.size_bytes);
    node.endpoint->Commit(node.handler.peer, *buffer, arguments.size_bytes, false);
    node.endpoint->Release(buffer->slot);
    return true;
  };

  base::Histogram raw, echo;
  constexpr int kBlock = 20'000;
  uint64_t sequence = 0;
  const int64_t latency_end_ns =
      node.clock.NowNs() + static_cast<int64_t>(arguments.seconds * 1e9 / 2);
  for (int round = 0; round < 3 || node.clock.NowNs() < latency_end_ns; ++round) {
    shared->phase.store(1, std::memory_order_release);
    for (int i = 0; i < kBlock; ++i) {
      const int64_t start_ns = node.clock.NowNs();
      shared->ping.store(++sequence, std::memory_order_release);
      while (shared->pong.load(std::memory_order_acquire) != sequence) {
      }
      raw.Record(node.clock.NowNs() - start_ns);
    }
    shared->phase.store(2, std::memory_order_release);
    for (int i = 0; i < kBlock; ++i) {
      const uint64_t target = node.handler.received + 1;
      const int64_t start_ns = node.clock.NowNs();
      send();
      node.endpoint->Flush();
      while (node.handler.received != target) node.endpoint->Poll();
      if (round != 0) echo.Record(node.clock.NowNs() - start_ns);
    }
  }

  // Rate: the window is filled again as answers come.
  const uint64_t first = node.handler.received;
  uint64_t sent = 0;
  const int64_t start_ns = node.clock.NowNs();
  const int64_t end_ns = start_ns + static_cast<int64_t>(arguments.seconds * 1e9 / 2);
  int64_t now_ns = start_ns;
  while (now_ns < end_ns) {
    for (int i = 0; i < 256; ++i) {
      while (sent - (node.handler.received - first) < arguments.window && send()) ++sent;
      node.endpoint->Poll();
    }
    now_ns = node.clock.NowNs();
  }
  const double rate = static_cast<double>(node.handler.received - first) /
                      static_cast<double>(now_ns - start_ns) * 1e3;
  std::printf("device %s\n", node.device->choice().c_str());
  std::printf("raw ping-pong   p50 %ld ns  p99 %ld ns\n", raw.Quantile(0.5), raw.Quantile(0.99));
  std::printf("echo %4u B     p50 %ld ns  p99 %ld ns  (%.2f x raw)\n", arguments.size_bytes,
              echo.Quantile(0.5), echo.Quantile(0.99),
              static_cast<double>(echo.Quantile(0.5)) / static_cast<double>(raw.Quantile(0.5)));
  std::printf("window %3u      %.2f M messages/s each way\n", arguments.window, rate);
  shared->phase.store(3, std::memory_order_release);
  return 0;
}

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (std::sscanf(argv[i], "--cpus=%d,%d", &arguments.cpus[0], &arguments.cpus[1]) == 2) continue;
    if (std::sscanf(argv[i], "--size=%u", &arguments.size_bytes) == 1) continue;
    if (std::sscanf(argv[i], "--window=%u", &arguments.window) == 1) continue;
    if (std::sscanf(argv[i], "--seconds=%lf", &arguments.seconds) == 1) continue;
    std::fprintf(stderr, "usage: %s [--cpus=A,B] [--size=64] [--window=32] [--seconds=2]\n",
                 argv[0]);
    std::exit(argument == "--help" ? 0 : 2);
  }
  return arguments;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  const sluice::Arguments arguments = sluice::Parse(argc, argv);
  void* memory = mmap(nullptr, sizeof(sluice::Shared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto* shared = new (memory) sluice::Shared();
  // Before any thread: each process makes its own.
  const pid_t child = fork();
  if (child == 0) return sluice::Serve(arguments, shared);
  const int result = sluice::Drive(arguments, shared);
  if (result != 0) kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return result;
}
