// SPDX-License-Identifier: Apache-2.0
//
// HealthService: reports whether a server accepts calls, to load balancers and people
// (proto/health.proto).
//
//   sluice::HealthService health;                        // the server as a whole is SERVING
//   health.Set("shop.v1.Shop", sluice::HealthService::NOT_SERVING);
//   absl::Status status = server->Register(&health);
//
// Ownership     The user owns it. It outlives the server.
// Threads       Set(): any thread. A watcher gets the last status, not each intermediate status.
// Drain         While the server drains, all services report NOT_SERVING. A watcher gets that
//               status, and then its call ends.
#ifndef SLUICE_MIDDLEWARE_SERVICES_HEALTH_SERVICE_H_
#define SLUICE_MIDDLEWARE_SERVICES_HEALTH_SERVICE_H_

#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "proto/health.sluice.h"

namespace sluice {

class HealthService final : public health::v1::HealthServiceBase {
 public:
  using Status = health::v1::HealthCheckResponse::ServingStatus;
  static constexpr Status SERVING = health::v1::HealthCheckResponse::SERVING;
  static constexpr Status NOT_SERVING = health::v1::HealthCheckResponse::NOT_SERVING;

  HealthService() { Set("", SERVING); }

  // Sets the status of "package.Service"; "": of the server as a whole.
  void Set(const std::string& service, Status status);
  // Sets the status of all services, for example before a shutdown, so that callers use other
  // servers.
  void SetAll(Status status);
  void OnDrain() override;

  absl::Status Check(ServerContext& context, const health::v1::HealthCheckRequest& request,
                     health::v1::HealthCheckResponse* reply) override;
  Task<absl::Status> Watch(ServerContext& context, const health::v1::HealthCheckRequest& request,
                           ServerWriter<health::v1::HealthCheckResponse> writer) override;

 private:
  class Change;

  // SERVICE_UNKNOWN: no status was set.
  Status StatusLocked(const std::string& service) const;
  // Returns whether the status to report differs from `seen`.
  bool IsNewsLocked(const std::string& service, Status seen) const {
    return draining_ || StatusLocked(service) != seen;
  }
  void TellLocked();

  std::mutex mutex_;
  bool draining_ = false;  // mutex_
  std::map<std::string, Status> statuses_;
  std::list<Change*> watching_;  // suspended
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_SERVICES_HEALTH_SERVICE_H_
