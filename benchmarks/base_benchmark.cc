// SPDX-License-Identifier: Apache-2.0
//
// Timer wheel and histogram.
#include <benchmark/benchmark.h>

#include <deque>
#include <vector>

#include "transport/base/clock.h"
#include "transport/base/histogram.h"
#include "transport/base/random.h"
#include "transport/base/timer_wheel.h"

namespace sluice::base {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

// What each call does: a deadline that is nearly always taken back.
void BM_TimerScheduleAndCancel(benchmark::State& state) {
  TimerWheel wheel(0);
  std::deque<Timer> others;
  SeededRandom random(1);
  for (int64_t i = 0; i < state.range(0); ++i) {
    others.emplace_back();
    wheel.Schedule(&others.back(), static_cast<int64_t>(random.Below(10 * kSecondNs)) + kSecondNs);
  }
  Timer timer;
  for (auto _ : state) {
    wheel.Schedule(&timer, kSecondNs);
    wheel.Cancel(&timer);
    benchmark::ClobberMemory();
  }
  for (Timer& other : others) wheel.Cancel(&other);
}
BENCHMARK(BM_TimerScheduleAndCancel)->ArgName("armed")->Arg(0)->Arg(100'000);

// Fires and arms again, time going on: the cost of one expiry with its share of the cascades.
void BM_TimerFire(benchmark::State& state) {
  struct Ring {
    TimerWheel wheel{0};
    std::deque<Timer> timers;
    int64_t period_ns = 0;
    uint64_t fired = 0;
  } ring;
  ring.period_ns = 100'000'000;
  SeededRandom random(1);
  for (int64_t i = 0; i < state.range(0); ++i) {
    ring.timers.emplace_back(
        [](Timer* timer, void* context) {
          auto* owner = static_cast<Ring*>(context);
          ++owner->fired;
          owner->wheel.Schedule(timer, timer->deadline_ns + owner->period_ns);
        },
        &ring);
    ring.wheel.Schedule(&ring.timers.back(), static_cast<int64_t>(random.Below(100'000'000)));
  }
  int64_t now_ns = 0;
  for (auto _ : state) ring.wheel.Advance(now_ns += 50'000);
  state.counters["fired"] =
      benchmark::Counter(static_cast<double>(ring.fired), benchmark::Counter::kIsRate);
  for (Timer& timer : ring.timers) ring.wheel.Cancel(&timer);
}
BENCHMARK(BM_TimerFire)->ArgName("armed")->Arg(1'000)->Arg(100'000);

void BM_HistogramRecord(benchmark::State& state) {
  Histogram histogram;
  SeededRandom random(1);
  std::vector<int64_t> values(4096);
  for (int64_t& value : values) value = static_cast<int64_t>(500 + random.Below(2000));
  size_t next = 0;
  for (auto _ : state) {
    histogram.Record(values[next++ % values.size()]);
    benchmark::DoNotOptimize(histogram);
  }
}
BENCHMARK(BM_HistogramRecord);

void BM_ClockRead(benchmark::State& state) {
  RealClock clock;
  for (auto _ : state) benchmark::DoNotOptimize(clock.NowNs());
}
BENCHMARK(BM_ClockRead);

}  // namespace
}  // namespace sluice::base
