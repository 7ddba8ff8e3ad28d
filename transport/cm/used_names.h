// SPDX-License-Identifier: Apache-2.0
//
// UsedNames: names that were used in this period or in the previous one, and are not accepted again.
//
// Purpose       Two sets of 64-bit names, one for each period. The endpoint keeps hellos in it, so that a recorded hello is not
//               accepted twice.
// Ownership     Shared by all users of the same names: the endpoints that have a seat at one desk, or one endpoint.
// Threads       Any.
// Limits        kMost names per period. Further names are accepted without being noted.
#ifndef SLUICE_TRANSPORT_CM_USED_NAMES_H_
#define SLUICE_TRANSPORT_CM_USED_NAMES_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace sluice::cm {

class UsedNames {
 public:
  static constexpr size_t kMost = 16384;

  // Notes a name. Returns false if it is noted already. `period`: number of the period, by a clock that all users share. A number that is
  // slightly late is harmless.
  bool Add(uint64_t name, int64_t period) {
    std::lock_guard lock(mutex_);
    if (period > period_) {
      if (period != period_ + 1) now_.clear();
      before_ = std::exchange(now_, {});
      period_ = period;
    }
    if (before_.contains(name) || now_.contains(name)) return false;
    if (now_.size() < kMost) now_.insert(name);
    return true;
  }

 private:
  std::mutex mutex_;
  int64_t period_ = 0;                          // mutex_
  absl::flat_hash_set<uint64_t> now_, before_;  // mutex_
};

}  // namespace sluice::cm

#endif  // SLUICE_TRANSPORT_CM_USED_NAMES_H_
