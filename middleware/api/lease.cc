// SPDX-License-Identifier: Apache-2.0
//
// Over 400 lines: taking, waiting for, driving under and giving up the lease are one protocol over one word, and are
// only right when read together.
#include "middleware/api/lease.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/api/own_copy.h"
#include "transport/base/error.h"

namespace sluice {
namespace {

// The engine reads the clock once in this many passes that find nothing.
constexpr uint32_t kIdlePassesPerLook = 16;

// A reply that takes this long may wait for the very CPU that polls for it: from then on it is offered. Costs nothing
// where every thread has a CPU of its own; where not, a call costs two switches instead of two spins.
constexpr int64_t kYieldAfterNs = 4'000;

// Its address names the thread.
thread_local char this_thread;

int64_t Least(int64_t a, int64_t b) {  // -1: no limit
  if (a < 0) return b;
  if (b < 0) return a;
  return std::min(a, b);
}

// man ppoll; an interruption counts as a wake-up.
void WaitReadable(pollfd* fds, nfds_t count, int64_t timeout_ns) {
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000);
  limit.tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000);
  ppoll(fds, count, timeout_ns < 0 ? nullptr : &limit, nullptr);
}

}  // namespace

// On the stack of the thread that waits. Fields without a note belong to mutex_.
struct Lease::Waiter {
  Lease* lease = nullptr;
  const call::CallSpec* spec = nullptr;             // to start
  bool asynchronous = false;                        // wants no more than a start
  const absl::FunctionRef<void()>* work = nullptr;  // to run; with none of them it wants the lease
  const absl::FunctionRef<bool(Event*)>* begin = nullptr;  // to run; false: it waits for the event
  Event event;

  // The holder's while `queued` is false: then the waiter is the holder.
  bool done = false;
  absl::Status status;

  bool queued = false;  // read by the holder too: it changes only in the hand-over of the lease
  bool started = false;
  bool granted = false;
  Waiter* next = nullptr;  // in waiters_
  Waiter* previous = nullptr;
  Waiter* next_submitted = nullptr;
  std::optional<std::condition_variable> changed;

  void End(const absl::Status& how);
};

void Lease::WaiterList::PushBack(Waiter* waiter) {
  waiter->next = nullptr;
  waiter->previous = last_;
  (last_ == nullptr ? first_ : last_->next) = waiter;
  last_ = waiter;
}

void Lease::WaiterList::Remove(Waiter* waiter) {
  (waiter->previous == nullptr ? first_ : waiter->previous->next) = waiter->next;
  (waiter->next == nullptr ? last_ : waiter->next->previous) = waiter->previous;
}

Lease::Lease(call::ClientEngine* engine, endpoint::Endpoint* endpoint, int64_t spin_ns)
    : engine_(engine),
      endpoint_(endpoint),
      spin_ns_(spin_ns),
      poke_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (poke_fd_ < 0) abort();  // out of descriptors: nothing here can go on
  background_ = std::thread([this] { Background(); });
}

Lease::~Lease() {
  Stop();
  close(poke_fd_);
}

void Lease::Stop() {
  if (!background_.joinable()) return;
  stopping_.store(true);
  Poke();
  background_.join();
}

// ---- Getting and giving up the lease

bool Lease::HeldByMe() const { return holder_.load(std::memory_order_relaxed) == &this_thread; }

bool Lease::TryAcquire() {
  uint32_t seen = word_.load(std::memory_order_relaxed);
  while (!(seen & kHeld)) {
    if (word_.compare_exchange_weak(seen, seen | kHeld, std::memory_order_acquire,
                                    std::memory_order_relaxed)) {
      holder_.store(&this_thread, std::memory_order_relaxed);
      return true;
    }
  }
  return false;
}

