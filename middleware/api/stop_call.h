// SPDX-License-Identifier: Apache-2.0
//
// StopCall: while it lives, a stop that is requested through a token ends a call.
//
// Who owns it   Whoever started the call, until it has ended. May be destroyed in the call's callback.
// Which thread  The stop is requested on any, also while the channel ends on another.
#ifndef SLUICE_MIDDLEWARE_API_STOP_CALL_H_
#define SLUICE_MIDDLEWARE_API_STOP_CALL_H_

#include <optional>
#include <stop_token>

#include "middleware/api/channel.h"
#include "middleware/api/channel_keep.h"
#include "middleware/call/call_table.h"

namespace sluice::internal {

class StopCall {
 public:
  StopCall() = default;
  StopCall(const std::stop_token& token, Channel* channel, call::CallControl* control) {
    Set(token, channel, control);
  }
  StopCall(const StopCall&) = delete;
  StopCall& operator=(const StopCall&) = delete;

  // Before the call is started, so that no stop is missed.
  void Set(const std::stop_token& token, Channel* channel, call::CallControl* control) {
    if (token.stop_possible()) callback_.emplace(token, Request{channel, control});
  }

 private:
  struct Request {
    void operator()() const {
      uint64_t id = 0;
      if (!control->Cancel(&id)) return;
      // The cancelled call's callback may destroy this; its last reference may go on another thread.
      const ChannelKeep kept(channel);
      kept->Cancel(id);
    }
    Channel* channel;
    call::CallControl* control;
  };

  std::optional<std::stop_callback<Request>> callback_;
};

}  // namespace sluice::internal

#endif  // SLUICE_MIDDLEWARE_API_STOP_CALL_H_
