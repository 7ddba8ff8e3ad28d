// SPDX-License-Identifier: Apache-2.0
//
// ForwardedService: a service at a Sluice server whose handlers call a gRPC server.
//
// Purpose       Has the methods of a descriptor. Messages pass as bytes, and so do deadline, cancellation, metadata, and status with
//               its details (backend_call.h). Metadata that the gRPC server sends at the beginning comes at the beginning of a
//               stream, and with the reply of a unary call.
// Ownership     The user. It outlives the Sluice server; the stub outlives it.
// Threads       Handlers run on the polling thread of the Sluice server.
#ifndef SLUICE_TOOLS_GATEWAY_FORWARDED_SERVICE_H_
#define SLUICE_TOOLS_GATEWAY_FORWARDED_SERVICE_H_

#include <grpcpp/generic/generic_stub.h>

#include <deque>
#include <string>
#include <utility>

#include "google/protobuf/descriptor.pb.h"
#include "middleware/api/raw_message.h"
#include "middleware/api/service.h"
#include "tools/gateway/backend_call.h"

namespace sluice::gateway {

class ForwardedService final : public Service {
 public:
  // `name`: "package.Service" at the Sluice server. `grpc_name`: at the gRPC server.
  ForwardedService(grpc::GenericStub* stub, std::string name, const std::string& grpc_name,
                   const google::protobuf::ServiceDescriptorProto& descriptor);

  const char* name() const override { return name_.c_str(); }
  void Bind(MethodBinder& binder) override;

 private:
  class Forward {
   public:
    Forward(grpc::GenericStub* stub, std::string name, std::string grpc_name, call::Streams streams,
            bool idempotent)
        : stub_(stub),
          name_(std::move(name)),
          grpc_name_(std::move(grpc_name)),
          method_(name_.c_str(), streams, idempotent) {}
    const Method& method() const { return method_; }

    Task<absl::Status> Unary(ServerContext& context, const RawMessage& request, RawMessage* reply);
    Task<absl::Status> ServerStream(ServerContext& context, const RawMessage& request,
                                    ServerWriter<RawMessage> writer);
    Task<absl::Status> ClientStream(ServerContext& context, ServerReader<RawMessage> reader,
                                    RawMessage* reply);
    Task<absl::Status> Both(ServerContext& context, ServerReader<RawMessage> reader,
                            ServerWriter<RawMessage> writer);

   private:
    // To the end of the replies. Nothing but End() may follow. False: the Sluice side refused a reply, and the stream has the
    // reason, which is the status of a handler that returns OK.
    static Task<bool> PassReplies(BackendCall* call, ServerContext& context,
                                  ServerWriter<RawMessage> writer);
    enum class Replies { kNone, kOne, kMore };
    // The one reply, and then the end of the replies: requests pass until then. kMore: the call is cancelled.
    Task<Replies> TakeReply(BackendCall* call, ServerContext& context, RawMessage* reply);
    // The status of a call that has one reply.
    Task<absl::Status> EndOf(BackendCall* call, ServerContext& context, Replies replies);
    absl::Status NoReply() const;
    absl::Status ManyReplies() const;
    // OK if the request has none.
    absl::Status CheckAttachment(const ServerContext& context) const;

    grpc::GenericStub* const stub_;
    const std::string name_;
    const std::string grpc_name_;
    const Method method_;
  };

  const std::string name_;
  std::deque<Forward> methods_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_TOOLS_GATEWAY_FORWARDED_SERVICE_H_
