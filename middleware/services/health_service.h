// SPDX-License-Identifier: Apache-2.0
//
// HealthService: tells load balancers and people whether a server takes calls (proto/health.proto).
//
//   sluice::HealthService health;                        // the server as a whole is SERVING
//   health.Set("shop.v1.Shop", sluice::HealthService::NOT_SERVING);
//   absl::Status status = server->Register(&health);
//
// Thread-safety Set() from any thread. Who watches gets the last status, not each of those between.
// Draining      The server says NOT_SERVING of everything; who watches hears that, and then the end of the call.
// What ends it  It outlives the server.
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

  // "package.Service"; empty: the server as a whole.
  void Set(const std::string& service, Status status);
  // All of them: before a shutdown, so that callers go elsewhere.
  void SetAll(Status status);
  void OnDrain() override;

  absl::Status Check(ServerContext& context, const health::v1::HealthCheckRequest& request,
                     health::v1::HealthCheckResponse* reply) override;
  Task<absl::Status> Watch(ServerContext& context, const health::v1::HealthCheckRequest& request,
                           ServerWriter<health::v1::HealthCheckResponse> writer) override;

 private:
  class Change;

  // SERVICE_UNKNOWN: nothing was said of it.
  Status StatusLocked(const std::string& service) const;
  // Something else than `seen` is to be said.
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
