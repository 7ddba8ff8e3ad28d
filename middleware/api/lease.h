// SPDX-License-Identifier: Apache-2.0
//
// Lease: the right to drive a channel. The thread that holds the lease uses the engine and the endpoint.
//
// Purpose       A switch between threads costs more than a call. Therefore a thread that waits for a reply polls for it. The holder
//               drives for all threads: it starts calls that other threads have submitted, and completes calls that other
//               threads wait for.
//
// The word          holder                            other threads
//   0               none                              the background thread wakes every kWatchNs; if no thread used the
//                                                     lease in that period, it takes the lease ("it watches")
//   parked          none: the queues are armed        the background thread sleeps on the endpoint's descriptor
//   held            polls, or runs a callback         the background thread watches
//   held+asleep     sleeps on the endpoint's          a thread that submits work calls Endpoint::Wake()
//                   descriptor; queues are armed
//   held+parked     polls, or runs a callback         the background thread sleeps; the release wakes it
//   +submitted      one of the four lists has work for the holder, or the holder starts a list. Not held: calls that were handed over,
//                   or could not be started, wait for the background thread, which was poked
//   +waiters        (with held) waiters_ has threads that wait for the lease or for the end of their call
//
//   from          event                                     to
//   0, parked     a thread calls                            held (parked stays set until the release)
//   held          a thread calls                            held+submitted+waiters; the thread spins for spin_ns, then sleeps
//   held          a thread starts an asynchronous call      held+submitted; the thread hands the call over and continues
//   held          a thread opens a stream                   held+submitted+waiters; the thread waits until the call was started
//   held          no event for spin_ns                      held+asleep; the descriptor wakes the holder
//   held          the holder's call ended, no other calls   0  (one compare-and-swap: the fast path)
//   held+waiters  the holder's call has ended               held+waiters: the lease passes to the first waiter whose call was started
//   held+parked   the holder's call has ended               0; the release wakes the background thread, which watches again
//   held          released while asynchronous calls run     0; the release wakes the background thread to take the lease now
//   held          released while threads hand calls over    submitted; as the line above
//   submitted     a thread takes the lease                  held+submitted; it starts what was handed over first
//   0             a watch period without use                held (background): the thread polls, then arms the queues, then
//   held (bg)     no event for spin_ns                      parked. No thread has a timer now: an idle channel uses no CPU.
//   held (bg)     a thread submits or waits                 as any other holder: starts the call, passes the lease on
//   held          one holder for a whole watch period       held+parked: the background thread sleeps until the release
//
// With a loop of the application (Driving::kCaller) there is no background thread. The polling thread always holds the lease: the
// thread that called Poll() last, or before the first Poll() the thread that created the lease. Its calls outside Poll() drive as
// above, and keep the lease. Other threads submit their calls, which start and end in Poll(). Callbacks run only on the polling
// thread.
//   held          PrepareToSleep() returns true             held+asleep, armed_: events make the descriptor readable
//   held+asleep   another thread submits                    Endpoint::Wake(), as above
//   held+asleep   the loop's thread uses the engine         Endpoint::Wake() too: the armed state is out of date
//   held+asleep   Poll()                                    held
//   held          EndLoop()                                 0: the next thread takes the lease itself
//
// Invariants. Each is the reason for a line of code:
//   - If the word is not held, submitted_, cancellations_ and waiters_ are empty. They change under mutex_ only. Therefore a
//     release checks them first.
//   - If the word is not held and handed_over_ or unstarted_ is not empty, drive_now_ is set and the background thread is poked. If
//     there is none, a release leaves neither.
//   - Calls of one thread start in its order. Therefore handed_over_ and submitted_ are taken in one step, and a new holder starts
//     what was handed over before it does anything else.
//   - A callback does not run inside the start of another call because of a hand-over. Therefore calls that could not be started
//     wait in unstarted_ for a thread that drives.
//   - When CancelAndWait() returns, the callback of the call is not running, and will not run. Callbacks run with the lease. Therefore
//     a thread with the lease looks for the call: first in handed_over_ and unstarted_, then in the engine. Calls leave the two lists
//     one at a time: a callback may destroy the owner of a later call. Leave() ends the calls of the lists before it ends the waits.
//   - Read-modify-write operations set submitted and asleep in one word. Either the holder sees the submission before it sleeps,
//     or the submitting thread sees that the holder sleeps, and wakes it.
//   - If the word is 0 or submitted, the background thread is in a timed wait, or about to enter it. Therefore the thread that clears
//     parked wakes the background thread.
//
// Engines       One engine (a channel without a Runtime), or the engines of a call::ClientGroup (the channels of a Runtime). A Seat
//               names the engine at which a call is started or cancelled, or work is run. "The engine" above is all engines.
// Ownership     A channel or a Runtime. The lease outlives all threads in Run(), Cancel() and CancelAndWait().
// Threads       Any, at the same time. Callbacks of asynchronous calls run on the thread that drives, never with mutex_
//               held; they may start calls, but not make synchronous calls.
// End           A seat: Leave(). The lease: Stop(), then Hold() to close the engine. No other thread may be in Call(), Start()
//               or Drive() by then.
#ifndef SLUICE_MIDDLEWARE_API_LEASE_H_
#define SLUICE_MIDDLEWARE_API_LEASE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
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
// The address of this variable identifies the thread.
inline constinit thread_local char this_thread = 0;
}  // namespace internal

