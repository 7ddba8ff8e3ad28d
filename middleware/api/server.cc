// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/server.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/api/address.h"
#include "middleware/api/stack.h"
#include "transport/base/error.h"

namespace sluice {
namespace {

constexpr uint32_t kIdlePassesPerClockRead = 16;
constexpr int64_t kYieldAfterNs = 4'000;  // as in lease.cc
// For saying goodbye, after the time of a Shutdown() is over.
constexpr int64_t kGraceNs = 100'000'000;

call::ServerEngineOptions EngineOptions(const ServerOptions& options, ServerChain* chain,
                                        base::Random* random) {
  call::ServerEngineOptions engine;
  engine.max_message_bytes = options.limits.max_message_bytes;
  engine.max_waiting_replies_per_peer = options.max_waiting_replies_per_peer;
  engine.max_waiting_bytes_per_peer = options.max_waiting_bytes_per_peer;
  engine.max_concurrent_calls = options.max_concurrent_calls;
  if (!chain->empty()) engine.gate = chain;
  engine.slow_call_ns = absl::ToInt64Nanoseconds(options.slow_call);
  engine.trace_records = options.trace_records;
  engine.span_seed = random->Next64();
  return engine;
}

int64_t Nanoseconds(absl::Duration timeout) {
  return std::clamp<int64_t>(absl::ToInt64Nanoseconds(timeout), 0, INT64_MAX / 4);
}

absl::Status TooLate(std::string_view operation, std::string_view cause, std::string_view remedy) {
  return base::Error(absl::StatusCode::kFailedPrecondition,
                     absl::StrCat(std::string(operation), " refused"),
                     {.layer = "api", .operation = operation, .cause = cause, .remedy = remedy});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::CreateOn(std::unique_ptr<Stack> stack,
                                                         const ServerOptions& options) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  std::unique_ptr<Server> server(new Server(std::move(stack), options));
  auto endpoint =
      server->stack_->CreateEndpoint(options.limits, options.authentication, options.tenants,
                                     &server->log_, server->engine_.handler());
  if (!endpoint.ok()) return endpoint.status();
  server->endpoint_ = *std::move(endpoint);
  server->engine_.Attach(server->endpoint_.get());
  return server;
}

Server::Server(std::unique_ptr<Stack> stack, const ServerOptions& options)
    : spin_ns_(absl::ToInt64Nanoseconds(options.spin)),
      stack_(std::move(stack)),
      log_(options.log, stack_->log(), options.log_level),
      chain_(options),
      engine_(EngineOptions(options, &chain_, stack_->random()), stack_->clock(), &log_) {
  asking_.run = &Server::OnAsked;
  asking_.server = this;
}

Server::~Server() {
  stopping_.store(true);
  if (!thread_.joinable()) return;
  endpoint_->Wake();
  thread_.join();
}

absl::Status Server::Register(Service* service, const RegisterOptions& options) {
  if (thread_.joinable()) {
    return TooLate("registration", "the server listens already",
                   "register services before Listen()");
  }
  std::shared_ptr<ExecutorQueue> queue;
  if (options.executor != nullptr) {
    queue = std::make_shared<ExecutorQueue>(
        options.executor, std::max(options.max_waiting_calls, 1u),
        options.max_wait == absl::InfiniteDuration() ? INT64_MAX
                                                     : absl::ToInt64Nanoseconds(options.max_wait));
  }
  MethodBinder binder(std::move(queue));
  service->Bind(binder);
  for (call::MethodHandler& handler : binder.TakeHandlers()) {
    if (absl::Status status = engine_.Register(std::move(handler)); !status.ok()) return status;
  }
  services_.insert(std::upper_bound(services_.begin(), services_.end(), service->name()),
                   service->name());
  registered_.push_back(service);
  return absl::OkStatus();
}

absl::StatusOr<uint16_t> Server::Listen(const std::string& address) {
  if (thread_.joinable() || stopping_.load()) {
    return TooLate("listen", "the server has listened already",
                   "one server listens at one address; create another one");
  }
  const auto parsed = ParseAddress(address, /*allow_port_0=*/true);
  if (!parsed.ok()) return parsed.status();
  auto port = endpoint_->Listen(parsed->host, parsed->port);
  if (!port.ok()) return port.status();
  thread_ = std::thread([this] { Serve(); });
  return port;
}

absl::Status Server::Shutdown(absl::Duration timeout) {
  if (!thread_.joinable()) {
    stopping_.store(true);
    return absl::OkStatus();
  }
  const int64_t timeout_ns = Nanoseconds(timeout);
  stop_by_ns_.store(stack_->clock()->NowNs() + timeout_ns);
  stopping_.store(true);
  endpoint_->Wake();
  return WaitForEnd("shutdown", timeout_ns);
}

absl::Status Server::Drain(absl::Duration timeout) {
  if (!thread_.joinable()) return Shutdown(timeout);
  for (Service* service : registered_) service->OnDrain();
  const int64_t timeout_ns = Nanoseconds(timeout);
  const int64_t now_ns = stack_->clock()->NowNs();
  cancel_at_ns_ = now_ns + timeout_ns / 4 * 3;
  stop_by_ns_.store(now_ns + timeout_ns);
  draining_.store(true);
  endpoint_->Wake();
  if (absl::Status status = WaitForEnd("drain", timeout_ns); !status.ok()) return status;
  if (drain_phase() != call::DrainPhase::kOverdue) return absl::OkStatus();
  return base::Error(absl::StatusCode::kDeadlineExceeded, "drain did not end in time",
                     {.layer = "api",
                      .operation = "drain",
                      .cause = "calls, or replies that wait for credit, were left (drain_phase())",
                      .remedy = "give it more time; let handlers look at their stop token"});
}

absl::Status Server::WaitForEnd(std::string_view operation, int64_t timeout_ns) {
  {
    std::unique_lock lock(mutex_);
    const bool ended = ended_changed_.wait_for(
        lock, std::chrono::nanoseconds(timeout_ns + kGraceNs), [this] { return ended_; });
    if (!ended) {
      return base::Error(absl::StatusCode::kDeadlineExceeded,
                         absl::StrCat(std::string(operation), " did not end in time"),
                         {.layer = "api",
                          .operation = operation,
                          .cause = "a handler is still running",
                          .remedy = "let handlers return in bounded time, or give it more time"});
    }
  }
  thread_.join();
  return absl::OkStatus();
}

void Server::Serve() {
  polls_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  ServeUntil([this] {
    return stopping_.load(std::memory_order_relaxed) || draining_.load(std::memory_order_relaxed);
  });
  if (draining_.load()) {
    engine_.StartDrain(cancel_at_ns_, stop_by_ns_.load());
    ServeUntil([this] {
      drain_phase_.store(engine_.drain().phase());
      return engine_.drain().over() || stopping_.load();
    });
  }
  // stop_by_ns_ is 0 when the destructor ends the server.
  while ((engine_.HasWaitingReplies() || engine_.calls_under_way() > 0) &&
         stack_->clock()->NowNs() < stop_by_ns_.load()) {
    if (engine_.Poll() == 0) sched_yield();
  }
  engine_.Close();
  // Nobody waits for what is still under way, and it has been told so; but it uses the engine until it is done.
  while (engine_.calls_under_way() > 0) {
    if (engine_.RunMail() == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  Publish();
  std::lock_guard lock(mutex_);
  ended_ = true;
  ended_changed_.notify_all();
  answered_.notify_all();
}

void Server::ServeUntil(absl::FunctionRef<bool()> until) {
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

void Server::Sleep(absl::FunctionRef<bool()> until) {
  Publish();
  if (!engine_.PrepareToSleep()) return;
  const int64_t limit_ns = engine_.SleepLimitNs();
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(limit_ns / 1'000'000'000);
  limit.tv_nsec = static_cast<long>(limit_ns % 1'000'000'000);
  // A Wake() before this is not lost: only Poll() takes it back, and what it was about is looked at after each Poll().
  if (until()) return;
  pollfd fd{endpoint_->fd(), POLLIN, 0};
  ppoll(&fd, 1, limit_ns < 0 ? nullptr : &limit, nullptr);
}

void Server::Publish() {
  std::lock_guard lock(mutex_);
  Look(0, &published_);
}

int64_t Server::now_ns() const { return stack_->clock()->NowNs(); }
const std::string& Server::device_choice() const { return stack_->device_choice(); }
const verbs::CapabilityReport& Server::capabilities() const { return stack_->capabilities(); }

call::ServerCounters Server::counters() const {
  std::lock_guard lock(mutex_);
  return published_.calls;
}

endpoint::Counters Server::endpoint_counters() const {
  std::lock_guard lock(mutex_);
  return published_.transport;
}

endpoint::HandshakeCounts Server::handshakes() const {
  std::lock_guard lock(mutex_);
  return published_.handshakes;
}

}  // namespace sluice
