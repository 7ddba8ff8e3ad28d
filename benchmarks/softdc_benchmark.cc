// SPDX-License-Identifier: Apache-2.0
//
// Plain verbs on the software NIC in one process: post, doorbell, completion, receive buffer posted
// again. No cache line crosses a core here: this is softdc's own work, and the ground under
// everything above it.
#include <benchmark/benchmark.h>

#include "benchmarks/dc_side.h"

namespace sluice::benchmarks {
namespace {

constexpr uint32_t kMessageBytes = 64;

// One iteration: `batch` messages behind one doorbell, received and recycled.
void BM_SoftdcSendAndPoll(benchmark::State& state) {
  DcSide side(42);
  const auto batch = static_cast<int>(state.range(0));
  ibv_wc completions[64];
  for (auto _ : state) {
    for (int i = 0; i < batch; ++i) side.Add(side.address(), kMessageBytes);
    side.Ring();
    for (int received = 0; received < batch;) {
      const int count = side.Poll(completions, 64);
      side.Repost(completions, count);
      received += count;
    }
  }
  state.SetItemsProcessed(state.iterations() * batch);
}
BENCHMARK(BM_SoftdcSendAndPoll)->ArgName("batch")->Arg(1)->Arg(4)->Arg(16);

void BM_SoftdcPollEmptyCq(benchmark::State& state) {
  DcSide side(42);
  ibv_wc completion;
  for (auto _ : state) benchmark::DoNotOptimize(side.Poll(&completion, 1));
}
BENCHMARK(BM_SoftdcPollEmptyCq);

}  // namespace
}  // namespace sluice::benchmarks
