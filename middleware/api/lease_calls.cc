// SPDX-License-Identifier: Apache-2.0
//
// Work of a thread with the lease: calls and other operations.
#include <algorithm>
#include <cassert>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/api/lease.h"
#include "middleware/api/lease_waiter.h"
#include "transport/base/error.h"

namespace sluice {

absl::Status Lease::RefuseInChild(const Seat* seat, std::string_view operation) {
  return base::Error(absl::StatusCode::kFailedPrecondition,
                     "the channel belongs to another process",
                     {.layer = "api",
                      .peer = seat->engine_->server(),
                      .operation = operation,
                      .cause = "this process was forked after the channel was connected",
                      .remedy = "connect in the child",
                      .retry_safe = true});
}

absl::Status Lease::Refuse(const Seat* seat, std::string_view operation) const {
  return InForkedChild() ? RefuseInChild(seat, operation) : seat->engine_->ChannelClosed();
}

absl::Status Lease::Call(Seat* seat, call::CallSpec* one) {
  call::CallSpec& spec = *one;
  if (Refuses(seat)) [[unlikely]]
    return Refuse(seat, spec.method->full_name);
  if (HeldByMe()) {
    return base::Error(
        absl::StatusCode::kFailedPrecondition, absl::StrCat(spec.method->full_name, " not started"),
        {.layer = "api",
         .peer = seat->engine_->server(),
         .operation = spec.method->full_name,
         .cause = "a callback cannot wait for its channel, or for another one of its runtime",
         .remedy = "start the call with StartCall(), or make it on another thread",
         .retry_safe = true});
  }
  Waiter waiter(this, seat);
  spec.done = &Lease::OnDone;
  spec.argument = &waiter;
  waiter.spec = &spec;
  if (!Acquire(&waiter, spec.timeout_ns)) {
    if (waiter.done) return std::move(waiter.status);
    return seat->engine_->StartedTooLate(*spec.method);
  }
  if (!waiter.started) {
    Enter(seat);
    absl::Status status = seat->engine_->Start(spec);
    if (!status.ok()) {
      // Poll, so that a loop of calls that fail at once does not prevent a reconnect.
      driven_.Poll();
      Release();
      return status;
    }
    driven_.Flush();
  }
  DriveHeld([&waiter] { return waiter.done; }, kForeverNs);
  Release();
  return std::move(waiter.status);
}

absl::Status Lease::Start(Seat* seat, const call::CallSpec& spec) {
  if (Refuses(seat)) [[unlikely]]
    return Refuse(seat, spec.method->full_name);
  if (HeldByMe()) return StartHeld(seat, spec);
  bool held = TryAcquire();
  if (spec.stream == nullptr) {
    while (!held) {
      const Handed handed = HandOver(seat, spec);
      if (handed == Handed::kTaken) return absl::OkStatus();
      if (handed == Handed::kNoPlace) break;
      held = TryAcquire();
    }
  }
  Waiter waiter(this, seat);
  waiter.spec = &spec;
  waiter.asynchronous = true;
  if (held) {
    CatchUp();
  } else if (!Acquire(&waiter, kForeverNs)) {
    return std::move(waiter.status);
  }
  if (!waiter.started) {
    Enter(seat);
    waiter.status = seat->engine_->Start(spec);
    driven_.Flush();
  }
  // The thread has not polled. A loop of calls that fail at once must not keep the background thread from connecting again.
  Release(Use::kLooked);
  return std::move(waiter.status);
}

bool Lease::Drive(absl::FunctionRef<bool()> until, int64_t timeout_ns) {
  if (InForkedChild()) return false;
  assert(!HeldByMe());
  const auto begin = std::chrono::steady_clock::now();
  Waiter waiter(this);
  if (!Acquire(&waiter, timeout_ns)) return false;
  driven_.AfterSleep();  // the last read of the clock may be long ago
  const int64_t waited_ns =
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
  bool result = false;
  try {
    DriveHeld(until,
              timeout_ns == kForeverNs ? kForeverNs : std::max<int64_t>(timeout_ns - waited_ns, 0));
    result = until();
  } catch (...) {  // thrown by `until`
    Release();
    throw;
  }
  Release();
  return result;
}

void Lease::Await(Seat* seat, absl::FunctionRef<bool(Event*)> begin) {
  if (InForkedChild()) return;
  assert(!HeldByMe());
  Waiter waiter(this, seat);
  waiter.event.waiter_ = &waiter;
  waiter.begin = &begin;
  if (!Acquire(&waiter, kForeverNs)) return;
  if (!waiter.started) Enter(seat);
  const bool waits = waiter.started ? !waiter.done : !begin(&waiter.event);
  driven_.Flush();
  if (waits) DriveHeld([&waiter] { return waiter.done; }, kForeverNs);
  Release(waits ? Use::kDriven : Use::kLooked);
}

bool Lease::Run(Seat* seat, absl::FunctionRef<void()> work, int64_t timeout_ns) {
  if (InForkedChild()) return false;
  if (HeldByMe()) {
    Enter(seat);
    work();
    return true;
  }
  Waiter waiter(this, seat);
  waiter.work = &work;
  if (!Acquire(&waiter, timeout_ns))
    return waiter.done;  // true: the holder has run the work; false: `timeout_ns` has passed
  if (!waiter.started) {
    Enter(seat);
    work();
  }
  Release(Use::kLooked);
  return true;
}

void Lease::Hold(Seat* seat, absl::FunctionRef<void()> work) {
  if (InForkedChild()) return;
  if (HeldByMe()) return work();
  Waiter waiter(this, seat);
  (void)Acquire(&waiter, kForeverNs);  // waits for the lease only, so it gets the lease
  Enter(seat);
  work();
  Release(Use::kLooked);
}

}  // namespace sluice
