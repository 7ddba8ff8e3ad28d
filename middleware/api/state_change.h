// SPDX-License-Identifier: Apache-2.0
//
// StateChange: suspends a coroutine until the state of a channel's connection changes.
//
//   const sluice::ConnectionState now =
//       co_await sluice::StateChange(channel.get(), channel->connection_state(), absl::Seconds(5));
//
// Purpose       Channel::WaitForStateChange() for co_await. Gives the first state that differs from
//               `seen`; `seen` when the timeout has passed; kClosed when the channel ends.
// Ownership     The awaiting coroutine owns it, and awaits it once. A waiting coroutine may be
//               destroyed on the thread that it runs on.
// Threads       Any. The coroutine resumes as task.h describes.
#ifndef SLUICE_MIDDLEWARE_API_STATE_CHANGE_H_
#define SLUICE_MIDDLEWARE_API_STATE_CHANGE_H_

#include <coroutine>

#include "absl/time/time.h"
#include "middleware/api/channel.h"
#include "middleware/api/channel_keep.h"
#include "middleware/api/task.h"
#include "middleware/call/state_watch.h"

namespace sluice {

class [[nodiscard]] StateChange {
 public:
  StateChange(Channel* channel, ConnectionState seen, absl::Duration timeout);
  StateChange(const StateChange&) = delete;
  StateChange& operator=(const StateChange&) = delete;
  ~StateChange() {
    if (waits_) Forget();
  }

  bool await_ready() { return false; }
  template <typename Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) {
    resumption_.Set(handle);
    waits_ = true;
    // If Begin() returns true, another thread may have resumed the coroutine and destroyed *this.
    if (Begin()) return true;
    waits_ = false;
    return false;
  }
  ConnectionState await_resume() {
    waits_ = false;
    return watch_.now;
  }

 private:
  bool Begin();
  void Forget();

  const internal::ChannelKeep channel_;
  const absl::Duration timeout_;
  call::StateWatch watch_;
  Resumption resumption_;
  bool waits_ = false;  // the coroutine waits; used by its thread only
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_STATE_CHANGE_H_
