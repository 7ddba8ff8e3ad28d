// SPDX-License-Identifier: Apache-2.0
//
// Overload: logs many refusals in two lines: the reason of the first one, and their number when there was none for a while.
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

  // `what`: a literal, "calls are refused".
  explicit Overload(std::string_view what) : what_(what) {}

  // `why`: the status of whoever was refused.
  void Refused(int64_t now_ns, const absl::Status& why, base::EventLog* log);
  bool going_on() const { return refused_ != 0; }
  // To be asked while it is going on.
  void Look(int64_t now_ns, base::EventLog* log);

 private:
  const std::string_view what_;
  uint64_t refused_ = 0;
  int64_t since_ns_ = 0;
  int64_t last_ns_ = 0;
};

}  // namespace sluice::observe

#endif  // SLUICE_MIDDLEWARE_OBSERVE_OVERLOAD_H_
