// SPDX-License-Identifier: Apache-2.0
//
// RunWindowRates: a server of whose clients a few are busy, on the simulated fabric, and what the busy ones get. The others are
// connected, and say a word now and then, or nothing.
#ifndef SLUICE_TESTS_TRANSPORT_ENDPOINT_WINDOW_RATES_H_
#define SLUICE_TESTS_TRANSPORT_ENDPOINT_WINDOW_RATES_H_

#include <cstdint>
#include <string>

namespace sluice::endpoint {

struct RatesPlan {
  uint64_t seed = 1;
  uint32_t idle = 0;              // clients, which connect first
  uint32_t busy = 64;             // clients
  uint32_t outstanding = 8;       // requests of each busy client
  uint32_t words_per_second = 0;  // requests of idle clients, each of another client, in its turn
  uint32_t requests =
      100'000;  // of the busy ones, that are measured; before, a tenth as many are not
};

// In virtual time. A process takes 300 ns for each thing that Poll() counts, and sees completions after 200 ns.
struct RatesResult {
  double per_second = 0;  // replies to busy clients
  double p50_us = 0;      // from a request to its reply
  double p99_us = 0;
  uint64_t words = 0;  // replies to idle clients
  double word_p50_us = 0;
  double word_p99_us = 0;
  // While that was measured.
  uint64_t recalled = 0;
  uint64_t granted = 0;
  uint64_t failed = 0;  // requests with an error, receiver-not-ready errors among them
  std::string wrong;    // empty: no peer was lost
};

RatesResult RunWindowRates(const RatesPlan& plan);

}  // namespace sluice::endpoint

#endif  // SLUICE_TESTS_TRANSPORT_ENDPOINT_WINDOW_RATES_H_
