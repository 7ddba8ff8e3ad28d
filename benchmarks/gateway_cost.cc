// SPDX-License-Identifier: Apache-2.0
//
// Cost of sluice_gateway beside plain gRPC, in one run: the same gRPC client calls a gRPC server that answers itself, and a gateway
// in front of a Sluice server. Unary calls of 64 bytes over loopback TCP, each server a process of its own, repetitions alternate.
//   gateway_cost [REPETITIONS [MILLISECONDS]]     default 9 of 500
//   gateway_cost serve                            the gRPC server; prints its address
// Run it from the root of the repository, after bazel build //tools/gateway:sluice_gateway //examples/echo:echo_server.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "benchmarks/die.h"
#include "benchmarks/peers/grpc_echo_server.h"
#include "tools/child_process.h"

namespace sluice {
namespace {

using benchmarks::Die;

using tools::ChildProcess;

constexpr char kMethod[] = "/sluice.examples.echo.Echo/Say";
constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr size_t kPayload = 64;

int Serve() {
  GrpcEcho service;  // any method, bytes in, bytes out, as the gateway does it
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) Die("the gRPC server does not listen");
  std::printf("listening on 127.0.0.1:%d\n", port);
  std::fflush(stdout);
  for (;;) pause();
}

struct Program {
  std::unique_ptr<ChildProcess> process;
  std::string address;
};

Program Start(std::vector<std::string> arguments) {
  Program program;
  auto process = ChildProcess::Start(std::move(arguments));
  if (!process.ok()) Die(std::string(process.status().message()));
  program.process = *std::move(process);
  auto address = tools::ListeningAddress(*program.process, kPatience);
  if (!address.ok()) Die(std::string(address.status().message()));
  program.address = *std::move(address);
  return program;
}

struct Figures {
  double median_us;
  double p99_us;
  double per_second;
};

// One client with one queue, which keeps `outstanding` calls in flight.
class Client {
 public:
  explicit Client(const std::string& address)
      : stub_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {
    // Field 1, `kPayload` bytes.
    std::string request = {'\x0a', static_cast<char>(kPayload)};
    request.append(kPayload, 'x');
    const grpc::Slice slice(request);
    request_ = grpc::ByteBuffer(&slice, 1);
    (void)Run(1, std::chrono::milliseconds(200));
  }

  Figures Run(int outstanding, std::chrono::milliseconds time) {
    std::vector<Call> calls(outstanding);
    std::vector<double> times_us;
    const auto begin = std::chrono::steady_clock::now();
    for (Call& call : calls) Begin(&call);
    int open = outstanding;
    while (open > 0) {
      void* tag = nullptr;
      bool ok = false;
      queue_.Next(&tag, &ok);
      auto* const call = static_cast<Call*>(tag);
      if (!ok || !call->status.ok() || call->reply.Length() != kPayload + 2) {
        Die("a call failed: " + call->status.error_message());
      }
      const auto now = std::chrono::steady_clock::now();
      times_us.push_back(std::chrono::duration<double, std::micro>(now - call->begin).count());
      if (now - begin < time) {
        Begin(call);
      } else {
        --open;
      }
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const double rate = static_cast<double>(times_us.size()) / took.count();
    std::sort(times_us.begin(), times_us.end());
    return {times_us[times_us.size() / 2], times_us[times_us.size() * 99 / 100], rate};
  }

 private:
  struct Call {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
    grpc::ByteBuffer reply;
    grpc::Status status;
    std::chrono::steady_clock::time_point begin;
  };
  void Begin(Call* call) {
    call->begin = std::chrono::steady_clock::now();
    call->context = std::make_unique<grpc::ClientContext>();
    call->reader = stub_.PrepareUnaryCall(call->context.get(), kMethod, request_, &queue_);
    call->reader->StartCall();
    call->reader->Finish(&call->reply, &call->status, call);
  }

  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  grpc::ByteBuffer request_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Compare(int repetitions, std::chrono::milliseconds time) {
  const Program plain = Start({std::filesystem::read_symlink("/proc/self/exe"), "serve"});
  const Program server =
      Start({"bazel-bin/examples/echo/echo_server", "--listen=127.0.0.1:0", "--device=softdc0"});
  const Program gateway = Start({"bazel-bin/tools/gateway/sluice_gateway", "--listen=127.0.0.1:0",
                                 "--device=softdc0", "--server=" + server.address});
  Client clients[] = {Client(plain.address), Client(gateway.address)};
  const char* const names[] = {"plain gRPC", "gateway and Sluice server"};
  for (const int outstanding : {1, 32}) {
    std::vector<double> medians[2], p99s[2], rates[2];
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      for (int which = 0; which < 2; ++which) {
        const Figures one = clients[which].Run(outstanding, time);
        medians[which].push_back(one.median_us);
        p99s[which].push_back(one.p99_us);
        rates[which].push_back(one.per_second);
      }
    }
    for (int which = 0; which < 2; ++which) {
      std::printf("%2d outstanding  %-26s median %7.1f us  p99 %8.1f us  %8.0f calls/s\n",
                  outstanding, names[which], Median(medians[which]), Median(p99s[which]),
                  Median(rates[which]));
    }
    std::printf("%2d outstanding  ratio: median %.2f, rate %.2f\n", outstanding,
                Median(medians[1]) / Median(medians[0]), Median(rates[1]) / Median(rates[0]));
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "serve") return sluice::Serve();
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 9;
  const int milliseconds = argc > 2 ? std::atoi(argv[2]) : 500;
  if (repetitions < 1 || milliseconds < 1) {
    std::fprintf(stderr, "usage: gateway_cost [REPETITIONS [MILLISECONDS]]\n");
    return 2;
  }
  return sluice::Compare(repetitions, std::chrono::milliseconds(milliseconds));
}
