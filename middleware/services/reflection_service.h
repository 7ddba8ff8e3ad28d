// SPDX-License-Identifier: Apache-2.0
//
// ReflectionService: lists a server's services and the descriptors of their messages
// (proto/reflection.proto), so that tools such as sluice_call can call them without a .proto.
//
//   sluice::ReflectionService reflection(server.get());
//   absl::Status status = server->Register(&reflection);
//
// Access        All callers can read it. It reports the .proto files that the program was built
//               from.
// Ownership     The user owns it. It outlives the server's calls. Destroy the server before or
//               after it.
// Threads       Any: it reads data that does not change after Listen().
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
