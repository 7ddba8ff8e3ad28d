// SPDX-License-Identifier: Apache-2.0
//
// Lease: the right to drive a channel. The thread that holds it uses the engine and the endpoint.
//
// Purpose       A hop between threads costs more than a call. So a thread that waits for its reply polls for it. The holder
//               drives for all threads: it starts calls that others have submitted, and ends calls that others wait for.
//
// The word          holder                            other threads
//   0               none                              background thread watches: looks every kWatchNs whether the
//                                                     lease was used; after a period without use it takes the lease
//   parked          none: the queues are armed        background thread sleeps on the endpoint's descriptor
//   held            spins, or is in a callback        background thread watches
//   held+asleep     sleeps on the endpoint's          a thread that submits calls Endpoint::Wake()
//                   descriptor, queues armed
//   held+parked     spins, or is in a callback        background thread sleeps; the release wakes it
//   +submitted      (with held) calls wait to be started by the holder, in submitted_
//   +waiters        (with held) threads wait for the lease or for their call's end, in waiters_
//
//   from          event                                     to
//   0, parked     a thread calls                            held (parked stays until the release)
//   held          a thread calls                            held+submitted+waiters; it waits on its own condition
//   held          nothing happened for spin_ns              held+asleep; woken by the descriptor
//   held          the holder's call has ended, no others    0  (one compare-and-swap: the fast path)
//   held+waiters  the holder's call has ended               held+waiters: the lease passes to the first waiter whose call was started
//   held+parked   the holder's call has ended               0, and the background thread is woken: it watches again
//   held          released while asynchronous calls run     0, and the background thread is told to take it now
//   0             a watch period without use                held (background): polls, then arms, then
//   held (bg)     nothing happened for spin_ns              parked. No thread has a timer now: an idle channel uses no CPU.
//   held (bg)     a thread submits or waits                 as any other holder: starts the call, passes the lease on
//   held          one holder for a whole watch period       held+parked: the background thread sleeps until it is woken
//
// In a loop of the application (Driving::kCaller) there is no background thread. The word stays held by the thread that polls: the
// last thread that called Poll(), before that the thread that created the lease. Its calls outside Poll() drive as above, and keep
// the lease. Calls of other threads are submitted, and start and end in Poll(). Callbacks run only on the polling thread.
//   held          PrepareToSleep() returns true             held+asleep, armed_: the descriptor becomes readable
//   held+asleep   another thread submits                    Endpoint::Wake(), as above
//   held+asleep   the loop's thread uses the engine         Endpoint::Wake() too: what was armed is no longer right
//   held+asleep   Poll()                                    held
//   held          EndLoop()                                 0: the next thread takes the lease itself
//
// Invariants, each the reason for a line of code:
//   - if not held, submitted_, cancellations_ and waiters_ are empty (changed under mutex_ only): a release looks there first;
//   - submitted and asleep are set by read-modify-writes of one word: either the sleeper sees the submission, or the
//     submitter sees the sleeper and wakes it;
//   - word 0 means that the background thread is in a timed wait, or about to be: the thread that clears parked wakes it.
//
// Engines       One (a channel by itself), or those of a call::ClientGroup (the channels of a Runtime). A Seat is one engine's
//               place: a call is started, cancelled or run at a seat. "The engine" above is all of them.
// Ownership     A channel or a Runtime. The lease outlives all threads in Run(), Cancel() and CancelAndWait().
// Threads       Any, at the same time. Callbacks of asynchronous calls run on the thread that drives, never with mutex_
//               held; they may start calls, but not make synchronous calls.
// End           A seat: Leave(). The lease: Stop(), then Hold() for the engine's end; by then no other thread may be in
//               Call(), Start() or Drive().
#ifndef SLUICE_MIDDLEWARE_API_LEASE_H_
#define SLUICE_MIDDLEWARE_API_LEASE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "middleware/api/fork_count.h"
#include "middleware/api/lease_seat.h"
#include "middleware/api/loop_descriptor.h"
#include "middleware/call/client_engine.h"
#include "middleware/call/client_group.h"
#include "transport/endpoint/endpoint.h"

namespace sluice {
namespace internal {
// Its address names the thread.
inline constinit thread_local char this_thread = 0;
}  // namespace internal

class Lease {
  struct Waiter;

