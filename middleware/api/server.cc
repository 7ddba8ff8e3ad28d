// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/api/address.h"
#include "middleware/api/server_poller.h"
#include "middleware/api/stack.h"
#include "transport/base/error.h"

namespace sluice {
namespace {

// For saying goodbye, after the time of a Shutdown() is over.
constexpr int64_t kGraceNs = 100'000'000;

int64_t Nanoseconds(absl::Duration timeout) {
  return std::clamp<int64_t>(absl::ToInt64Nanoseconds(timeout), 0, INT64_MAX / 4);
}

absl::Status Refused(std::string_view operation, std::string_view cause, std::string_view remedy) {
  return base::Error(absl::StatusCode::kFailedPrecondition,
                     absl::StrCat(std::string(operation), " refused"),
                     {.layer = "api", .operation = operation, .cause = cause, .remedy = remedy});
}

absl::Status InHandler(std::string_view operation) {
  return Refused(operation, "a handler asks for it, inside of Poll()",
                 "note it, and ask for it after Poll()");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::CreateOn(std::unique_ptr<Stack> stack,
                                                         const ServerOptions& options) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  std::unique_ptr<Server> server(new Server(options));
  auto poller = ServerPoller::Create(std::move(stack), options, &server->chain_);
  if (!poller.ok()) return poller.status();
  server->poller_ = *std::move(poller);
  return server;
}

Server::Server(const ServerOptions& options) : chain_(options) {}
Server::~Server() = default;

absl::Status Server::Register(Service* service, const RegisterOptions& options) {
  if (poller_->started()) {
    return Refused("registration", "the server listens already",
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
    if (absl::Status status = poller_->Register(std::move(handler)); !status.ok()) return status;
  }
  services_.insert(std::upper_bound(services_.begin(), services_.end(), service->name()),
                   service->name());
  registered_.push_back(service);
  return absl::OkStatus();
}

absl::StatusOr<uint16_t> Server::Listen(const std::string& address) {
  if (poller_->started() || over_) {
    return Refused("listen", "the server has listened already",
                   "one server listens at one address; create another one");
  }
  const auto parsed = ParseAddress(address, /*allow_port_0=*/true);
  if (!parsed.ok()) return parsed.status();
  auto port = poller_->Listen(parsed->host, parsed->port);
  if (port.ok()) poller_->Start();
  return port;
}

int Server::Poll() { return poller_->Poll(); }
bool Server::PrepareToSleep() { return poller_->PrepareToSleep(); }
int Server::fd() const { return poller_->fd(); }
void Server::Wake() { poller_->Wake(); }

absl::Status Server::Shutdown(absl::Duration timeout) {
  if (poller_->InPoll()) return InHandler("shutdown");
  over_ = true;
  const int64_t timeout_ns = Nanoseconds(timeout);
  poller_->Shutdown(now_ns() + timeout_ns);
  return WaitForEnd("shutdown", timeout_ns);
}

void Server::BeginDrain(absl::Duration timeout) {
  if (!poller_->started()) return;
  for (Service* service : registered_) service->OnDrain();
  const int64_t timeout_ns = Nanoseconds(timeout);
  const int64_t begin_ns = now_ns();
  poller_->Drain(begin_ns + timeout_ns / 4 * 3, begin_ns + timeout_ns);
}

absl::Status Server::Drain(absl::Duration timeout) {
  if (!poller_->started()) return Shutdown(timeout);
  if (poller_->InPoll()) return InHandler("drain");
  BeginDrain(timeout);
  if (absl::Status status = WaitForEnd("drain", Nanoseconds(timeout)); !status.ok()) return status;
  if (drain_phase() != call::DrainPhase::kOverdue) return absl::OkStatus();
  return base::Error(absl::StatusCode::kDeadlineExceeded, "drain did not end in time",
                     {.layer = "api",
                      .operation = "drain",
                      .cause = "calls, or replies that wait for credit, were left (drain_phase())",
                      .remedy = "give it more time; let handlers look at their stop token"});
}

absl::Status Server::WaitForEnd(std::string_view operation, int64_t timeout_ns) {
  if (poller_->WaitForEnd(now_ns() + timeout_ns + kGraceNs)) return absl::OkStatus();
  return base::Error(absl::StatusCode::kDeadlineExceeded,
                     absl::StrCat(std::string(operation), " did not end in time"),
                     {.layer = "api",
                      .operation = operation,
                      .cause = "a handler is still running",
                      .remedy = "let handlers return in bounded time, or give it more time"});
}

call::DrainPhase Server::drain_phase() const { return poller_->drain_phase(); }

int64_t Server::now_ns() const { return poller_->stack().clock()->NowNs(); }
const std::string& Server::device_choice() const { return poller_->stack().device_choice(); }
const verbs::CapabilityReport& Server::capabilities() const {
  return poller_->stack().capabilities();
}

ServerSnapshot Server::Snapshot(size_t details, absl::Duration patience) const {
  ServerSnapshot snapshot = poller_->Ask(details, patience);
  snapshot.methods = poller_->engine().stats().Snapshot();
  return snapshot;
}

std::vector<base::TraceRecord> Server::Trace() const { return poller_->engine().trace().Copy(); }

call::ServerCounters Server::counters() const { return poller_->Published().calls; }
endpoint::Counters Server::endpoint_counters() const { return poller_->Published().transport; }
endpoint::HandshakeCounts Server::handshakes() const { return poller_->Published().handshakes; }

}  // namespace sluice
