// SPDX-License-Identifier: Apache-2.0
//
// What connect_cost measures, with gRPC over a Unix socket: a new channel and its first call of 64 bytes, in a process
// that has connected before, and from main() of a new process to its first reply. No part of the build, because it needs
// Debian's libgrpc++-dev; RESULTS.md has the command that compiles it.
//   grpc_connect [WARM [FRESH]]   connections to make in one process, and new processes; default 200 and 50
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "grpc_echo_server.h"

namespace {

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// One call with a reply of the same size.
void Call(grpc::GenericStub* stub, const grpc::ByteBuffer& request) {
  grpc::ByteBuffer reply;
  grpc::Status status;
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  auto call = stub->PrepareUnaryCall(&context, "/echo/Say", request, &queue);
  call->StartCall();
  call->Finish(&reply, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  if (!status.ok() || reply.Length() != request.Length()) {
    std::fprintf(stderr, "grpc_connect: %s\n", status.error_message().c_str());
    std::_Exit(1);
  }
}

std::unique_ptr<grpc::GenericStub> ConnectAndCall(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  arguments.SetMaxReceiveMessageSize(-1);
  auto stub = std::make_unique<grpc::GenericStub>(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  const grpc::Slice payload(std::string(64, 'x'));
  Call(stub.get(), grpc::ByteBuffer(&payload, 1));
  return stub;
}

void Print(const char* what, std::vector<int64_t> ns) {
  std::sort(ns.begin(), ns.end());
  const auto rank = [&](double share) {
    return static_cast<double>(
               ns[static_cast<size_t>(share * static_cast<double>(ns.size() - 1))]) /
           1e6;
  };
  std::printf("%-50s min %8.2f  p50 %8.2f  p99 %8.2f ms\n", what, rank(0), rank(0.5), rank(0.99));
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t start_ns = NowNs();
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "serve") {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    GrpcEcho echo;
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(-1);
    builder.AddListeningPort(argv[2], grpc::InsecureServerCredentials());
    builder.RegisterCallbackGenericService(&echo);
    const auto server = builder.BuildAndStart();
    server->Wait();
  }
  if (mode == "fresh") {
    const auto stub = ConnectAndCall(argv[2]);
    std::printf("%lld\n", static_cast<long long>(NowNs() - start_ns));
    return 0;
  }
  const std::string address = "unix-abstract:grpc_connect." + std::to_string(getpid());
  const pid_t server = fork();
  if (server == 0) {
    execl("/proc/self/exe", argv[0], "serve", address.c_str(), nullptr);
    std::_Exit(1);
  }
  std::vector<int64_t> fresh, warm;
  const int fresh_count = argc > 2 ? std::atoi(argv[2]) : 50;
  const int warm_count = argc > 1 ? std::atoi(argv[1]) : 200;
  ConnectAndCall(address);
  for (int i = 0; i < warm_count; ++i) {
    const int64_t begin_ns = NowNs();
    const auto stub = ConnectAndCall(address);
    warm.push_back(NowNs() - begin_ns);
  }
  if (!warm.empty()) Print("connect and first call, warm", std::move(warm));
  for (int i = 0; i < fresh_count; ++i) {
    std::FILE* child = popen((std::string(argv[0]) + " fresh " + address).c_str(), "re");
    long long ns = 0;
    if (child == nullptr || std::fscanf(child, "%lld", &ns) != 1) return 1;
    pclose(child);
    fresh.push_back(ns);
  }
  if (!fresh.empty()) Print("new process, main() to first reply", std::move(fresh));
  kill(server, SIGTERM);
  waitpid(server, nullptr, 0);
  return 0;
}
