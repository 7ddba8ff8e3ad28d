// SPDX-License-Identifier: Apache-2.0
//
// Channel::Visit: a thread inside a function of a channel. If a callback that this thread runs drops the last reference, the
// thread's outermost visit ends the channel.
//
// Ownership     The function, on its stack.
// Threads       Each thread has a chain of visits of its own. Other threads do not learn that the reference was dropped.
#ifndef SLUICE_MIDDLEWARE_API_CHANNEL_VISIT_H_
#define SLUICE_MIDDLEWARE_API_CHANNEL_VISIT_H_

#include <utility>

#include "middleware/api/channel.h"

namespace sluice {

class Channel::Visit {
 public:
  explicit Visit(Channel* channel) : channel_(channel), outer_(std::exchange(innermost_, this)) {}
  ~Visit() {
    innermost_ = outer_;
    if (released_) [[unlikely]]
      Release(channel_);
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  // Lets a visit of this thread end the channel. Returns false if this thread is not inside a function of the channel.
  static bool LeaveItToOne(const Channel* channel) {
    for (Visit* visit = innermost_; visit != nullptr; visit = visit->outer_) {
      if (visit->channel_ != channel) continue;
      visit->released_ = true;
      return true;
    }
    return false;
  }

 private:
  static inline constinit thread_local Visit* innermost_ = nullptr;

  Channel* const channel_;
  Visit* const outer_;  // next outer visit of this thread, to any channel
  bool released_ = false;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_CHANNEL_VISIT_H_