 public:
  static constexpr int64_t kWatchNs = 5'000'000;
  static constexpr int64_t kForeverNs = INT64_MAX;

  // Both outlive the lease. Starts the background thread; with `loop` there is none: the user polls.
  Lease(call::Driven driven, endpoint::Endpoint* endpoint, int64_t spin_ns,
        std::unique_ptr<LoopDescriptor> loop = nullptr);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // Starts the call and waits for its end. `spec.done` and `spec.argument` are the lease's.
  absl::Status Call(Seat* seat, call::CallSpec* spec);

  // Starts the call; OK: its callback will run, here or on another thread. Waits at most until the
  // thread that drives looks up, one pass.
  absl::Status Start(Seat* seat, const call::CallSpec& spec);
  // The same, HeldByMe().
  absl::Status StartHeld(Seat* seat, const call::CallSpec& spec) {
    if (Refuses(seat)) [[unlikely]]
      return Refuse(seat, spec.method->full_name);
    Enter(seat);
    return seat->engine_->Start(spec);
  }

  // This process was forked from the one that made the lease. Calls fail here, and nothing else of the lease does anything;
  // it is not destroyed, nor is what it drives.
  bool InForkedChild() const {
    return internal::fork_count.load(std::memory_order_relaxed) != forks_;
  }
  // The error of what is asked for there.
  static absl::Status RefuseInChild(const Seat* seat, std::string_view operation);

  // Drives until `until` says so, asked after each pass, or the time is over; returns what `until`
  // says last. While another thread drives it waits for the lease first; false, and `until` is not asked, if it does not
  // get it in time: `until` is asked with the lease only.
  bool Drive(absl::FunctionRef<bool()> until, int64_t timeout_ns);

  // Something that one thread waits for, and whoever drives says.
  class Event {
   public:
    void Set();  // once, by the thread that drives

   private:
    friend class Lease;
    Waiter* waiter_ = nullptr;
  };
  // Runs `begin(&event)` with the lease, as Run() does. True: that was all. False: waits until the event is set, and
  // works for the channel meanwhile, if nobody else does. Not inside a callback.
  void Await(Seat* seat, absl::FunctionRef<bool(Event*)> begin);

  // Runs `work` with the lease, here or on the thread that drives; short, and no calls from it. False: nobody ran it within
  // `timeout_ns`, and nobody will.
  bool Run(Seat* seat, absl::FunctionRef<void()> work, int64_t timeout_ns = kForeverNs);
  // Runs `work` with the lease on this thread, and waits for the lease first; callbacks may run in it.
  void Hold(Seat* seat, absl::FunctionRef<void()> work);

  // Ends a call, from any thread and inside any callback: at once if nobody drives, else by the thread that does, in its
  // next pass. Nothing happens to one that has ended.
  void Cancel(Seat* seat, uint64_t call_id);
  // The same, and returns when it has ended: its callback has run, or runs on this thread's stack below.
  void CancelAndWait(Seat* seat, uint64_t call_id);
  // This thread drives: it is in a callback.
  bool HeldByMe() const {
    return holder_.load(std::memory_order_relaxed) == &internal::this_thread;
  }

  // This is the thread of the user's loop.
  bool PolledHere() const {
    return poller_.load(std::memory_order_relaxed) == &internal::this_thread;
  }

  // The user's own loop: channel.h says how. Without one: 0, false, -1.
  int Poll();
  bool PrepareToSleep();
  int fd() const { return loop_ == nullptr ? -1 : loop_->fd(); }
  // It polls no more: threads that wait for it do without. The thread that polls.
  void EndLoop();

  // With the lease, in Run(): no call of this seat is left. Nothing calls the engine for the seat afterwards unless a thread
  // runs something there. `closed`: the engine is closed, and its peers are gone.
  void Leave(Seat* seat, bool closed);
  // Inside a callback: `run(argument)` runs later without the lease, on the background thread; with the user's own loop, on
  // the loop's thread, before Poll() or another function of the lease returns. It may end what uses the lease.
  void RunLater(void (*run)(void*), void* argument);

  // Ends the background thread. Not inside a callback.
  void Stop();
  bool OnBackgroundThread() const {
    return background_is_.load(std::memory_order_relaxed) == &internal::this_thread;
  }
  // The background thread runs `last(argument)`, which may destroy the lease, as the last thing it does. Called inside a
  // callback. On another thread than the background thread, `last` waits until that thread has left the lease. False: there
  // is no background thread.
  bool EndInBackground(void (*last)(void*), void* argument);

