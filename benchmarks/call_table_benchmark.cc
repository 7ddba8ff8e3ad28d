// SPDX-License-Identifier: Apache-2.0
//
// The life of a call in the table, with its deadline on the timer wheel: start, sent, found by its
// reply, ended.
#include <benchmark/benchmark.h>

#include <vector>

#include "middleware/call/call_table.h"
#include "middleware/call/method.h"

namespace sluice::call {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr Method kMethod("/benchmark.Service/Method");

void BM_CallLife(benchmark::State& state) {
  const int64_t now_ns = 0;
  base::TimerWheel wheel(0);
  CallTable table(
      1024, &wheel, &now_ns, [](void*, Call*) {}, nullptr);
  uint64_t ended = 0;
  CallSpec spec;
  spec.method = &kMethod;
  spec.done = [](void* argument, const absl::Status&) { ++*static_cast<uint64_t*>(argument); };
  spec.argument = &ended;
  const absl::Status ok;
  // Others that are under way meanwhile.
  std::vector<Call*> others;
  for (int64_t i = 0; i < state.range(0); ++i) {
    Call* call = table.Start(spec, kSecondNs);
    table.MarkSent(call);
    others.push_back(call);
  }
  for (auto _ : state) {
    Call* call = table.Start(spec, kSecondNs);
    const uint64_t id = CallTable::WireId(*call);
    table.MarkSent(call);
    Call* found = table.FindSent(id);
    if (found != call) {
      state.SkipWithError("the call was not found");
      break;
    }
    table.End(found, CallEvent::kReply, ok);
  }
  if (ended != static_cast<uint64_t>(state.iterations()))
    state.SkipWithError("a callback is missing");
  for (Call* call : others) table.End(call, CallEvent::kReply, ok);
}
BENCHMARK(BM_CallLife)->ArgName("outstanding")->Arg(0)->Arg(31)->Arg(1000);

}  // namespace
}  // namespace sluice::call