void Lease::Release() {
  uses_.store(uses_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  holder_.store(nullptr, std::memory_order_relaxed);
  if (engine_->outstanding() == 0) {
    uint32_t expected = kHeld;
    if (word_.compare_exchange_strong(expected, 0, std::memory_order_release,
                                      std::memory_order_relaxed)) {
      return;
    }
  }
  ReleaseSlow();
}

void Lease::ReleaseSlow() {
  bool poke = false;
  {
    std::unique_lock lock(mutex_);
    while (submitted_ != nullptr || !cancellations_.empty()) {
      StartSubmittedLocked();
      holder_.store(&this_thread, std::memory_order_relaxed);  // callbacks run here
      RunCancellations(lock);
      holder_.store(nullptr, std::memory_order_relaxed);
    }
    if (Waiter* next = waiters_.front(); next != nullptr) {
      Forget(next);
      next->granted = true;
      next->changed->notify_one();
      return;
    }
    const bool unfinished = engine_->outstanding() != 0;
    drive_now_.store(unfinished);
    const uint32_t before = word_.fetch_and(~uint32_t{kHeld | kParked});
    poke = unfinished || (before & kParked);
  }
  if (poke) Poke();
}

bool Lease::Acquire(Waiter* waiter, int64_t timeout_ns) {
  using Clock = std::chrono::steady_clock;
  if (TryAcquire()) return true;
  const bool timed = timeout_ns < kForeverNs / 2;
  const auto give_up = Clock::now() + std::chrono::nanoseconds(timed ? timeout_ns : 0);

  std::unique_lock lock(mutex_);
  const bool submits =
      waiter->spec != nullptr || waiter->work != nullptr || waiter->begin != nullptr;
  const uint32_t bits = submits ? uint32_t{kWaiters | kSubmitted} : uint32_t{kWaiters};
  uint32_t seen = word_.load();
  for (;;) {
    if (!(seen & kHeld)) {
      lock.unlock();
      if (TryAcquire()) return true;
      lock.lock();
      seen = word_.load();
    } else if (word_.compare_exchange_weak(seen, seen | bits)) {
      break;
    }
  }
  waiter->changed.emplace();
  waiter->queued = true;
  waiters_.PushBack(waiter);
  if (submits) {
    (submitted_ == nullptr ? submitted_ : last_submitted_->next_submitted) = waiter;
    last_submitted_ = waiter;
    if (seen & kAsleep) endpoint_->Wake();
  }
  while (!waiter->done && !waiter->granted) {
    // A call that has been started ends by its deadline; the holder sees to that.
    if (!timed || waiter->started) {
      waiter->changed->wait(lock);
    } else if (waiter->changed->wait_until(lock, give_up) == std::cv_status::timeout &&
               !waiter->done && !waiter->granted && !waiter->started) {
      if (submits) {  // out of the queue of submissions
        Waiter** link = &submitted_;
        Waiter* before = nullptr;
        for (; *link != waiter; link = &before->next_submitted) before = *link;
        *link = waiter->next_submitted;
        if (last_submitted_ == waiter) last_submitted_ = before;
        if (submitted_ == nullptr && cancellations_.empty()) {
          word_.fetch_and(~uint32_t{kSubmitted});
        }
      }
      Forget(waiter);
      return false;
    }
  }
  if (waiter->granted) holder_.store(&this_thread, std::memory_order_relaxed);
  return waiter->granted;
}

// Under mutex_. It is not waited for any more.
void Lease::Forget(Waiter* waiter) {
  waiters_.Remove(waiter);
  waiter->queued = false;
  if (waiters_.front() == nullptr) word_.fetch_and(~uint32_t{kWaiters});
}

void Lease::StartSubmitted() {
  std::unique_lock lock(mutex_);
  StartSubmittedLocked();
  RunCancellations(lock);
}

void Lease::StartSubmittedLocked() {
  if (submitted_ == nullptr && cancellations_.empty()) return;
  while (submitted_ != nullptr) {
    Waiter* waiter = submitted_;
    submitted_ = waiter->next_submitted;
    waiter->started = true;
    bool waits = false;
    if (waiter->work != nullptr) {
      (*waiter->work)();
    } else if (waiter->begin != nullptr) {
      waits = !(*waiter->begin)(&waiter->event);
    } else {
      waiter->status = engine_->Start(*waiter->spec);
      waits = !waiter->asynchronous && waiter->status.ok();
    }
    if (!waits) {
      Forget(waiter);
      waiter->done = true;
    }
    waiter->changed
        ->notify_one();  // a call that has been started waits without a limit from now on
  }
  last_submitted_ = nullptr;
  word_.fetch_and(~uint32_t{kSubmitted});
  engine_->Flush();
}

// ---- Cancelling

bool Lease::CancelHere(uint64_t call_id) {
  if (HeldByMe()) {
    engine_->Cancel(call_id);
    return true;
  }
  if (!TryAcquire()) return false;
  engine_->Cancel(call_id);
  engine_->Flush();
  Release();
  return true;
}

// Marks the word first: whoever holds the lease then looks at the list before it gives it up.
void Lease::Submit(const Cancellation& cancellation, std::unique_lock<std::mutex>& lock) {
  uint32_t seen = word_.load();
  for (;;) {
    if (!(seen & kHeld)) {
      lock.unlock();
      const bool ended = CancelHere(cancellation.call_id);
      lock.lock();
      if (ended) {
        if (cancellation.done != nullptr) *cancellation.done = true;
        return;
      }
      seen = word_.load();
    } else if (word_.compare_exchange_weak(seen, seen | kSubmitted)) {
      break;
    }
  }
  cancellations_.push_back(cancellation);
  if (seen & kAsleep) endpoint_->Wake();
}

// With the lease, and `lock` on mutex_, which callbacks must not find taken.
void Lease::RunCancellations(std::unique_lock<std::mutex>& lock) {
  while (!cancellations_.empty()) {
    const std::vector<Cancellation> taken = std::exchange(cancellations_, {});
    lock.unlock();
    for (const Cancellation& cancellation : taken) engine_->Cancel(cancellation.call_id);
    engine_->Flush();
    lock.lock();
    for (const Cancellation& cancellation : taken) {
      if (cancellation.done != nullptr) *cancellation.done = true;
    }
    cancelled_.notify_all();
  }
}

void Lease::Cancel(uint64_t call_id) {
  if (CancelHere(call_id)) return;
  std::unique_lock lock(mutex_);
  Submit({call_id, nullptr}, lock);
}

void Lease::CancelAndWait(uint64_t call_id) {
  if (CancelHere(call_id)) return;
  bool done = false;
  std::unique_lock lock(mutex_);
  Submit({call_id, &done}, lock);
  cancelled_.wait(lock, [&done] { return done; });
}

// ---- Calls

void Lease::OnDone(void* argument, const absl::Status& status) {
  static_cast<Waiter*>(argument)->End(status);
}

void Lease::Event::Set() { waiter_->End(absl::OkStatus()); }

void Lease::Waiter::End(const absl::Status& how) {
  if (!queued) {  // it is the holder, this thread
    status = how;
    done = true;
    return;
  }
  std::lock_guard lock(lease->mutex_);
  lease->Forget(this);
  status = OwnCopy(how);
  done = true;
  changed->notify_one();
}

absl::Status Lease::Call(call::CallSpec spec) {
  if (HeldByMe()) {
    return base::Error(absl::StatusCode::kFailedPrecondition,
                       absl::StrCat(spec.method->full_name, " not started"),
                       {.layer = "api",
                        .peer = engine_->server(),
                        .operation = spec.method->full_name,
                        .cause = "a callback of a channel can't wait on that channel",
                        .remedy = "start the call with StartCall(), or make it on another thread",
                        .retry_safe = true});
  }
  Waiter waiter;
  waiter.lease = this;
  spec.done = &Lease::OnDone;
  spec.argument = &waiter;
  waiter.spec = &spec;
  if (!Acquire(&waiter, spec.timeout_ns)) {
    if (waiter.done) return std::move(waiter.status);
    return base::Error(absl::StatusCode::kDeadlineExceeded,
                       absl::StrCat("deadline of ", spec.method->full_name, " exceeded"),
                       {.layer = "api",
                        .peer = engine_->server(),
                        .operation = spec.method->full_name,
                        .cause = "the thread that drives the channel did not start it in time",
                        .remedy = "look for a callback that blocks, or give it more time",
                        .retry_safe = true});
  }
  if (!waiter.started) {
    absl::Status status = engine_->Start(spec);
    if (!status.ok()) {
      engine_->Poll();  // a loop of calls that fail at once must not keep the connection from
                        // coming back
      Release();
      return status;
    }
    engine_->Flush();
  }
  DriveHeld([&waiter] { return waiter.done; }, kForeverNs);
  Release();
  return std::move(waiter.status);
}

absl::Status Lease::Start(const call::CallSpec& spec) {
  if (HeldByMe()) return engine_->Start(spec);
  Waiter waiter;
  waiter.lease = this;
  waiter.spec = &spec;
  waiter.asynchronous = true;
  if (!Acquire(&waiter, kForeverNs)) return std::move(waiter.status);
  if (!waiter.started) {
    waiter.status = engine_->Start(spec);
    engine_->Flush();
  }
  Release();
  return std::move(waiter.status);
}

bool Lease::Drive(absl::FunctionRef<bool()> until, int64_t timeout_ns) {
  assert(!HeldByMe());
  const auto begin = std::chrono::steady_clock::now();
  Waiter waiter;
  waiter.lease = this;
  if (!Acquire(&waiter, timeout_ns)) return false;
  engine_->AfterSleep();  // it may be a while since somebody looked at the clock
  const int64_t waited_ns =
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
  DriveHeld(until,
            timeout_ns == kForeverNs ? kForeverNs : std::max<int64_t>(timeout_ns - waited_ns, 0));
  const bool result = until();
  Release();
  return result;
}

void Lease::Await(absl::FunctionRef<bool(Event*)> begin) {
  assert(!HeldByMe());
  Waiter waiter;
  waiter.lease = this;
  waiter.event.waiter_ = &waiter;
  waiter.begin = &begin;
  if (!Acquire(&waiter, kForeverNs)) return;
  const bool waits = waiter.started ? !waiter.done : !begin(&waiter.event);
  engine_->Flush();
  if (waits) DriveHeld([&waiter] { return waiter.done; }, kForeverNs);
  Release();
}

void Lease::Run(absl::FunctionRef<void()> work) {
  if (HeldByMe()) return work();
  Waiter waiter;
  waiter.lease = this;
  waiter.work = &work;
  if (!Acquire(&waiter, kForeverNs)) return;  // the holder has run it
  if (!waiter.started) work();
  Release();
}

// ---- Driving

void Lease::DriveHeld(absl::FunctionRef<bool()> until, int64_t timeout_ns) {
  const int64_t end_ns =
      timeout_ns >= kForeverNs - engine_->now_ns() ? kForeverNs : engine_->now_ns() + timeout_ns;
  uint32_t idle_passes = 0;
  int64_t idle_since_ns = 0;
  while (!until()) {
    if (word_.load(std::memory_order_relaxed) & kSubmitted) StartSubmitted();
    const bool worked = engine_->Poll() > 0;
    const int64_t now_ns = engine_->now_ns();
    if (now_ns >= end_ns) return;
    if (worked) {
      idle_passes = 0;
      continue;
    }
    if (idle_passes++ == 0) idle_since_ns = now_ns;
    if (idle_passes % kIdlePassesPerLook != 0) continue;
    if (now_ns - idle_since_ns < spin_ns_) {
      if (now_ns - idle_since_ns > kYieldAfterNs) sched_yield();
      continue;
    }
    Sleep(end_ns == kForeverNs ? -1 : end_ns - now_ns);
    idle_passes = 0;
  }
}

void Lease::Sleep(int64_t limit_ns) {
  if (!engine_->PrepareToSleep()) return;
  limit_ns = Least(limit_ns, engine_->SleepLimitNs());
  if (!(word_.fetch_or(kAsleep) & kSubmitted)) {
    pollfd fd{endpoint_->fd(), POLLIN, 0};
    WaitReadable(&fd, 1, limit_ns);
  }
  word_.fetch_and(~uint32_t{kAsleep});
  engine_->AfterSleep();
}

// ---- The background thread

void Lease::Poke() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(poke_fd_, &one, sizeof(one));
}

