// SPDX-License-Identifier: Apache-2.0
#include "tools/rate_over_time.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace sluice::tools {
namespace rate_over_time_test {

constexpr int64_t kSecondNs = 1'000'000'000;

std::vector<uint64_t> CallsOf(const RateOverTime& rates) {
  BenchResult result;
  rates.AddTo(&result);
  std::vector<uint64_t> calls;
  for (const RateSample& sample : result.rates()) calls.push_back(sample.calls());
  return calls;
}

TEST(RateOverTimeTest, CountsCallsByInterval) {
  RateOverTime rates;
  rates.Start(5 * kSecondNs, kSecondNs);  // intervals of 10 ms
  rates.Count(5 * kSecondNs);
  rates.Count(5 * kSecondNs + 9'999'999);
  rates.Count(5 * kSecondNs + 10'000'000);
  rates.Count(5 * kSecondNs + 20'000'000);
  EXPECT_EQ(CallsOf(rates), (std::vector<uint64_t>{2, 1}));  // the third interval has not ended
  BenchResult result;
  rates.AddTo(&result);
  EXPECT_DOUBLE_EQ(result.rates(0).end_seconds(), 0.01);
  EXPECT_DOUBLE_EQ(result.rates(1).end_seconds(), 0.02);
}

TEST(RateOverTimeTest, StallIsIntervalsWithoutCalls) {
  RateOverTime rates;
  rates.Start(0, kSecondNs);
  rates.Count(1);
  rates.Count(45'000'000);
  rates.Count(50'000'000);
  EXPECT_EQ(CallsOf(rates), (std::vector<uint64_t>{1, 0, 0, 0, 1}));
}

TEST(RateOverTimeTest, StartForgetsTheWarmUp) {
  RateOverTime rates;
  rates.Start(0, kSecondNs);
  for (int64_t ns = 0; ns < kSecondNs; ns += 1'000'000) rates.Count(ns);
  rates.Start(2 * kSecondNs, 2 * kSecondNs);
  rates.Count(2 * kSecondNs + 20'000'000);
  EXPECT_EQ(CallsOf(rates), (std::vector<uint64_t>{0}));
}

TEST(RateOverTimeTest, ShortMeasurementsHaveIntervalsOfAMillisecond) {
  RateOverTime rates;
  rates.Start(0, 2'000'000);
  rates.Count(999'999);
  rates.Count(1'000'000);
  EXPECT_EQ(CallsOf(rates), (std::vector<uint64_t>{1}));
}

}  // namespace rate_over_time_test
}  // namespace sluice::tools
