// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/health_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "transport/base/error.h"

namespace sluice {

using health::v1::HealthCheckRequest;
using health::v1::HealthCheckResponse;

// Awaitable. Resumes when the status to report differs from `seen`, or when `stop` is requested.
class HealthService::Change {
 public:
  Change(HealthService* health, const std::string& service, Status seen, std::stop_token stop)
      : health_(health), service_(service), seen_(seen), stop_(std::move(stop)) {}

  bool await_ready() { return false; }
  template <typename Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) {
    resumption_.Set(handle);
    on_stop_.emplace(stop_, Stop{this});
    std::lock_guard lock(health_->mutex_);
    if (stop_.stop_requested() || health_->IsNewsLocked(service_, seen_)) return false;
    place_ = health_->watching_.insert(health_->watching_.end(), this);
    return true;
  }
  void await_resume() { on_stop_.reset(); }

 private:
  friend class HealthService;
  // Runs on the polling thread, which is the home of the coroutine.
  struct Stop {
    void operator()() const {
      std::lock_guard lock(self->health_->mutex_);
      self->GoOnLocked();
    }
    Change* self;
  };
  void GoOnLocked() {
    if (!place_.has_value()) return;
    health_->watching_.erase(*place_);
    place_.reset();
    resumption_.Resume();  // posts the resumption
  }

  HealthService* const health_;
  const std::string& service_;
  const Status seen_;
  const std::stop_token stop_;
  Resumption resumption_;
  std::optional<std::list<Change*>::iterator> place_;  // health_->mutex_
  std::optional<std::stop_callback<Stop>> on_stop_;
};

HealthService::Status HealthService::StatusLocked(const std::string& service) const {
  const auto found = statuses_.find(service);
  return found == statuses_.end() ? HealthCheckResponse::SERVICE_UNKNOWN : found->second;
}

void HealthService::TellLocked() {
  for (auto next = watching_.begin(); next != watching_.end();) {
    Change* const change = *next++;
    if (IsNewsLocked(change->service_, change->seen_)) change->GoOnLocked();
  }
}

void HealthService::Set(const std::string& service, Status status) {
  std::lock_guard lock(mutex_);
  statuses_[service] = status;
  TellLocked();
}

void HealthService::SetAll(Status status) {
  std::lock_guard lock(mutex_);
  for (auto& [service, current] : statuses_) current = status;
  TellLocked();
}

void HealthService::OnDrain() {
  std::lock_guard lock(mutex_);
  draining_ = true;
  for (auto& [service, current] : statuses_) current = NOT_SERVING;
  TellLocked();
}

absl::Status HealthService::Check(ServerContext&, const HealthCheckRequest& request,
                                  HealthCheckResponse* reply) {
  std::lock_guard lock(mutex_);
  const Status status = StatusLocked(request.service());
  if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
    return base::Error(absl::StatusCode::kNotFound,
                       absl::StrCat("health of ", request.service(), " is not known"),
                       {.layer = "health",
                        .operation = "check",
                        .cause = "no status was set for it on this server",
                        .remedy = "ask for \"\", the server, or check the name",
                        .retry_safe = true});
  }
  reply->set_status(status);
  return absl::OkStatus();
}

Task<absl::Status> HealthService::Watch(ServerContext& context, const HealthCheckRequest& request,
                                        ServerWriter<HealthCheckResponse> writer) {
  const std::stop_token stop = context.stop_token();
  HealthCheckResponse response;
  while (!stop.stop_requested()) {
    bool last = false;
    {
      std::lock_guard lock(mutex_);
      response.set_status(StatusLocked(request.service()));
      last = draining_;
    }
    if (!co_await writer.Write(response)) break;
    if (last) co_return absl::UnavailableError("the server drains, and sends no further status");
    co_await Change(this, request.service(), response.status(), stop);
  }
  co_return absl::CancelledError("the watcher cancelled its call");
}

}  // namespace sluice
