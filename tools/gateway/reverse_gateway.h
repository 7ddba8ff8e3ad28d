// SPDX-License-Identifier: Apache-2.0
//
// ReverseGateway: a Sluice port in front of a gRPC server.
//
//   sluice::gateway::ReverseGateway::Options options;
//   options.grpc_server = "127.0.0.1:50051";
//   options.listen = "127.0.0.1:7471";
//   auto gateway = sluice::gateway::ReverseGateway::Start(options);
//   …
//   absl::Status status = (*gateway)->server()->Drain(absl::Seconds(10));
//
// Purpose       A Sluice server with the services of the gRPC server (forwarded_service.h), reflection, and
//               sluice.health.v1.Health, which is passed on to grpc.health.v1.Health. A request of Sluice has the number of its
//               method and not its name, so the services are fixed at the start: those that the gRPC server's reflection lists,
//               or those of the descriptors.
// Ownership     The user owns it.
// Threads       As Server.
// Errors        Start(): those of Server::Create() and Listen(); UNAVAILABLE and others of the gRPC server's reflection.
// Not supported TLS to the gRPC server, attachments.
#ifndef SLUICE_TOOLS_GATEWAY_REVERSE_GATEWAY_H_
#define SLUICE_TOOLS_GATEWAY_REVERSE_GATEWAY_H_

#include <grpcpp/generic/generic_stub.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.pb.h"
#include "middleware/api/server.h"
#include "proto/reflection.sluice.h"
#include "tools/gateway/forwarded_service.h"

namespace sluice::gateway {

class ReverseGateway {
 public:
  struct Options {
    std::string grpc_server = "127.0.0.1:50051";  // a target of gRPC
    std::string listen = "127.0.0.1:7471";        // "host:port" of the Sluice port
    // Maximum size in bytes of a message from the gRPC server. Range: 1024 to 1 GiB. For messages to it limits of `server`
    // apply.
    uint32_t max_message_bytes = 4u << 20;
    // Descriptors of the services, if the gRPC server has no reflection. Default: none.
    google::protobuf::FileDescriptorSet descriptors;
    ServerOptions server;
  };

  static absl::StatusOr<std::unique_ptr<ReverseGateway>> Start(const Options& options);
  ~ReverseGateway();
  ReverseGateway(const ReverseGateway&) = delete;
  ReverseGateway& operator=(const ReverseGateway&) = delete;

  uint16_t port() const { return port_; }
  Server* server() { return server_.get(); }

 private:
  // The services as the reflection of Sluice describes them.
  class Description;

  explicit ReverseGateway(const Options& options);
  // From the reflection of the gRPC server; blocks.
  absl::StatusOr<google::protobuf::FileDescriptorSet> AskServer();
  absl::Status AddServices(const google::protobuf::FileDescriptorSet& files);

  const Options options_;
  grpc::GenericStub stub_;
  std::deque<ForwardedService> services_;
  std::unique_ptr<Description> description_;
  std::unique_ptr<Server> server_;  // ends before the services
  uint16_t port_ = 0;
};

}  // namespace sluice::gateway

#endif  // SLUICE_TOOLS_GATEWAY_REVERSE_GATEWAY_H_