// True: poked. False: the time is over, or `extra_fd` (-1: none) is readable.
bool Lease::WaitForPoke(int64_t timeout_ns, int extra_fd) {
  pollfd fds[2] = {{poke_fd_, POLLIN, 0}, {extra_fd, POLLIN, 0}};
  WaitReadable(fds, 2, timeout_ns);
  uint64_t pokes = 0;
  return read(poke_fd_, &pokes, sizeof(pokes)) == sizeof(pokes);
}

void Lease::Background() {
  bool at_once = false;
  while (!stopping_.load()) {
    if (!at_once && !drive_now_.load()) {
      const uint64_t seen = uses_.load(std::memory_order_relaxed);
      const bool poked = WaitForPoke(kWatchNs, -1);
      if (poked || uses_.load(std::memory_order_relaxed) != seen) continue;
    }
    at_once = false;
    if (TryAcquire()) {
      DriveInBackground();
    } else {
      at_once = HoldOff();
    }
  }
}

// Somebody holds the lease for longer than a watch period, or has taken it just now. Sleeps until
// it is released; true: that had happened already.
bool Lease::HoldOff() {
  const bool held = word_.fetch_or(kParked) & kHeld;
  if (held) WaitForPoke(-1, -1);
  word_.fetch_and(~uint32_t{kParked});
  return !held;
}

