// SPDX-License-Identifier: Apache-2.0
//
// usage: lane_soak FIRST_SEED SEEDS MESSAGES
// So many messages each way, in each of the three modes, for each seed. Prints sums; 1: something was wrong.
#include <cstdio>

#include "absl/strings/numbers.h"
#include "tests/transport/endpoint/lane_soak.h"

int main(int argc, char** argv) {
  using sluice::endpoint::SoakResult;
  using sluice::softdc::InOrder;
  uint64_t first = 0, seeds = 0;
  uint32_t messages = 0;
  if (argc != 4 || !absl::SimpleAtoi(argv[1], &first) || !absl::SimpleAtoi(argv[2], &seeds) ||
      !absl::SimpleAtoi(argv[3], &messages)) {
    std::fprintf(stderr, "usage: lane_soak FIRST_SEED SEEDS MESSAGES\n");
    return 2;
  }
  int wrong = 0;
  for (const InOrder promise : {InOrder::kWholeMessage, InOrder::kBlocks128, InOrder::kNone}) {
    SoakResult sum;
    for (uint64_t seed = first; seed < first + seeds; ++seed) {
      const SoakResult one =
          sluice::endpoint::RunLaneSoak({.seed = seed, .promise = promise, .messages = messages});
      if (!one.wrong.empty()) {
        ++wrong;
        std::printf("seed %lu, promise %d: %s\n", seed, static_cast<int>(promise),
                    one.wrong.c_str());
      }
      sum.messages += one.messages;
      sum.through_lanes += one.through_lanes;
      sum.announced += one.announced;
      sum.lanes += one.lanes;
      sum.lost += one.lost;
      sum.hushes += one.hushes;
      sum.failures += one.failures;
      sum.sent_again += one.sent_again;
      sum.sleeps += one.sleeps;
      sum.torn += one.torn;
    }
    static const char* const kNames[] = {"whole", "blocks", "none"};
    std::printf(
        "%-6s  %lu messages, %lu through lanes, %lu announced, %lu torn; %lu lanes, %lu lost, %lu "
        "hushed; %lu requests "
        "failed, %lu messages sent again, %lu sleeps\n",
        kNames[static_cast<int>(promise)], sum.messages, sum.through_lanes, sum.announced, sum.torn,
        sum.lanes, sum.lost, sum.hushes, sum.failures, sum.sent_again, sum.sleeps);
    std::fflush(stdout);
  }
  return wrong == 0 ? 0 : 1;
}
