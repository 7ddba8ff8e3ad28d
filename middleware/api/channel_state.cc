// SPDX-License-Identifier: Apache-2.0
//
// Functions that return the state of a channel's connection, or wait for a change.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/api/channel.h"
#include "middleware/api/channel_visit.h"
#include "middleware/api/lease.h"
#include "middleware/api/own_copy.h"
#include "middleware/api/stack.h"
#include "middleware/api/state_change.h"
#include "middleware/call/state_watch.h"
#include "transport/base/error.h"

namespace sluice {
namespace {
// Pauses between attempts to connect that WaitUntilConnected() starts.
constexpr int64_t kMinPauseNs = 10'000'000;
constexpr int64_t kMaxPauseNs = 1'000'000'000;

int64_t DeadlineIn(base::Clock* clock, absl::Duration timeout) {
  const int64_t now_ns = clock->NowNs();
  const int64_t timeout_ns = absl::ToInt64Nanoseconds(timeout);  // saturates
  return timeout_ns >= call::kNoDeadlineNs - now_ns ? call::kNoDeadlineNs : now_ns + timeout_ns;
}

// Watch that runs a callback. Owns itself.
struct CallingWatch final : call::StateWatch {
  absl::AnyInvocable<void(ConnectionState now) &&> callback;
  call::Exceptions* exceptions = nullptr;  // the channel's; it outlives the callback
  std::string server;

  static void Done(call::StateWatch* watch) {
    const std::unique_ptr<CallingWatch> self(static_cast<CallingWatch*>(watch));
    try {
      std::move(self->callback)(self->now);
    } catch (...) {
      (void)self->exceptions->Take("callback of a state change", "state", self->server);
    }
  }
};

}  // namespace

ConnectionState Channel::connection_state() {
  const Visit visit(this);
  ConnectionState state = ConnectionState::kClosed;  // in a forked child
  lease_->Run(&seat_, [&] { state = engine_.state(); });
  return state;
}

ConnectionState Channel::WaitForStateChange(ConnectionState seen, absl::Duration timeout) {
  if (lease_->InForkedChild()) return ConnectionState::kClosed;
  const Visit visit(this);
  if (lease_->HeldByMe()) return engine_.state();
  call::StateWatch watch;
  watch.seen = seen;
  watch.owner = &seat_;
  watch.deadline_ns = DeadlineIn(stack_->clock(), timeout);
  watch.done = [](call::StateWatch* one) { static_cast<Lease::Event*>(one->argument)->Set(); };
  lease_->Await(&seat_, [&](Lease::Event* event) {
    watch.argument = event;
    return !engine_.Watch(&watch);
  });
  return watch.now;
}

void Channel::StartStateChange(ConnectionState seen, absl::Duration timeout,
                               absl::AnyInvocable<void(ConnectionState now) &&> done) {
  if (lease_->InForkedChild()) return std::move(done)(ConnectionState::kClosed);
  const Visit visit(this);
  // Before this returns, the watch may end on another thread, and its callback may drop the last reference.
  const internal::ChannelKeep kept(lease_->HeldByMe() ? nullptr : this);
  auto watch = std::make_unique<CallingWatch>();
  watch->seen = seen;
  watch->owner = &seat_;
  watch->deadline_ns = DeadlineIn(stack_->clock(), timeout);
  watch->done = &CallingWatch::Done;
  watch->callback = std::move(done);
  watch->exceptions = engine_.exceptions();
  watch->server = address_;
  CallingWatch* const one = watch.release();
  bool waits = false;
  lease_->Run(&seat_, [&] { waits = engine_.Watch(one); });
  if (!waits) CallingWatch::Done(one);
}

absl::Status Channel::WaitUntilConnected(absl::Duration timeout) {
  if (lease_->InForkedChild()) return Lease::RefuseInChild(&seat_, "connect");
  const Visit visit(this);
  const int64_t deadline_ns = DeadlineIn(stack_->clock(), timeout);
  // After its last attempt (max_reconnect_attempts) the channel is idle. From then on this function makes the pauses.
  bool may_dial = true;
  int64_t pause_ns = kMinPauseNs;
  for (;;) {
    ConnectionState state = ConnectionState::kIdle;
    absl::Status last;
    lease_->Run(&seat_, [&] {
      state = engine_.state();
      last = OwnCopy(engine_.last_error());
      if (state == ConnectionState::kIdle && may_dial) engine_.DialSoon();
    });
    if (state == ConnectionState::kUp) return absl::OkStatus();
    if (lease_->HeldByMe()) {
      return base::Error(
          absl::StatusCode::kFailedPrecondition, "connection not awaited",
          {.layer = "api",
           .peer = address_,
           .operation = "connect",
           .cause = "a callback cannot wait for its channel, or for another one of its runtime",
           .remedy = "use StartStateChange() or co_await in callbacks, or wait on another thread",
           .retry_safe = true});
    }
    const int64_t now_ns = stack_->clock()->NowNs();
    if (now_ns >= deadline_ns) {
      const auto detail = base::DetailOf(last);
      const std::string why = last.ok() ? "no attempt to connect has ended so far"
                              : detail.has_value() && !detail->cause().empty()
                                  ? detail->cause()
                                  : std::string(last.message());
      return base::Error(absl::StatusCode::kDeadlineExceeded, "not connected in time",
                         {.layer = "api",
                          .peer = address_,
                          .operation = "connect",
                          .cause = absl::StrCat("the channel is ", call::Name(state), ": ", why),
                          .remedy = "check the server; the channel continues to reconnect",
                          .retry_safe = true});
    }
    absl::Duration left = deadline_ns == call::kNoDeadlineNs
                              ? absl::InfiniteDuration()
                              : absl::Nanoseconds(deadline_ns - now_ns);
    if (state == ConnectionState::kIdle) {
      if (!may_dial) {
        left = std::min(left, absl::Nanoseconds(pause_ns));
        pause_ns = std::min(2 * pause_ns, kMaxPauseNs);
      }
      may_dial = !may_dial;
    }
    WaitForStateChange(state, left);
  }
}

StateChange::StateChange(Channel* channel, ConnectionState seen, absl::Duration timeout)
    : channel_(channel), timeout_(timeout) {
  watch_.seen = seen;
  watch_.argument = this;
  watch_.done = [](call::StateWatch* watch) {
    static_cast<StateChange*>(watch->argument)->resumption_.Resume();
  };
}

bool StateChange::Begin() {
  Channel* const channel = channel_.get();
  const Channel::Visit visit(channel);
  const internal::ChannelKeep kept(channel->lease_->HeldByMe() ? nullptr : channel);
  watch_.owner = &channel->seat_;
  watch_.deadline_ns = DeadlineIn(channel->stack_->clock(), timeout_);
  bool waits = false;
  channel->lease_->Run(&channel->seat_, [&] { waits = channel->engine_.Watch(&watch_); });
  return waits;
}

void StateChange::Forget() {
  const Channel::Visit visit(channel_.get());
  channel_->lease_->Run(&channel_->seat_, [this] { channel_->engine_.Unwatch(&watch_); });
}

}  // namespace sluice
