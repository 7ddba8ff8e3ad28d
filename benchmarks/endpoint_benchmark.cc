// SPDX-License-Identifier: Apache-2.0
//
// A pass of the poller: idle, and with one message. Two endpoints of one process, driven by one
// thread in turn.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>

#include "benchmarks/dc_side.h"
#include "transport/base/clock.h"
#include "transport/base/random.h"
#include "transport/endpoint/create.h"
#include "transport/poller/commands.h"
#include "transport/poller/poller.h"
#include "transport/softdc/verbs.h"

namespace sluice::endpoint {
namespace {

using benchmarks::Check;
using benchmarks::CheckOk;

constexpr uint32_t kMessageBytes = 64;

struct Node : Handler {
  Node() {
    auto opened = device::Device::Open("softdc0", {&softdc::Verbs()});
    CheckOk(opened.status());
    device = *std::move(opened);
    auto created = CreateEndpoint({}, *device, clock, random, commands, this);
    CheckOk(created.status());
    endpoint = *std::move(created);
  }
  void OnPeerUp(PeerId id, const PeerInfo&) override { peer = id; }
  void OnPeerDown(PeerId, const absl::Status& why) override { CheckOk(why); }
  bool OnMessage(PeerId, std::span<const std::byte>) override {
    ++messages;
    return true;
  }
  void OnWritable(PeerId) override {}

  base::RealClock clock;
  base::SystemRandom random;
  poller::ThreadCommands commands;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<Endpoint> endpoint;
  PeerId peer;
  uint64_t messages = 0;
};

struct Pair {
  Pair() {
    auto port = server.endpoint->Listen("127.0.0.1", 0);
    CheckOk(port.status());
    CheckOk(client.endpoint->Connect("127.0.0.1", *port, client.clock.NowNs() + 30'000'000'000)
                .status());
    while (client.peer.generation == 0 || server.peer.generation == 0) {
      client.endpoint->Poll();
      server.endpoint->Poll();
    }
  }
  Node server;
  Node client;
};

void BM_EndpointIdlePass(benchmark::State& state) {
  Pair pair;
  for (auto _ : state) benchmark::DoNotOptimize(pair.client.endpoint->Poll());
}
BENCHMARK(BM_EndpointIdlePass);

void Send(Node& from) {
  auto buffer = from.endpoint->Reserve(from.peer, kMessageBytes);
  CheckOk(buffer.status());
  std::memset(buffer->data, 1, kMessageBytes);
  from.endpoint->Commit(from.peer, *buffer, kMessageBytes, false);
  from.endpoint->Release(buffer->slot);
  from.endpoint->Flush();
}

void BM_EndpointRoundTrip(benchmark::State& state) {
  Pair pair;
  uint64_t expected = 0;
  for (auto _ : state) {
    ++expected;
    Send(pair.client);
    while (pair.server.messages < expected) pair.server.endpoint->Poll();
    Send(pair.server);
    while (pair.client.messages < expected) pair.client.endpoint->Poll();
  }
}
BENCHMARK(BM_EndpointRoundTrip);

// The descriptors behind a sleep: one system call.
void BM_PollerCheckNothingReady(benchmark::State& state) {
  auto poller = poller::Poller::Create();
  CheckOk(poller.status());
  for (auto _ : state) benchmark::DoNotOptimize((*poller)->Check());
}
BENCHMARK(BM_PollerCheckNothingReady);

void BM_CommandsDrainNothingDone(benchmark::State& state) {
  poller::ThreadCommands commands;
  for (auto _ : state) benchmark::DoNotOptimize(commands.Drain());
}
BENCHMARK(BM_CommandsDrainNothingDone);

}  // namespace
}  // namespace sluice::endpoint
