// SPDX-License-Identifier: Apache-2.0
//
// usage: window_rates CLIENTS BUSY OUTSTANDING WORDS_PER_SECOND REQUESTS
// A server with only the busy clients beside one with all of them, five seeds each: what the busy ones get, in virtual time.
// 1: something was wrong.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/strings/numbers.h"
#include "tests/transport/endpoint/window_rates.h"

int main(int argc, char** argv) {
  using sluice::endpoint::RatesPlan;
  using sluice::endpoint::RatesResult;
  RatesPlan plan;
  uint32_t clients = 0;
  uint32_t words = 0;
  if (argc != 6 || !absl::SimpleAtoi(argv[1], &clients) || !absl::SimpleAtoi(argv[2], &plan.busy) ||
      !absl::SimpleAtoi(argv[3], &plan.outstanding) || !absl::SimpleAtoi(argv[4], &words) ||
      !absl::SimpleAtoi(argv[5], &plan.requests) || plan.busy == 0 || clients < plan.busy) {
    std::fprintf(stderr,
                 "usage: window_rates CLIENTS BUSY OUTSTANDING WORDS_PER_SECOND REQUESTS\n");
    return 2;
  }
  std::vector<double> rates[2], p50s[2], p99s[2];
  for (plan.seed = 1; plan.seed <= 5; ++plan.seed) {
    for (const bool all : {false, true}) {
      plan.idle = all ? clients - plan.busy : 0;
      plan.words_per_second = all ? words : 0;
      const RatesResult result = sluice::endpoint::RunWindowRates(plan);
      std::printf(
          "%5u clients: %8.0f/s, p50 %7.2f us, p99 %7.2f us; %lu words, p50 %.1f us, p99 %.1f us; "
          "%lu recalled, %lu granted, %lu failed %s\n",
          plan.idle + plan.busy, result.per_second, result.p50_us, result.p99_us, result.words,
          result.word_p50_us, result.word_p99_us, result.recalled, result.granted, result.failed,
          result.wrong.c_str());
      std::fflush(stdout);
      if (!result.wrong.empty()) return 1;
      rates[all].push_back(result.per_second);
      p50s[all].push_back(result.p50_us);
      p99s[all].push_back(result.p99_us);
    }
  }
  const auto median = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  std::printf("medians, all clients to the busy ones alone: rate %.3f, p50 %.3f, p99 %.3f\n",
              median(rates[1]) / median(rates[0]), median(p50s[1]) / median(p50s[0]),
              median(p99s[1]) / median(p99s[0]));
  return 0;
}