class Lease {
  struct Waiter;

 public:
  static constexpr int64_t kWatchNs = 5'000'000;
  static constexpr int64_t kForeverNs = INT64_MAX;

  // Engine or group, and `endpoint`, outlive the lease. Starts the background thread. With `loop` there is no background thread: the
  // user polls.
  Lease(call::Driven driven, endpoint::Endpoint* endpoint, int64_t spin_ns,
        std::unique_ptr<LoopDescriptor> loop = nullptr);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // Makes a call: starts it, and blocks until it has ended. Sets `spec->done` and `spec->argument`. FAILED_PRECONDITION: inside a
  // callback.
  absl::Status Call(Seat* seat, call::CallSpec* spec);

  // Starts an asynchronous call. OK: its callback will run, on this or another thread. If another thread drives, hands the call over
  // to that thread, and does not wait. If that thread cannot start the call, the callback gets the error. A stream waits for at most
  // one pass of that thread. So does a call if kMaxHandedOver calls have neither started nor failed, or the engine may have no place for it.
  absl::Status Start(Seat* seat, const call::CallSpec& spec);
  // As Start(). Call only if HeldByMe().
  absl::Status StartHeld(Seat* seat, const call::CallSpec& spec) {
    if (Refuses(seat)) [[unlikely]]
      return Refuse(seat, spec.method->full_name);
    Enter(seat);
    return seat->engine_->Start(spec);
  }

  // Returns whether this process was forked after the lease was created. In the child, calls fail, and other operations have no
  // effect. The child destroys neither the lease nor its engines and endpoint.
  bool InForkedChild() const {
    return internal::fork_count.load(std::memory_order_relaxed) != forks_;
  }
  // Returns the error of an operation in such a child.
  static absl::Status RefuseInChild(const Seat* seat, std::string_view operation);

  // Drives until `until` returns true or `timeout_ns` has passed. Evaluates `until` first and after each pass, with the lease;
  // returns its last result. If another thread drives, waits for the lease. If it does not get the lease in time, returns false, and
  // does not evaluate `until`.
  bool Drive(absl::FunctionRef<bool()> until, int64_t timeout_ns);

  // Event that one thread waits for in Await(). The thread that drives sets it.
  class Event {
   public:
    void Set();  // once, by the thread that drives

   private:
    friend class Lease;
    Waiter* waiter_ = nullptr;
  };
  // Runs `begin(&event)` with the lease, as Run() does. If `begin` returns true, returns. Otherwise blocks until the event is set,
  // and drives meanwhile if no other thread does. Do not call inside a callback.
  void Await(Seat* seat, absl::FunctionRef<bool(Event*)> begin);

