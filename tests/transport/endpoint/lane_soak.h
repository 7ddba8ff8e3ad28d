// SPDX-License-Identifier: Apache-2.0
//
// Two programs that send each other messages of every size through lanes and past them, seed after seed: payload lands in any order
// that is not promised away, with long gaps; requests fail, some land late; messages and answers are lost; programs sleep.
#ifndef SLUICE_TESTS_TRANSPORT_ENDPOINT_LANE_SOAK_H_
#define SLUICE_TESTS_TRANSPORT_ENDPOINT_LANE_SOAK_H_

#include <cstdint>
#include <string>

#include "transport/softdc/config/dials.h"

namespace sluice::endpoint {

struct SoakPlan {
  uint64_t seed = 1;
  softdc::InOrder promise = softdc::InOrder::kWholeMessage;
  bool forced =
      false;  // the endpoint is told that whole messages land in order, whatever is promised
  bool faults = true;
  uint32_t messages = 10'000;  // each way
};

struct SoakResult {
  uint64_t messages = 0;
  uint64_t through_lanes = 0;
  uint64_t announced = 0;
  uint64_t lanes = 0;
  uint64_t lost = 0;  // lanes, after errors
  uint64_t hushes = 0;
  uint64_t failures = 0;  // requests
  uint64_t sent_again = 0;
  uint64_t sleeps = 0;
  uint64_t torn = 0;
  uint64_t downs = 0;
  std::string wrong;  // empty: every message came once, whole, in its order
};

SoakResult RunLaneSoak(const SoakPlan& plan);

}  // namespace sluice::endpoint

#endif  // SLUICE_TESTS_TRANSPORT_ENDPOINT_LANE_SOAK_H_
