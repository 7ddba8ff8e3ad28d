// SPDX-License-Identifier: Apache-2.0
//
// Overload: logs a series of refusals in two lines: the reason of the first refusal, and their number after kQuietNs without a refusal.
//
// Ownership     An engine.
// Threads       The engine's.
#ifndef SLUICE_MIDDLEWARE_OBSERVE_OVERLOAD_H_
#define SLUICE_MIDDLEWARE_OBSERVE_OVERLOAD_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "transport/base/event_log.h"

namespace sluice::observe {

class Overload {
 public:
  static constexpr int64_t kQuietNs = 1'000'000'000;

  // `what`: a string literal, for example "calls are refused".
  explicit Overload(std::string_view what) : what_(what) {}

  // Counts a refusal, and logs the first of a series. `why`: status of the refused request.
  void Refused(int64_t now_ns, const absl::Status& why, base::EventLog* log);
  bool going_on() const { return refused_ != 0; }
  // Logs the end of the series after kQuietNs without a refusal. Call it from time to time while going_on().
  void Look(int64_t now_ns, base::EventLog* log);

 private:
  const std::string_view what_;
  uint64_t refused_ = 0;
  int64_t since_ns_ = 0;
  int64_t last_ns_ = 0;
};

}  // namespace sluice::observe

#endif  // SLUICE_MIDDLEWARE_OBSERVE_OVERLOAD_H_