  // Runs `work` with the lease, on this thread or on the thread that drives, and waits for its end. `work` must be short, and must
  // not make calls. Returns false if no thread ran `work` within `timeout_ns`; then no thread will run it.
  bool Run(Seat* seat, absl::FunctionRef<void()> work, int64_t timeout_ns = kForeverNs);
  // Waits for the lease, and runs `work` on this thread. Callbacks may run inside `work`.
  void Hold(Seat* seat, absl::FunctionRef<void()> work);

  // Cancels a call. Any thread, callbacks included. If no other thread drives, the call ends at once. Otherwise the thread that
  // drives ends it in its next pass. No effect if the call has ended.
  void Cancel(Seat* seat, uint64_t call_id);
  // The same for the call with this control, which may not have started yet. Blocks until the callback of the call has run. Does not
  // wait if it is called inside that callback. Do not call inside the start of a call. Do not use the control for another call.
  void CancelAndWait(Seat* seat, call::CallControl* control);
  // Returns whether this thread drives, that is, whether it is inside a callback.
  bool HeldByMe() const {
    return holder_.load(std::memory_order_relaxed) == &internal::this_thread;
  }

  // Returns whether this thread is the thread of the user's loop.
  bool PolledHere() const {
    return poller_.load(std::memory_order_relaxed) == &internal::this_thread;
  }

  // For the user's own loop, as in channel.h. Without a loop the results are 0, false and -1.
  int Poll();
  bool PrepareToSleep();
  int fd() const { return loop_ == nullptr ? -1 : loop_->fd(); }
  // Ends the loop: from now on, threads that wait for the lease take it themselves. Call on the thread that polls.
  void EndLoop();

  // Removes a seat that has no calls. Call with the lease, in Run(). Afterwards the lease calls the engine for this seat only if a
  // thread runs work at the seat. `closed`: the engine is closed, and has no peers.
  void Leave(Seat* seat, bool closed);
  // Runs `run(argument)` later, without the lease, on the background thread. With the user's own loop, it runs on the loop's
  // thread, before Poll() or another function of the lease returns. `run` may end channels that use the lease. Call inside a
  // callback.
  void RunLater(void (*run)(void*), void* argument);

