// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/server_poller.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "middleware/api/executor_queue.h"

namespace sluice {
namespace {

constexpr uint32_t kIdlePassesPerClockRead = 16;
constexpr int64_t kYieldAfterNs = 4'000;  // as in lease_driving.cc

call::ServerEngineOptions EngineOptions(const ServerOptions& options, ServerChain* chain,
                                        base::Random* random) {
  call::ServerEngineOptions engine;
  engine.max_message_bytes = options.limits.max_message_bytes;
  engine.max_waiting_replies_per_peer = options.max_waiting_replies_per_peer;
  engine.max_waiting_bytes_per_peer = options.max_waiting_bytes_per_peer;
  engine.max_concurrent_calls = options.max_concurrent_calls;
  engine.stream_window = options.stream_window;
  if (!chain->empty()) engine.gate = chain;
  engine.slow_call_ns = absl::ToInt64Nanoseconds(options.slow_call);
  engine.trace_records = options.trace_records;
  engine.span_seed = random->Next64();
  return engine;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerPoller>> ServerPoller::Create(std::unique_ptr<Stack> stack,
                                                                   const ServerOptions& options,
                                                                   ServerChain* chain) {
  std::unique_ptr<ServerPoller> poller(new ServerPoller(std::move(stack), options, chain));
  auto endpoint =
      poller->stack_->CreateEndpoint(options.limits, options.authentication, options.tenants,
                                     &poller->log_, poller->engine_.handler());
  if (!endpoint.ok()) return endpoint.status();
  poller->endpoint_ = *std::move(endpoint);
  poller->engine_.Attach(poller->endpoint_.get());
  if (options.driving == Driving::kCaller) {
    auto loop = LoopDescriptor::Create(poller->endpoint_->fd());
    if (!loop.ok()) return loop.status();
    poller->loop_ = *std::move(loop);
  }
  return poller;
}

ServerPoller::ServerPoller(std::unique_ptr<Stack> stack, const ServerOptions& options,
                           ServerChain* chain)
    : spin_ns_(absl::ToInt64Nanoseconds(options.spin)),
      stack_(std::move(stack)),
      log_(options.log, stack_->log(), options.log_level),
      engine_(EngineOptions(options, chain, stack_->random()), stack_->clock(), &log_) {
  snapshot_request_.run = &ServerPoller::OnSnapshotRequest;
  snapshot_request_.poller = this;
}

ServerPoller::~ServerPoller() {
  stopping_.store(true);
  if (thread_.joinable()) {
    endpoint_->Wake();
    thread_.join();
  } else if (started() && !ended_) {
    in_poll_ = true;
    Serve();  // returns after the engine is closed
    RunOut(INT64_MAX);
  }
}

void ServerPoller::Start(absl::AnyInvocable<void()> on_end) {
  on_end_ = std::move(on_end);
  started_.store(true, std::memory_order_release);
  if (loop_ != nullptr) return;
  std::lock_guard lock(join_mutex_);  // another thread may wait for the end already
  try {
    thread_ = std::thread([this] {
      endpoint_->AllowBlocking();  // this thread does nothing but poll
      Serve();
      RunOut(INT64_MAX);
      engine_.BePolledByNobody();  // another thread may get the id of this thread
    });
  } catch (...) {
    started_.store(false,
                   std::memory_order_release);  // no thread serves, so WaitForEnd() must not wait
    throw;
  }
}

bool ServerPoller::InHandler() const {
  if (internal::executing_for == &engine_) return true;
  return loop_ != nullptr ? in_poll_ : engine_.PolledHere();
}

// ---- The user's own loop

int ServerPoller::Poll() {
  if (loop_ == nullptr || in_poll_ || !started() || ended_) return 0;
  engine_.BePolledHere();
  in_poll_ = true;
  const int done = closed_ ? engine_.RunMail() : engine_.Poll();
  if (draining_.load(std::memory_order_relaxed) && !closed_) StepDrain();
  in_poll_ = false;
  return done;
}

bool ServerPoller::PrepareToSleep() {
  if (loop_ == nullptr || in_poll_) return false;
  if (!started() || ended_ || closed_) return true;
  if (draining_.load() && !engine_.drain().started()) return false;
  Publish();
  if (!engine_.PrepareToSleep()) return false;
  loop_->WakeAfter(engine_.SleepLimitNs());
  return true;
}

// ---- The end

void ServerPoller::Shutdown(int64_t stop_by_ns) {
  stop_by_ns_.store(stop_by_ns);
  stopping_.store(true);
  if (started()) endpoint_->Wake();
}

void ServerPoller::Drain(int64_t cancel_at_ns, int64_t stop_by_ns) {
  cancel_at_ns_ = cancel_at_ns;
  stop_by_ns_.store(stop_by_ns);
  draining_.store(true);
  endpoint_->Wake();
}

bool ServerPoller::WaitForEnd(int64_t give_up_ns) {
  if (!started()) return true;
  if (loop_ != nullptr) {
    in_poll_ = true;
    if (!closed_) Serve();
    const bool ended = ended_ || RunOut(give_up_ns);
    in_poll_ = false;
    return ended;
  }
  {
    std::unique_lock lock(mutex_);
    const std::chrono::nanoseconds left(
        std::max<int64_t>(give_up_ns - stack_->clock()->NowNs(), 0));
    if (!ended_changed_.wait_for(lock, left, [this] { return ended_; })) return false;
  }
  std::lock_guard lock(join_mutex_);  // other threads may wait too
  if (thread_.joinable()) thread_.join();
  return true;
}

// ---- Serving

void ServerPoller::Serve() {
  engine_.BePolledHere();
  ServeUntil([this] {
    return stopping_.load(std::memory_order_relaxed) || draining_.load(std::memory_order_relaxed);
  });
  if (draining_.load()) {
    ServeUntil([this] {
      StepDrain();
      return engine_.drain().over() || stopping_.load();
    });
  }
  // stop_by_ns_ is 0 when the destructor ends the server.
  while ((engine_.HasWaitingReplies() || engine_.calls_under_way() > 0) &&
         stack_->clock()->NowNs() < stop_by_ns_.load()) {
    if (engine_.Poll() == 0) sched_yield();
  }
  engine_.Close();
  closed_ = true;
}

void ServerPoller::StepDrain() {
  if (!engine_.drain().started()) engine_.StartDrain(cancel_at_ns_, stop_by_ns_.load());
  drain_phase_.store(engine_.drain().phase());
}

bool ServerPoller::RunOut(int64_t give_up_ns) {
  // No caller waits for the remaining calls, and their handlers have been notified. The handlers use the engine until they end.
  while (engine_.in_use()) {
    if (engine_.RunMail() != 0) continue;
    if (stack_->clock()->NowNs() >= give_up_ns) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  Publish();
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    ended_changed_.notify_all();
    answered_.notify_all();
  }
  if (on_end_ != nullptr) on_end_();
  return true;
}

void ServerPoller::ServeUntil(absl::FunctionRef<bool()> until) {
  uint32_t idle_passes = 0;
  int64_t idle_since_ns = 0;
  while (!until()) {
    if (engine_.Poll() > 0) {
      idle_passes = 0;
      continue;
    }
    if (++idle_passes % kIdlePassesPerClockRead != 0) continue;
    const int64_t now_ns = stack_->clock()->NowNs();
    if (idle_passes == kIdlePassesPerClockRead) idle_since_ns = now_ns;
    if (now_ns - idle_since_ns < spin_ns_) {
      if (now_ns - idle_since_ns > kYieldAfterNs) sched_yield();
      continue;
    }
    Sleep(until);
    idle_passes = 0;
  }
}

void ServerPoller::Sleep(absl::FunctionRef<bool()> until) {
  Publish();
  if (!engine_.PrepareToSleep()) return;
  const int64_t limit_ns = engine_.SleepLimitNs();
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(limit_ns / 1'000'000'000);
  limit.tv_nsec = static_cast<long>(limit_ns % 1'000'000'000);
  // A Wake() before this point is not lost: only Poll() resets it, and its reason is checked after each Poll().
  if (until()) return;
  pollfd fd{endpoint_->fd(), POLLIN, 0};
  ppoll(&fd, 1, limit_ns < 0 ? nullptr : &limit, nullptr);
}

void ServerPoller::Publish() {
  std::lock_guard lock(mutex_);
  Look(0, std::nullopt, &published_);
}

}  // namespace sluice
