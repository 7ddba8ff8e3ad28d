// SPDX-License-Identifier: Apache-2.0
//
// A gRPC service that returns each request as it came. Generic: without protobuf.
#ifndef SLUICE_BENCHMARKS_PEERS_GRPC_ECHO_SERVER_H_
#define SLUICE_BENCHMARKS_PEERS_GRPC_ECHO_SERVER_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

class GrpcEcho final : public grpc::CallbackGenericService {
  class Call final : public grpc::ServerGenericBidiReactor {
   public:
    Call() { StartRead(&message_); }

   private:
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::CANCELLED);
      StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK);
    }
    void OnDone() override { delete this; }
    grpc::ByteBuffer message_;
  };
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Call();
  }
};

#endif  // SLUICE_BENCHMARKS_PEERS_GRPC_ECHO_SERVER_H_
