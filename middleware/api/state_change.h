// SPDX-License-Identifier: Apache-2.0
//
// StateChange: waits in a coroutine until the state of a channel's connection changes.
//
//   const sluice::ConnectionState now =
//       co_await sluice::StateChange(channel.get(), channel->connection_state(), absl::Seconds(5));
//
// What it is    The form of Channel::WaitForStateChange() for co_await. Gives the first state that is another one than `seen`;
//               `seen` if the timeout is over; kClosed if the channel ends.
// Who owns it   The coroutine that awaits it, once. The coroutine may be destroyed while it waits, on the thread it runs on.
// Which thread  Any. The coroutine goes on as task.h says.
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
    // When it waits it may have been told, and be gone, before this returns.
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
  bool waits_ = false;  // the coroutine's: it has not gone on
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_STATE_CHANGE_H_
