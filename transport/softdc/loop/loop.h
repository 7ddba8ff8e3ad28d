// SPDX-License-Identifier: Apache-2.0
//
// Loop: the one thread that softdc runs per process, the software counterpart of a NIC's firmware.
// It watches file descriptors and runs timers and tasks, and sleeps in epoll_wait, without ticks,
// when there is nothing to do.
//
// Threads       Every member may be called from any thread, also from inside a callback. Callbacks run on the loop's thread, one at a
//               time, with no lock held, and must not block.
//
// Life: started by the first Get(), never destroyed (it outlives static destructors on purpose).
// After fork() the child has no loop until it calls Get(), which then starts a fresh one; the
// descriptors that the parent's loop watched are replaced by an inert one in the child, so that a
// surviving child can't keep its parent's connections open.
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

  static constexpr size_t kMaxTasks = 1 << 16;   // waiting tasks; Run() returns false beyond
  static constexpr size_t kMaxTimers = 1 << 20;  // armed timers; After() returns 0 beyond

  // The loop of this process.
  static Loop& Get();

  // CLOCK_MONOTONIC.
  static int64_t NowNs();

  // Calls `callback` with what epoll reports about `fd` (level-triggered unless EPOLLET is asked
  // for). The caller keeps the descriptor open until Unwatch has returned. Returns 0 or errno:
  // EEXIST when it is watched already.
  int Watch(int fd, uint32_t epoll_events, FdCallback callback);

  // Changes what is watched for. Returns 0 or errno: ENOENT when it isn't watched.
  int Rewatch(int fd, uint32_t epoll_events);

  // After the return the callback neither runs nor will run; called on the loop it may be the one
  // that runs now. So never hold a lock that the callback takes, unless on the loop. No-op when the
  // descriptor isn't watched.
  void Unwatch(int fd);

  // As Unwatch, but never waits: a callback that has been picked already may still run once after
  // the return, so it must find out by itself that its descriptor is gone. May be called with locks
  // held that the callback takes.
  void Forget(int fd);

  // Runs `callback` once, not earlier than `delay_ns` from now. Never returns 0 as long as there is
  // room.
  uint64_t After(int64_t delay_ns, Task callback);

  // True: the timer will not run. False: it has run or is running right now. Never blocks.
  bool Cancel(uint64_t timer_id);

  // Runs `task` soon, in the order of the calls. False: kMaxTasks are waiting, and it was not
  // taken.
  bool Run(Task task);

  // Runs `task` and waits for its end; called on the loop it just runs it.
  void RunAndWait(const Task& task);

  bool OnLoop() const;

  // How often the thread has come back from sleep: an idle process must not move it.
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
  uint64_t next_id_ = 8;  // below are the loop's own descriptors
  uint64_t running_watch_id_ = 0;
  uint64_t wakeups_ = 0;
  int64_t armed_deadline_ns_ = 0;  // loop thread only; 0 is disarmed
  bool wake_pending_ = false;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_LOOP_LOOP_H_
