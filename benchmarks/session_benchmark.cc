// SPDX-License-Identifier: Apache-2.0
//
// Order, duplicates and acknowledgements between two sides: both ends of one message.
#include <benchmark/benchmark.h>

#include <cstring>

#include "middleware/session/backlog.h"
#include "middleware/session/session.h"

namespace sluice::session {
namespace {

// Request and reply, each acknowledging the other, as calls do.
void BM_SessionRoundTrip(benchmark::State& state) {
  Links client_links;
  Links server_links;
  Session client;
  Session server;
  const auto release = [](uint32_t slot) { benchmark::DoNotOptimize(slot); };
  for (auto _ : state) {
    if (server.Receive(client.Send(client_links, 0)) != Verdict::kDeliver ||
        client.Acknowledge(client_links, server.next_expected(), release) != Verdict::kDeliver ||
        client.Receive(server.Send(server_links, 0)) != Verdict::kDeliver ||
        server.Acknowledge(server_links, client.next_expected(), release) != Verdict::kDeliver) {
      state.SkipWithError("a message was not delivered");
    }
    benchmark::DoNotOptimize(client);
    benchmark::DoNotOptimize(server);
  }
}
BENCHMARK(BM_SessionRoundTrip);

// A message that has to wait for credit: one in, one out, `waiting` others before it.
void BM_BacklogPushAndPop(benchmark::State& state) {
  constexpr uint32_t kMessageBytes = 112;
  Backlog backlog(1024, 1 << 20);
  for (int64_t i = 0; i < state.range(0); ++i) backlog.Push(kMessageBytes);
  for (auto _ : state) {
    std::byte* message = backlog.Push(kMessageBytes);
    if (message == nullptr) return state.SkipWithError("full");
    std::memset(message, 1, kMessageBytes);
    benchmark::DoNotOptimize(backlog.Front().data());
    backlog.Pop();
  }
}
BENCHMARK(BM_BacklogPushAndPop)->ArgName("waiting")->Arg(0)->Arg(512);

}  // namespace
}  // namespace sluice::session
