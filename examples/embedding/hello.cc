// SPDX-License-Identifier: Apache-2.0
//
// A server and a client of it in one program: what a project outside of Sluice's tree needs to build and run.
#include <cstdio>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hello.sluice.h"
#include "middleware/api/channel.h"
#include "middleware/api/server.h"

namespace {

class Greeter final : public hello::GreeterServiceBase {
  absl::Status Greet(sluice::ServerContext&, const hello::HelloRequest& request,
                     hello::HelloReply* reply) override {
    if (request.name().empty()) return absl::InvalidArgumentError("whom shall I greet?");
    reply->set_greeting("hello, " + request.name());
    return absl::OkStatus();
  }
};

absl::Status Run(const std::string& name) {
  auto server = sluice::Server::Create();
  if (!server.ok()) return server.status();
  Greeter greeter;
  if (absl::Status status = (*server)->Register(&greeter); !status.ok()) return status;
  auto port = (*server)->Listen("127.0.0.1:0");
  if (!port.ok()) return port.status();

  auto channel = sluice::Channel::Connect("127.0.0.1:" + std::to_string(*port));
  if (!channel.ok()) return channel.status();
  hello::GreeterClient client(*channel);
  sluice::CallContext context(absl::Seconds(5));
  hello::HelloRequest request;
  request.set_name(name);
  auto reply = client.Greet(context, request);
  if (!reply.ok()) return reply.status();
  std::printf("%s\n", reply->greeting().c_str());
  return (*server)->Shutdown(absl::Seconds(1));
}

}  // namespace

int main(int argc, char** argv) {
  absl::Status status = Run(argc > 1 ? argv[1] : "world");
  if (status.ok()) return 0;
  std::fprintf(stderr, "hello: %s\n",
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return 1;
}
