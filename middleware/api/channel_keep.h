// SPDX-License-Identifier: Apache-2.0
//
// ChannelKeep: keeps a channel's memory. Destroying the last reference to a channel ends the
// channel. Streams and coroutines that still refer to it then find a channel without calls, and the
// last of them frees it.
//
// Ownership     Objects that use a channel without a reference, or longer than their caller has a
//               reference.
// Threads       Any. The destructor may free the channel: do not call it inside a function of the
//               channel that continues afterwards.
#ifndef SLUICE_MIDDLEWARE_API_CHANNEL_KEEP_H_
#define SLUICE_MIDDLEWARE_API_CHANNEL_KEEP_H_

#include "middleware/api/channel.h"

namespace sluice::internal {

class ChannelKeep {
 public:
  // nullptr: keeps nothing. Another keep or a reference must exist during the call.
  explicit ChannelKeep(Channel* channel) : channel_(channel) {
    if (channel != nullptr) channel->keeps_.fetch_add(1, std::memory_order_relaxed);
  }
  ~ChannelKeep() {
    if (channel_ != nullptr) Drop(channel_);
  }
  ChannelKeep(const ChannelKeep&) = delete;
  ChannelKeep& operator=(const ChannelKeep&) = delete;

  Channel* get() const { return channel_; }
  Channel* operator->() const { return channel_; }

  static void Drop(Channel* channel) {
    if (channel->keeps_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete channel;
  }

 private:
  Channel* const channel_;
};

}  // namespace sluice::internal

#endif  // SLUICE_MIDDLEWARE_API_CHANNEL_KEEP_H_
