// SPDX-License-Identifier: Apache-2.0
//
// ReflectionService: tells which services a server has, and how their messages look (proto/reflection.proto), so that tools such as
// sluice_call can call them without a .proto.
//
//   sluice::ReflectionService reflection(server.get());
//   absl::Status status = server->Register(&reflection);
//
// What it tells is what the program was built from; who may connect may know it.
//
// Thread-safety None needed: it reads what does not change after Listen().
// What ends it  It outlives the server's calls; the server outlives it, or is destroyed first.
#ifndef SLUICE_MIDDLEWARE_SERVICES_REFLECTION_SERVICE_H_
#define SLUICE_MIDDLEWARE_SERVICES_REFLECTION_SERVICE_H_

#include "middleware/api/server.h"
#include "proto/reflection.sluice.h"

namespace sluice {

class ReflectionService final : public reflection::v1::ReflectionServiceBase {
 public:
  explicit ReflectionService(const Server* server) : server_(server) {}

  absl::Status ListServices(ServerContext& context,
                            const reflection::v1::ListServicesRequest& request,
                            reflection::v1::ListServicesResponse* reply) override;
  absl::Status FilesOf(ServerContext& context, const reflection::v1::FilesOfRequest& request,
                       reflection::v1::FilesOfResponse* reply) override;

 private:
  const Server* const server_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_SERVICES_REFLECTION_SERVICE_H_