 private:
  enum : uint32_t { kHeld = 1, kSubmitted = 2, kWaiters = 4, kAsleep = 8, kParked = 16 };
  class WaiterList {
   public:
    void PushBack(Waiter* waiter);
    void Remove(Waiter* waiter);
    Waiter* front() const { return first_; }

   private:
    Waiter* first_ = nullptr;
    Waiter* last_ = nullptr;
  };

  static void OnDone(void* argument, const absl::Status& status);

  struct Cancellation {
    Seat* seat;
    uint64_t call_id;
    bool* done;  // nullptr: nobody waits
  };

  struct Later {
    void (*run)(void*);
    void* argument;
  };

  // Nothing is started there: it belongs to another process, or its channel ends.
  static bool Refuses(const Seat* seat) {
    return internal::fork_count.load(std::memory_order_relaxed) != seat->forks_;
  }
  absl::Status Refuse(const Seat* seat, std::string_view operation) const;

  void Enter(const Seat* seat) {
    if (seat->member_ != nullptr) driven_.group()->Enter(seat->member_);
  }
  void RunTheseLater();
  bool CancelHere(Seat* seat, uint64_t call_id);
  void Submit(const Cancellation& cancellation, std::unique_lock<std::mutex>& lock);
  void RunCancellations(std::unique_lock<std::mutex>& lock);
  bool TryAcquire();
  // Who only looked has done nothing for the channel: that doesn't keep the background thread from taking over.
  enum class Use : uint8_t { kDriven, kLooked };
  void Release(Use use = Use::kDriven);
  void ReleaseSlow();
  // Gets the lease, or waits until somebody else has done what the waiter wants, or its time is
  // over. True: held.
  bool Acquire(Waiter* waiter, int64_t timeout_ns);
  void StartSubmitted();
  // Under mutex_, and starts without it: other threads may submit meanwhile.
  void StartSubmittedLocked(std::unique_lock<std::mutex>& lock);
  void Forget(Waiter* waiter);

  // With the lease: polls, and sleeps when there is nothing to do.
  void DriveHeld(absl::FunctionRef<bool()> until, int64_t timeout_ns);
  void Sleep(int64_t limit_ns);

  void Background();
  void DriveInBackground();
  bool Park();
  bool HoldOff();
  void Poke();
  bool WaitForPoke(int64_t timeout_ns, int extra_fd);

  const uint32_t forks_ = internal::CountForks();  // when it was made
  const call::Driven driven_;
  endpoint::Endpoint* const endpoint_;
  const int64_t spin_ns_;
  const int poke_fd_;                           // an eventfd that only the background thread reads
  const std::unique_ptr<LoopDescriptor> loop_;  // nullptr: no loop of the user's
  bool armed_ =
      false;  // these two are the loop's: PrepareToSleep() has said true since the last Poll(),
  bool touched_ = false;  // the engine was used since the last Poll()

  alignas(64) std::atomic<uint32_t> word_{0};
  std::atomic<const void*> holder_{nullptr};  // names a thread; for HeldByMe()
  std::atomic<const void*> poller_{
      nullptr};                    // names the thread of the user's loop; nullptr: there is none
  std::atomic<uint64_t> uses_{0};  // releases of those who drove; written by the holder

  alignas(64) std::atomic<bool> drive_now_{false};  // there are calls that nobody waits for
  std::atomic<bool> stopping_{false};
  std::atomic<bool> later_due_{false};
  std::atomic<const void*> background_is_{nullptr};  // names the background thread
  void (*last_)(void*) = nullptr;                    // these two are the background thread's
  void* last_argument_ = nullptr;

  std::mutex mutex_;
  WaiterList waiters_;           // mutex_
  Waiter* submitted_ = nullptr;  // mutex_; first in, first out
  Waiter* last_submitted_ = nullptr;
  std::vector<Cancellation> cancellations_;  // mutex_; with kSubmitted, like submitted_
  std::condition_variable cancelled_;
  std::vector<Later> later_;  // mutex_

  std::thread background_;  // last: it uses everything above
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_LEASE_H_
