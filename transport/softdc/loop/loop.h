// SPDX-License-Identifier: Apache-2.0
//
// Loop: the one thread that softdc runs per process, the software counterpart of a NIC's firmware. It watches
// file descriptors and runs timers and tasks. If there is nothing to do, it sleeps in epoll_wait without
// periodic wake-ups.
//
// Threads       Any, also from inside a callback. Callbacks run on the loop's thread, one at a time, with no
//               lock held, and must not block.
//
// Life: started by the first Get(), never destroyed, so that it outlives static destructors. After fork() the
// child has no loop until it calls Get(), which then starts a new loop. In the child, an inert descriptor
// replaces each descriptor that the parent's loop watched. A surviving child can therefore not keep
// connections of its parent open.
#ifndef SLUICE_TRANSPORT_SOFTDC_LOOP_LOOP_H_
#define SLUICE_TRANSPORT_SOFTDC_LOOP_LOOP_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "transport/softdc/loop/unique_fd.h"

namespace sluice::softdc {

class Loop {
 public:
  using FdCallback = std::function<void(uint32_t epoll_events)>;
  using Task = std::function<void()>;

  static constexpr size_t kMaxTasks = 1 << 16;   // waiting tasks; at the limit Run() returns false
  static constexpr size_t kMaxTimers = 1 << 20;  // armed timers; at the limit After() returns 0

  // Returns the loop of this process, and starts it at the first call.
  static Loop& Get();

  // CLOCK_MONOTONIC.
  static int64_t NowNs();

  // Calls `callback` with the epoll events of `fd` (level-triggered unless `epoll_events` has EPOLLET). The
  // caller keeps the descriptor open until Unwatch has returned. Returns 0 or an errno: EEXIST if the
  // descriptor is already watched.
  int Watch(int fd, uint32_t epoll_events, FdCallback callback);

  // Changes the watched events. Returns 0 or an errno: ENOENT if the descriptor is not watched.
  int Rewatch(int fd, uint32_t epoll_events);

  // Stops watching. After the return the callback neither runs nor will run, except that a call on the loop
  // may come from the callback itself. Waits for a running callback, so do not hold a lock that the callback
  // takes, unless on the loop. Does nothing if the descriptor is not watched.
  void Unwatch(int fd);

  // As Unwatch, but never waits. A callback that is already selected may still run once after the return, so
  // it must detect that its descriptor is gone. The caller may hold locks that the callback takes.
  void Forget(int fd);

  // Runs `callback` once, not earlier than `delay_ns` from now. Returns the id of the timer, or 0 if
  // kMaxTimers are armed.
  uint64_t After(int64_t delay_ns, Task callback);

  // Returns true if the timer will not run. Returns false if it has run, is running, or was cancelled before.
  // Never blocks.
  bool Cancel(uint64_t timer_id);

  // Runs `task` soon, in the order of the calls. Returns false, without taking the task, if kMaxTasks are
  // waiting.
  bool Run(Task task);

  // Runs `task` and blocks until it has ended. On the loop, runs it directly.
  void RunAndWait(const Task& task);

  bool OnLoop() const;

  // Returns the number of times that the thread woke up. Must not change in an idle process.
  uint64_t wakeups() const;

 private:
  struct Watcher {
    int fd;
    FdCallback callback;
  };

  Loop();
  static void AtForkPrepare();
  static void AtForkParent();
  static void AtForkChild();

  void Start();
  void ThreadMain();
  void Wake();
  void ArmTimerFd(int64_t deadline_ns);
  void RunDueTimers();
  void RunTasks();
  std::shared_ptr<Watcher> Remove(int fd, uint64_t* watch_id);  // under mutex_
  void Dispatch(uint64_t watch_id, uint32_t epoll_events);

  UniqueFd epoll_fd_;
  UniqueFd wake_fd_;
  UniqueFd timer_fd_;
  std::thread::id thread_id_;

  mutable std::mutex mutex_;
  std::condition_variable callback_done_;
  std::unordered_map<uint64_t, std::shared_ptr<Watcher>> watchers_;
  std::unordered_map<int, uint64_t> watch_id_by_fd_;
  std::map<std::pair<int64_t, uint64_t>, Task> timers_;  // (deadline, id)
  std::unordered_map<uint64_t, int64_t> timer_deadline_by_id_;
  std::deque<Task> tasks_;
  uint64_t next_id_ = 8;  // lower ids are for the loop's own descriptors
  uint64_t running_watch_id_ = 0;
  uint64_t wakeups_ = 0;
  int64_t armed_deadline_ns_ = 0;  // loop thread only; 0 is disarmed
  bool wake_pending_ = false;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_LOOP_LOOP_H_
