// SPDX-License-Identifier: Apache-2.0
//
// Soak: protected transfers of random kinds, protections and sizes, with none, one or many of them wrong at once, on simulated
// hosts. Every one is judged: its reply, its status, what it says is wrong, its bytes, and what the target finds.
#ifndef SLUICE_TESTS_TRANSPORT_INTEGRITY_SOAK_H_
#define SLUICE_TESTS_TRANSPORT_INTEGRITY_SOAK_H_

#include <cstdint>

namespace sluice::integrity {

struct SoakCounts {
  uint64_t transfers = 0;
  uint64_t wrong = 0;
  uint64_t rounds_with_none_wrong = 0;
  uint64_t rounds_with_one_wrong = 0;
  uint64_t rounds_with_many_wrong = 0;
  uint64_t stops = 0;
  uint64_t lost_events = 0;
  uint64_t found_at_target = 0;

  SoakCounts& operator+=(const SoakCounts& other) {
    transfers += other.transfers;
    wrong += other.wrong;
    rounds_with_none_wrong += other.rounds_with_none_wrong;
    rounds_with_one_wrong += other.rounds_with_one_wrong;
    rounds_with_many_wrong += other.rounds_with_many_wrong;
    stops += other.stops;
    lost_events += other.lost_events;
    found_at_target += other.found_at_target;
    return *this;
  }
};

// At least so many transfers. Fails the running test where something is not as it must be.
SoakCounts Soak(uint64_t seed, uint64_t transfers);

}  // namespace sluice::integrity

#endif  // SLUICE_TESTS_TRANSPORT_INTEGRITY_SOAK_H_