  // Ends the background thread, and waits for its end. Do not call inside a callback.
  void Stop();
  bool OnBackgroundThread() const {
    return background_is_.load(std::memory_order_relaxed) == &internal::this_thread;
  }
  // Ends the background thread, which runs `last(argument)` as its last action. `last` may destroy the lease. Call inside a
  // callback. If the callback runs on another thread, `last` must wait until that thread has released the lease. Returns false if
  // there is no background thread.
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
    call::CallControl* control;  // if a thread waits: its call, instead of call_id
    bool* done;                  // nullptr: no thread waits
  };

  struct HandedOver {
    Seat* seat;
    call::CallSpec spec;
    call::Callback callback;  // if spec.done is nullptr
    absl::Status why;         // if it could not be started
  };
  static constexpr size_t kMaxHandedOver = 1024;  // further calls wait for the thread that drives

  struct Later {
    void (*run)(void*);
    void* argument;
  };

  // Returns whether new calls at the seat fail, because it belongs to another process or its channel ends.
  static bool Refuses(const Seat* seat) {
    return internal::fork_count.load(std::memory_order_relaxed) != seat->forks_;
  }
  absl::Status Refuse(const Seat* seat, std::string_view operation) const;

  void Enter(const Seat* seat) {
    if (seat->member_ != nullptr) driven_.group()->Enter(seat->member_);
  }
  void RunTheseLater();
  bool CancelHere(const Cancellation& cancellation);
  void CancelHeld(const Cancellation& cancellation, bool catch_up);
  void Submit(const Cancellation& cancellation, std::unique_lock<std::mutex>& lock);
  void RunCancellations(std::unique_lock<std::mutex>& lock);
  bool TryAcquire();
  // kLooked: the holder only ran short work. This does not count as use of the lease, so the background thread may take over.
  enum class Use : uint8_t { kDriven, kLooked };
  void Release(Use use = Use::kDriven);
  void ReleaseSlow();
  // Takes the lease, or waits until another thread has done the work of `waiter` or `timeout_ns` has
  // passed. Returns whether this thread holds the lease.
  bool Acquire(Waiter* waiter, int64_t timeout_ns);
  bool SpinUntilOver(Waiter* waiter, int64_t limit_ns, std::unique_lock<std::mutex>& lock);
  enum class Handed : uint8_t { kTaken, kNotHeld, kNoPlace };
  Handed HandOver(Seat* seat, const call::CallSpec& spec);
  bool CatchUp();
  void StartHandedOver(std::unique_lock<std::mutex>& lock);
  absl::Status StartOne(const HandedOver& one, int64_t now_ns) const;
  static void EndUnstarted(HandedOver* one);
  void EndUnstarted(std::unique_lock<std::mutex>& lock);
  void EndUnstartedOf(Seat* seat, std::unique_lock<std::mutex>& lock);
  std::optional<HandedOver> TakeFirst(absl::FunctionRef<bool(const HandedOver&)> is_it);
  void ClearSubmitted();
  bool MustStartBeforeRelease(bool again) const;
  // Call with mutex_ locked.
  bool HasBackground() const { return loop_ == nullptr && !background_ended_; }
  void StartSubmitted();
  // Call with mutex_ locked. Unlocks it while it starts calls, so that other threads can submit.
  void StartSubmittedLocked(std::unique_lock<std::mutex>& lock);
  void Forget(Waiter* waiter);

  // Call with the lease. Polls, and sleeps while there is nothing to do.
  void DriveHeld(absl::FunctionRef<bool()> until, int64_t timeout_ns);
  void Sleep(int64_t limit_ns);

  void Background();
  void DriveInBackground();
  bool Park();
  bool HoldOff();
  void Poke();
  bool WaitForPoke(int64_t timeout_ns, int extra_fd);

  const uint32_t forks_ = internal::CountForks();  // at the creation of the lease
  const call::Driven driven_;
  endpoint::Endpoint* const endpoint_;
  const int64_t spin_ns_;
  const int poke_fd_;                           // eventfd that only the background thread reads
  const std::unique_ptr<LoopDescriptor> loop_;  // nullptr: no loop of the user
  // These two are used by the loop's thread only.
  bool armed_ = false;    // PrepareToSleep() has armed the queues since the last Poll()
  bool touched_ = false;  // the engine was used since the last Poll()

  alignas(64) std::atomic<uint32_t> word_{0};
  std::atomic<const void*> holder_{nullptr};  // identifies the holder; for HeldByMe()
  std::atomic<const void*> poller_{nullptr};  // identifies the thread of the user's loop
  std::atomic<uint64_t> uses_{0};  // number of releases with kDriven; written by the holder

  alignas(64) std::atomic<bool> drive_now_{false};  // calls are in flight that no thread waits for
  std::atomic<bool> stopping_{false};
  std::atomic<bool> later_due_{false};
  std::atomic<const void*> background_is_{nullptr};  // identifies the background thread
  void (*last_)(void*) = nullptr;                    // of EndInBackground(); nullptr: not called
  void* last_argument_ = nullptr;

  std::mutex mutex_;
  WaiterList waiters_;           // mutex_
  Waiter* submitted_ = nullptr;  // mutex_; first in, first out
  Waiter* last_submitted_ = nullptr;
  // kSubmitted announces the entries of these, as those of submitted_.
  std::vector<Cancellation> cancellations_;  // mutex_
  std::vector<HandedOver> handed_over_;      // mutex_
  std::deque<HandedOver> unstarted_;         // mutex_; their callbacks get the error
  std::vector<HandedOver> starting_;         // the batch that the holder starts; used by the holder
  size_t starting_count_ = 0;                // mutex_; size of that batch
  bool background_ended_ = false;            // mutex_
  std::condition_variable cancelled_;
  std::vector<Later> later_;  // mutex_

  std::thread background_;  // last member: the thread uses all members above
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_LEASE_H_
