// SPDX-License-Identifier: Apache-2.0
//
// Sluice's side of the C++ code in docs/from-grpc.md.
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "examples/echo/echo.sluice.h"
#include "middleware/api/channel.h"
#include "middleware/api/end_signals.h"
#include "middleware/api/server.h"

namespace sluice::docs {
namespace from_grpc_snippets_test {
namespace {

using namespace sluice::examples::echo;

class EchoImpl final : public EchoServiceBase {
  absl::Status Say(sluice::ServerContext&, const SayRequest& request, SayReply* reply) override {
    reply->set_payload(request.payload());
    return absl::OkStatus();
  }
};

absl::Status Serve(const std::string& address, sluice::EndSignals& end) {
  EchoImpl echo;  // outlives the server
  auto server = sluice::Server::Create();
  if (!server.ok()) return server.status();
  if (absl::Status status = (*server)->Register(&echo); !status.ok()) return status;
  absl::StatusOr<uint16_t> port = (*server)->Listen(address);
  if (!port.ok()) return port.status();  // the port is in use, for example
  end.Wait();
  return (*server)->Drain(absl::Seconds(10));
}

absl::Status Ask(const std::string& address, const SayRequest& request, SayReply* reply) {
  auto channel = sluice::Channel::Connect(address);
  if (!channel.ok()) return channel.status();
  EchoClient client(*channel);
  // May serve many calls. No call is without an end, unless you write CallContext::NoDeadline().
  sluice::CallContext context(absl::Seconds(1));
  absl::StatusOr<SayReply> answer = client.Say(context, request);
  if (!answer.ok()) return answer.status();
  *reply = *std::move(answer);
  return absl::OkStatus();
}

TEST(FromGrpcSnippetsTest, AnAddressThatIsTakenIsNoticed) {
  EchoImpl echo;
  auto server = sluice::Server::Create();
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE((*server)->Register(&echo).ok());
  const absl::StatusOr<uint16_t> port = (*server)->Listen("127.0.0.1:0");
  ASSERT_TRUE(port.ok()) << port.status();
  const std::string address = absl::StrCat("127.0.0.1:", *port);

  sluice::EndSignals end;  // not waited for
  EXPECT_FALSE(Serve(address, end).ok());
}

TEST(FromGrpcSnippetsTest, TheClientGetsItsAnswer) {
  EchoImpl echo;
  auto server = sluice::Server::Create();
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE((*server)->Register(&echo).ok());
  const absl::StatusOr<uint16_t> port = (*server)->Listen("127.0.0.1:0");
  ASSERT_TRUE(port.ok()) << port.status();

  SayRequest request;
  request.set_payload("hello");
  SayReply reply;
  absl::Status status;
  do {  // a busy machine may not make the second that the page grants
    status = Ask(absl::StrCat("127.0.0.1:", *port), request, &reply);
  } while (absl::IsDeadlineExceeded(status));
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(reply.payload(), "hello");
}

}  // namespace
}  // namespace from_grpc_snippets_test
}  // namespace sluice::docs
