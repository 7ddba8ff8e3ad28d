// SPDX-License-Identifier: Apache-2.0
//
// Deadlines: the deadlines of calls that mostly have the same timeout.
//
// Purpose       A queue in the order of deadlines, with one timer, which is never later than the first deadline. A deadline that is not
//               before the last one is appended to the queue; any other deadline gets its own timer. The timer stays armed when a
//               deadline is removed, so a call that ends in time costs no timer operation.
// Ownership     CallTable. A Deadline is a member of its owner's object. It must be removed, or have expired, before that object ends.
// Threads       The polling thread.
// Limits        The number of Deadline objects. It allocates nothing.
// Precision     As TimerWheel.
#ifndef SLUICE_MIDDLEWARE_CALL_DEADLINES_H_
#define SLUICE_MIDDLEWARE_CALL_DEADLINES_H_

#include <cstdint>

#include "transport/base/timer_wheel.h"

namespace sluice::call {

class Deadlines;

struct Deadline {
  Deadline* sooner = nullptr;  // links of the queue; later == nullptr: not in the queue
  Deadline* later = nullptr;
  int64_t deadline_ns = 0;
  base::Timer timer;  // used if the deadline is not in the queue
  Deadlines* owner = nullptr;
};

class Deadlines {
 public:
  // `on_due`: called inside TimerWheel::Advance() for each deadline that has passed, after its removal. It may add and remove deadlines.
  // `now_ns`: time that Advance() is called with.
  Deadlines(base::TimerWheel* wheel, const int64_t* now_ns,
            void (*on_due)(void* context, Deadline* due), void* context)
      : wheel_(wheel), now_ns_(now_ns), on_due_(on_due), context_(context) {
    queue_.sooner = queue_.later = &queue_;
    queue_.deadline_ns = INT64_MIN;
    timer_.fire = &Deadlines::OnTimer;
    timer_.context = this;
  }
  ~Deadlines() { wheel_->Cancel(&timer_); }
  Deadlines(const Deadlines&) = delete;
  Deadlines& operator=(const Deadlines&) = delete;

  // Adds a deadline, which is due at `deadline->deadline_ns`. It must not be added twice.
  void Add(Deadline* deadline) {
    Deadline* const last = queue_.sooner;
    if (deadline->deadline_ns < last->deadline_ns) [[unlikely]]
      return AddAlone(deadline);
    deadline->sooner = last;
    deadline->later = &queue_;
    last->later = queue_.sooner = deadline;
    if (deadline->deadline_ns < due_ns_) [[unlikely]]
      Arm();
  }
  // Removes a deadline. No effect if it was not added.
  void Remove(Deadline* deadline) {
    if (deadline->later == nullptr) return wheel_->Cancel(&deadline->timer);
    Unlink(deadline);
  }
  // Arms the timer exactly for the first deadline. Call before a sleep.
  void Settle() {
    if (queue_.later == &queue_ ? timer_.armed() : queue_.later->deadline_ns != due_ns_) Arm();
  }

 private:
  static void Unlink(Deadline* deadline) {
    deadline->sooner->later = deadline->later;
    deadline->later->sooner = deadline->sooner;
    deadline->later = nullptr;
  }
  static void OnTimer(base::Timer* timer, void* context);
  static void OnTimerAlone(base::Timer* timer, void* context);
  void AddAlone(Deadline* deadline);
  // Arms the timer for the first deadline in the queue; cancels it if the queue is empty.
  void Arm();

  base::TimerWheel* const wheel_;
  const int64_t* const now_ns_;
  void (*const on_due_)(void* context, Deadline* due);
  void* const context_;
  Deadline queue_;              // its sentinel: `later` is the first, `sooner` the last
  int64_t due_ns_ = INT64_MAX;  // when timer_ fires; INT64_MAX: not armed
  base::Timer timer_;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_DEADLINES_H_
