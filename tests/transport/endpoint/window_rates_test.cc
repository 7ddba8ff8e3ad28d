// SPDX-License-Identifier: Apache-2.0
//
// Busy clients of a server get the same whether there are many idle ones beside them or none.
#include "tests/transport/endpoint/window_rates.h"

#include "gtest/gtest.h"

namespace sluice::endpoint {
namespace window_rates_test {

void ExpectAlike(const RatesPlan& crowded) {
  RatesPlan alone = crowded;
  alone.idle = 0;
  alone.words_per_second = 0;
  const RatesResult want = RunWindowRates(alone);
  const RatesResult got = RunWindowRates(crowded);
  ASSERT_EQ(want.wrong, "");
  ASSERT_EQ(got.wrong, "");
  EXPECT_GE(got.per_second, 0.9 * want.per_second);
  EXPECT_LE(got.p50_us, 1.1 * want.p50_us);
  EXPECT_LE(got.p99_us, 1.3 * want.p99_us);
  EXPECT_EQ(got.failed, 0u);
}

TEST(WindowRates, OfBusyClientsAreTheSameBesideIdleOnes) {
  ExpectAlike({.idle = 400, .busy = 64, .outstanding = 4, .requests = 20'000});
}

TEST(WindowRates, OfBusyClientsAreTheSameBesideIdleOnesThatSayAWordNowAndThen) {
  ExpectAlike(
      {.idle = 400, .busy = 64, .outstanding = 4, .words_per_second = 2'000, .requests = 20'000});
}

}  // namespace window_rates_test
}  // namespace sluice::endpoint