void Lease::DriveInBackground() {
  uint32_t idle_passes = 0;
  int64_t idle_since_ns = 0;
  drive_now_.store(false);  // only holders write it
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (word_.load(std::memory_order_relaxed) & kSubmitted) StartSubmitted();
    if (word_.load(std::memory_order_relaxed) & kWaiters) break;  // somebody wants to drive
    if (engine_->Poll() > 0) {
      idle_passes = 0;
      continue;
    }
    if (idle_passes++ == 0) idle_since_ns = engine_->now_ns();
    if (idle_passes % kIdlePassesPerLook != 0 || engine_->now_ns() - idle_since_ns < spin_ns_) {
      continue;
    }
    if (!engine_->PrepareToSleep()) continue;
    if (!Park()) return;
    idle_passes = 0;
  }
  Release();
}

// With the lease, armed. True: has it again, because there is something to do. False: has not.
bool Lease::Park() {
  const int64_t limit_ns = engine_->SleepLimitNs();
  holder_.store(nullptr, std::memory_order_relaxed);
  uint32_t expected = kHeld;
  if (!word_.compare_exchange_strong(expected, kParked)) {  // somebody came meanwhile
    holder_.store(&this_thread, std::memory_order_relaxed);
    return true;
  }
  const bool poked = WaitForPoke(limit_ns, endpoint_->fd());
  word_.fetch_and(~uint32_t{kParked});
  if (stopping_.load() || (poked && !drive_now_.load()) || !TryAcquire()) return false;
  drive_now_.store(false);
  engine_->AfterSleep();
  return true;
}

}  // namespace sluice
