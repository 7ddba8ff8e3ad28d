// SPDX-License-Identifier: Apache-2.0
//
// Endpoints on the software NIC, driven by hand, whose handlers write down what happens.
#ifndef SLUICE_TESTS_TRANSPORT_ENDPOINT_ENDPOINT_PAIR_H_
#define SLUICE_TESTS_TRANSPORT_ENDPOINT_ENDPOINT_PAIR_H_

#include <poll.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/provider.h"
#include "transport/base/clock.h"
#include "transport/base/random.h"
#include "transport/device/device.h"
#include "transport/endpoint/create.h"
#include "transport/poller/commands.h"
#include "transport/softdc/verbs.h"

namespace sluice::endpoint {

// Keeps what the handler was told.
struct Recorder : Handler {
  struct Up {
    PeerId id;
    PeerInfo info;
  };
  struct Down {
    PeerId id;
    absl::Status why;
  };
  std::vector<Up> ups;
  std::vector<Down> downs;
  std::vector<std::string> messages;
  std::vector<PeerId> writable;
  std::function<void(PeerId, std::span<const std::byte>)> on_message;

  void OnPeerUp(PeerId peer, const PeerInfo& info) override { ups.push_back({peer, info}); }
  void OnPeerDown(PeerId peer, const absl::Status& why) override { downs.push_back({peer, why}); }
  bool OnMessage(PeerId peer, std::span<const std::byte> bytes) override {
    if (on_message) {
      on_message(peer, bytes);
    } else {
      messages.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return true;
  }
  void OnWritable(PeerId peer) override { writable.push_back(peer); }
};

// One endpoint with everything it takes.
struct Node {
  // `table` stands for another device, `time` for the clock of the endpoint, `handler` for the
  // recorder; they outlive the node.
  explicit Node(const Options& options = {}, const verbs::VerbsApi* table = &softdc::Verbs(),
                base::Clock* time = nullptr, Handler* handler = nullptr,
                const device::PathSettings& path = {}) {
    if (table == &softdc::Verbs()) table = &testing_support::Provider();
    auto opened = device::Device::Open("softdc0", {table});
    if (!opened.ok()) {
      ADD_FAILURE() << opened.status();
      return;
    }
    device = std::move(*opened);
    if (const absl::Status status = device->UsePath(path); !status.ok()) {
      ADD_FAILURE() << status;
      return;
    }
    auto created = CreateEndpoint(options, *device, time == nullptr ? clock : *time, random,
                                  commands, handler == nullptr ? &recorder : handler);
    if (!created.ok()) {
      ADD_FAILURE() << created.status();
      return;
    }
    endpoint = std::move(*created);
  }

  absl::Status Send(PeerId peer, std::string_view text) {
    auto buffer = endpoint->Reserve(peer, static_cast<uint32_t>(text.size()));
    if (!buffer.ok()) return buffer.status();
    std::memcpy(buffer->data, text.data(), text.size());
    endpoint->Commit(peer, *buffer, static_cast<uint32_t>(text.size()), false);
    endpoint->Release(buffer->slot);
    return absl::OkStatus();
  }

  Recorder recorder;
  base::RealClock clock;
  base::SystemRandom random;
  poller::ThreadCommands commands;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<Endpoint> endpoint;
};

// Polls until `done`, asleep while nothing happens. There is no limit here: a hang is the test
// runner's to end.
inline void PollUntil(std::initializer_list<Node*> nodes, const std::function<bool()>& done) {
  while (!done()) {
    int count = 0;
    for (Node* node : nodes) count += node->endpoint->Poll();
    if (count != 0 || done()) continue;
    std::vector<pollfd> sleepers;
    int64_t limit_ns = -1;
    bool ready = true;
    for (Node* node : nodes) {
      ready = node->endpoint->PrepareToSleep() && ready;
      sleepers.push_back({node->endpoint->fd(), POLLIN, 0});
      const int64_t own_ns = node->endpoint->SleepLimitNs();
      if (own_ns >= 0 && (limit_ns < 0 || own_ns < limit_ns)) limit_ns = own_ns;
    }
    if (!ready || done()) continue;
    poll(sleepers.data(), sleepers.size(),
         limit_ns < 0 ? -1 : static_cast<int>(limit_ns / 1'000'000) + 1);
  }
}

// Connects, and polls both until the client has heard that it is up or down.
inline PeerId TryConnect(Node& client, Node& server, uint16_t port,
                         const std::string& host = "127.0.0.1") {
  const auto peer = client.endpoint->Connect(host, port, client.clock.NowNs() + 600'000'000'000);
  if (!peer.ok()) {
    ADD_FAILURE() << peer.status();
    return {};
  }
  PollUntil({&client, &server},
            [&] { return !client.recorder.downs.empty() || !client.recorder.ups.empty(); });
  return *peer;
}

inline PeerId ConnectPair(Node& client, Node& server, uint16_t port,
                          int64_t timeout_ns = 10'000'000'000) {
  auto peer = client.endpoint->Connect("127.0.0.1", port, client.clock.NowNs() + timeout_ns);
  if (!peer.ok()) {
    ADD_FAILURE() << peer.status();
    return {};
  }
  const size_t ups = server.recorder.ups.size() + 1;
  const size_t client_ups = client.recorder.ups.size() + 1;
  const size_t client_downs = client.recorder.downs.size();
  PollUntil({&client, &server}, [&] {
    return (client.recorder.ups.size() >= client_ups && server.recorder.ups.size() >= ups) ||
           client.recorder.downs.size() > client_downs;
  });
  if (client.recorder.downs.size() > client_downs) {
    ADD_FAILURE() << client.recorder.downs.back().why;
  }
  return *peer;
}

// 5,000 messages each way, as fast as they go: each arrives once and in order.
inline void ExchangeMany(Node& client, PeerId peer, Node& server, PeerId back) {
  constexpr size_t kMessages = 5'000;
  size_t sent = 0, answered = 0;
  PollUntil({&client, &server}, [&] {
    while (sent < kMessages && client.Send(peer, "request " + std::to_string(sent)).ok()) ++sent;
    while (answered < server.recorder.messages.size() &&
           server.Send(back, "reply " + std::to_string(answered)).ok()) {
      ++answered;
    }
    return client.recorder.messages.size() >= kMessages;
  });
  ASSERT_EQ(server.recorder.messages.size(), kMessages);
  for (size_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(server.recorder.messages[i], "request " + std::to_string(i));
    ASSERT_EQ(client.recorder.messages[i], "reply " + std::to_string(i));
  }
}

}  // namespace sluice::endpoint

#endif  // SLUICE_TESTS_TRANSPORT_ENDPOINT_ENDPOINT_PAIR_H_
