// SPDX-License-Identifier: Apache-2.0
//
// Echo with unary calls of gRPC over a Unix socket (echo_run.h has the command line). Generic calls: without protobuf.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>

#include "echo_run.h"
#include "grpc_echo_server.h"

namespace {

class Client {
 public:
  Client(const std::string& address, size_t size_bytes) : size_bytes_(size_bytes) {
    const grpc::Slice payload(std::string(size_bytes, 'x'));
    request_ = grpc::ByteBuffer(&payload, 1);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    stub_ = std::make_unique<grpc::GenericStub>(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }

  void Start() {
    auto* call = new Call;
    call->context.set_wait_for_ready(true);
    call->reader = stub_->PrepareUnaryCall(&call->context, "/echo/Say", request_, &queue_);
    call->reader->StartCall();
    call->reader->Finish(&call->reply, &call->status, call);
  }

  int Take() {
    void* tag;
    bool ok;
    queue_.Next(&tag, &ok);
    const std::unique_ptr<Call> call(static_cast<Call*>(tag));
    if (!call->status.ok()) peers::Die("call", call->status.error_message().c_str());
    if (call->reply.Length() != size_bytes_) peers::Die("reply", "it has another size");
    return 1;
  }

 private:
  struct Call {
    grpc::ClientContext context;
    grpc::ByteBuffer reply;
    grpc::Status status;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  };
  const size_t size_bytes_;
  grpc::ByteBuffer request_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericStub> stub_;
};

class Grpc {
 public:
  // gRPC's threads do not survive a fork, so nothing of it is touched before.
  void Prepare() { address_ = "unix-abstract:grpc_echo." + std::to_string(getpid()); }
  void Serve(size_t) {
    GrpcEcho echo;
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(-1);
    builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
    builder.RegisterCallbackGenericService(&echo);
    builder.BuildAndStart()->Wait();
  }
  Client* Connect(size_t size_bytes) {
    auto* client = new Client(address_, size_bytes);
    client->Start();
    client->Take();
    return client;
  }

 private:
  std::string address_;
};

}  // namespace

int main(int argc, char** argv) { return peers::Main<Grpc>(argc, argv); }
