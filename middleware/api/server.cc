// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/api/address.h"
#include "middleware/api/end_refused.h"
#include "middleware/api/server_poller.h"
#include "middleware/api/signal_watch.h"
#include "middleware/api/stack.h"
#include "transport/base/error.h"

namespace sluice {
namespace {

// Additional time for disconnecting the peers, after the timeout of a Shutdown().
constexpr int64_t kGraceNs = 100'000'000;

// Longest timeout. The time of any clock plus this value does not overflow.
constexpr int64_t kForeverNs = INT64_MAX / 4;

int64_t Nanoseconds(absl::Duration timeout) {
  return std::clamp<int64_t>(absl::ToInt64Nanoseconds(timeout), 0, kForeverNs);
}

absl::Status Refused(std::string_view operation, std::string_view cause, std::string_view remedy) {
  return base::Error(absl::StatusCode::kFailedPrecondition,
                     absl::StrCat(std::string(operation), " refused"),
                     {.layer = "api", .operation = operation, .cause = cause, .remedy = remedy});
}

absl::Status AskedInHandler(std::string_view operation) {
  return Refused(operation,
                 "it was called in a handler of this server, and would wait for that handler",
                 "call it on another thread, or after Poll()");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::CreateOn(std::unique_ptr<Stack> stack,
                                                         const ServerOptions& options) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  std::vector<std::unique_ptr<Stack>> stacks;
  stacks.push_back(std::move(stack));
  return CreateOn(std::move(stacks), options);
}

absl::StatusOr<std::unique_ptr<Server>> Server::CreateOn(std::vector<std::unique_ptr<Stack>> stacks,
                                                         const ServerOptions& options) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  if (stacks.size() != options.pollers) {
    return base::Error(absl::StatusCode::kInvalidArgument, "server not created",
                       {.layer = "api",
                        .operation = "create",
                        .cause = absl::StrCat(stacks.size(), " stacks were given for ",
                                              options.pollers, " pollers"),
                        .remedy = "give one stack for each poller"});
  }
  std::unique_ptr<Server> server(new Server(options));
  for (std::unique_ptr<Stack>& stack : stacks) {
    auto poller = ServerPoller::Create(std::move(stack), options, &server->chain_);
    if (!poller.ok()) return poller.status();
    server->pollers_.push_back(*std::move(poller));
  }
  return server;
}

Server::Server(const ServerOptions& options) : executor_(options.executor), chain_(options) {}
Server::~Server() {
  // First: a child may have been forked while a handler ran.
  if (creator_.InForkedChild()) {
    // The queues belong to the parent, and the threads do not exist here: nothing of the pollers is destroyed.
    for (auto& poller : pollers_) (void)poller.release();
    return;
  }
  if (InHandler()) {
    internal::EndRefused("Server", "a handler of its own",
                         "destroy the object on another thread, or after Poll()");
  }
  // All pollers end before the first is destroyed: a handler of one poller may access all of them.
  for (const auto& poller : pollers_) poller->Shutdown(/*stop_by_ns=*/0);
  for (const auto& poller : pollers_) (void)poller->WaitForEnd(kForeverNs);
}

bool Server::InHandler() const {
  return std::any_of(pollers_.begin(), pollers_.end(),
                     [](const auto& poller) { return poller->InHandler(); });
}

absl::Status Server::Register(Service* service, const RegisterOptions& options) {
  if (creator_.InForkedChild()) return internal::Creator::Refuse("server", "register");
  if (pollers_[0]->started()) {
    return Refused("registration", "the server listens already",
                   "register services before Listen()");
  }
  std::shared_ptr<ExecutorQueue> queue;
  if (options.executor != nullptr) {
    const absl::Duration max_wait = options.max_wait.value_or(executor_.max_wait);
    queue = std::make_shared<ExecutorQueue>(
        options.executor,
        std::max(options.max_waiting_calls.value_or(executor_.max_waiting_calls), 1u),
        max_wait == absl::ZeroDuration() ? INT64_MAX : absl::ToInt64Nanoseconds(max_wait));
  }
  for (const auto& poller : pollers_) {
    MethodBinder binder(queue);
    service->Bind(binder);
    for (call::MethodHandler& handler : binder.TakeHandlers()) {
      if (absl::Status status = poller->Register(std::move(handler)); !status.ok()) return status;
    }
  }
  services_.insert(std::upper_bound(services_.begin(), services_.end(), service->name()),
                   service->name());
  registered_.push_back(service);
  return absl::OkStatus();
}

absl::StatusOr<uint16_t> Server::Listen(const std::string& address) {
  if (creator_.InForkedChild()) return internal::Creator::Refuse("server", "listen");
  if (pollers_[0]->started() || over_) {
    return Refused("listen", "the server has listened already",
                   "a server listens at one address; create another server");
  }
  const auto parsed = ParseAddress(address, /*allow_port_0=*/true);
  if (!parsed.ok()) return parsed.status();
  auto port = pollers_[0]->Listen(parsed->host, parsed->port);
  if (!port.ok()) return port;
  for (const auto& poller : pollers_) poller->Start([this] { OnPollerEnd(); });
  return port;
}

// With Driving::kCaller there is one poller.
int Server::Poll() { return creator_.InForkedChild() ? 0 : pollers_[0]->Poll(); }
bool Server::PrepareToSleep() { return !creator_.InForkedChild() && pollers_[0]->PrepareToSleep(); }
int Server::fd() const { return pollers_[0]->fd(); }
void Server::Wake() {
  if (!creator_.InForkedChild()) pollers_[0]->Wake();
}

absl::Status Server::Shutdown(absl::Duration timeout) {
  if (creator_.InForkedChild()) return internal::Creator::Refuse("server", "shutdown");
  if (InHandler()) return AskedInHandler("shutdown");
  over_ = true;
  const int64_t timeout_ns = Nanoseconds(timeout);
  const int64_t stop_by_ns = now_ns() + timeout_ns;
  for (const auto& poller : pollers_) poller->Shutdown(stop_by_ns);
  return WaitForEnd("shutdown", timeout_ns);
}

void Server::BeginDrain(absl::Duration timeout) {
  if (creator_.InForkedChild()) return;
  if (!pollers_[0]->started() || drain_begun_.exchange(true)) return;
  for (Service* service : registered_) service->OnDrain();
  const int64_t timeout_ns = Nanoseconds(timeout);
  const int64_t begin_ns = now_ns();
  for (const auto& poller : pollers_) {
    poller->Drain(begin_ns + timeout_ns / 4 * 3, begin_ns + timeout_ns);
  }
}

absl::Status Server::Drain(absl::Duration timeout) {
  if (creator_.InForkedChild()) return internal::Creator::Refuse("server", "drain");
  if (!pollers_[0]->started()) return Shutdown(timeout);
  if (InHandler()) return AskedInHandler("drain");
  BeginDrain(timeout);
  if (absl::Status status = WaitForEnd("drain", Nanoseconds(timeout)); !status.ok()) return status;
  if (drain_phase() != call::DrainPhase::kOverdue) return absl::OkStatus();
  return base::Error(absl::StatusCode::kDeadlineExceeded, "drain did not end in time",
                     {.layer = "api",
                      .operation = "drain",
                      .cause = "calls, or replies that wait for credit, were left (drain_phase())",
                      .remedy = "give it more time; let handlers look at their stop token"});
}

bool Server::Ended() const {
  return std::all_of(pollers_.begin(), pollers_.end(),
                     [](const auto& poller) { return poller->ended(); });
}

void Server::OnPollerEnd() {
  std::lock_guard lock(waits_mutex_);
  for (SignalWatch* wait : waits_) wait->Wake();
}

absl::Status Server::Wait(const WaitOptions& options) {
  if (creator_.InForkedChild()) return internal::Creator::Refuse("server", "wait");
  if (InHandler()) return AskedInHandler("wait");
  if (!pollers_[0]->started()) {
    return Refused("wait", "the server does not listen", "call Listen() before Wait()");
  }
  if (fd() >= 0) {
    return Refused(
        "wait", "the server has no thread of its own (Driving::kCaller)",
        "poll the server in your loop, and call BeginDrain() there when a signal arrives");
  }
  auto watch = SignalWatch::Create(options.signals);
  if (!watch.ok()) return watch.status();
  {
    std::lock_guard lock(waits_mutex_);
    waits_.push_back(watch->get());
  }
  int signal = 0;
  while (signal == 0 && !Ended()) signal = (*watch)->Wait();
  {
    std::lock_guard lock(waits_mutex_);
    std::erase(waits_, watch->get());
  }
  watch->reset();  // from here on, a second signal has its previous action
  return signal == 0 ? absl::OkStatus() : Drain(options.drain_timeout);
}

absl::Status Server::WaitForEnd(std::string_view operation, int64_t timeout_ns) {
  const int64_t give_up_ns = now_ns() + timeout_ns + kGraceNs;
  bool ended = true;
  for (const auto& poller : pollers_) ended = poller->WaitForEnd(give_up_ns) && ended;
  if (ended) return absl::OkStatus();
  return base::Error(absl::StatusCode::kDeadlineExceeded,
                     absl::StrCat(std::string(operation), " did not end in time"),
                     {.layer = "api",
                      .operation = operation,
                      .cause = "a handler is still running",
                      .remedy = "let handlers return in bounded time, or give it more time"});
}

call::DrainPhase Server::drain_phase() const {
  std::vector<call::DrainPhase> phases;
  for (const auto& poller : pollers_) phases.push_back(poller->drain_phase());
  return call::PhaseOfAll(phases);
}

int64_t Server::now_ns() const { return pollers_[0]->stack().clock()->NowNs(); }
const std::string& Server::device_choice() const { return pollers_[0]->stack().device_choice(); }
const verbs::CapabilityReport& Server::capabilities() const {
  return pollers_[0]->stack().capabilities();
}

call::ServerCounters Server::counters() const { return Published().calls; }
endpoint::Counters Server::endpoint_counters() const { return Published().transport; }
endpoint::HandshakeCounts Server::handshakes() const { return Published().handshakes; }

}  // namespace sluice
