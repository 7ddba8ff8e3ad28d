// SPDX-License-Identifier: Apache-2.0
//
// WaitingList: the targets that have requests to post and no room, and the number of requests that each may post in its turn.
//
// Purpose       Two kinds: targets that have a stream wait for room in their send queue. Targets without a stream wait for a
//               stream too, in one line for each class of DCIs. A waiting target holds nothing but requests already posted.
// Ownership     The DciPool. A target leaves it by Remove() before its end.
// Limits        Each target is in it at most once.
#ifndef SLUICE_TRANSPORT_QUEUE_WAITING_LIST_H_
#define SLUICE_TRANSPORT_QUEUE_WAITING_LIST_H_

#include <cstdint>
#include <deque>

#include "transport/queue/target.h"

namespace sluice::queue {

class WaitingList {
 public:
  struct Entry {
    Target* target;
    uint32_t deficit_bytes;  // bytes that it may send before the next target
  };
  using Line = std::deque<Entry>;

  bool empty() const { return bound_.empty() && unbound_[0].empty() && unbound_[1].empty(); }
  // Returns whether a target of the same class waits for a stream. A target that has a stream then leaves it when its deficit is used.
  bool crowded(const Target& target) const { return !unbound_[target.probation].empty(); }

  void Add(const Entry& entry) {
    entry.target->waiting = true;
    (entry.target->stream != kNoStream ? bound_ : unbound_[entry.target->probation])
        .push_back(entry);
  }
  void Remove(Target* target) {
    if (!target->waiting) return;
    target->waiting = false;
    for (Line* line : {&bound_, &unbound_[0], &unbound_[1]}) {
      std::erase_if(*line, [target](const Entry& entry) { return entry.target == target; });
    }
  }
  Line& bound() { return bound_; }
  Line& unbound(bool probation) { return unbound_[probation]; }

 private:
  Line bound_;
  Line unbound_[2];
};

}  // namespace sluice::queue

#endif  // SLUICE_TRANSPORT_QUEUE_WAITING_LIST_H_
