// SPDX-License-Identifier: Apache-2.0
//
// StopCall: ends a call when a stop is requested through a token.
//
// Ownership     The object that started the call owns it, until the call has ended. May be
//               destroyed in the call's callback.
// Threads       Any thread may request the stop, also while another thread ends the channel.
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

  // Call before the call starts, so that no stop is missed.
  void Set(const std::stop_token& token, Channel* channel, call::CallControl* control) {
    if (token.stop_possible()) callback_.emplace(token, Request{channel, control});
  }

 private:
  struct Request {
    void operator()() const {
      uint64_t id = 0;
      if (!control->Cancel(&id)) return;
      // The callback of the cancelled call may destroy *this; another thread may destroy the last
      // reference.
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
