// SPDX-License-Identifier: Apache-2.0
//
// MeasureIsolation: one process calls many others, each on a host of its own, some of which die; and how long the calls to
// the others take, in virtual time. Whole endpoints and sessions; programs take no time.
#ifndef SLUICE_TESTS_SIMULATION_ISOLATION_H_
#define SLUICE_TESTS_SIMULATION_ISOLATION_H_

#include <cstdint>
#include <vector>

#include "transport/softdc/config/config.h"
#include "transport/softdc/config/dials.h"

namespace sluice::simulation {

struct IsolationOptions {
  uint64_t seed = 1;
  uint32_t peers = 1'000;
  uint32_t dead = 100;  // of them; they are up, and called, before they die, all at one moment
  int64_t period_ns = 10'000'000;  // each peer is called once in that time
  int64_t before_ns = 50'000'000;  // measured before they die
  int64_t after_ns = 300'000'000;  // and after all are known to be dead
  int64_t dead_peer_ns = 300'000'000;
  softdc::Dials dials = softdc::DialsOfThisProcess();  // of all devices
  uint32_t dci_count = 16;
  uint32_t dci_depth = 1'024;
};

struct Latencies {
  uint64_t calls = 0;
  int64_t p50_ns = 0;
  int64_t p99_ns = 0;
  int64_t max_ns = 0;
};

struct IsolationResult {
  Latencies before;            // calls to those who live, by when they began: while all live
  Latencies during;            // from the death until each dead one is known to be
  Latencies known;             // afterwards, while they are dialled again and again
  int64_t known_after_ns = 0;  // how long it took until they were
  uint64_t lost_peers = 0;     // that lived
  uint64_t unanswered = 0;     // calls to those who live that had no answer in the end
  uint64_t sleepless = 0;      // times that the caller had always more to do
  uint64_t failed_requests = 0;
  uint64_t stream_resets = 0;
  uint64_t recoveries = 0;  // of whole DCIs
};

IsolationResult MeasureIsolation(const IsolationOptions& options);

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_ISOLATION_H_
