// SPDX-License-Identifier: Apache-2.0
//
// The C++ code of README.md.
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "examples/echo/echo.sluice.h"
#include "examples/log_tail/log.sluice.h"
#include "middleware/api/bulk.h"
#include "middleware/api/channel.h"
#include "middleware/api/end_signals.h"
#include "middleware/api/in_process.h"
#include "middleware/api/messenger.h"
#include "middleware/api/server.h"
#include "middleware/api/task.h"

namespace sluice::docs {
namespace readme_snippets_test {
namespace {

using namespace sluice::examples::echo;
using sluice::examples::log_tail::AppendReply;
using sluice::examples::log_tail::Line;
using sluice::examples::log_tail::LogClient;
using sluice::examples::log_tail::LogServiceBase;
using sluice::examples::log_tail::TailRequest;

class EchoService final : public EchoServiceBase {
  absl::Status Say(sluice::ServerContext&, const SayRequest& request, SayReply* reply) override {
    reply->set_payload(request.payload());
    return absl::OkStatus();
  }
};

absl::Status Serve(const std::string& address) {  // in one process: "127.0.0.1:7471"
  sluice::EndSignals end;                         // SIGINT and SIGTERM
  EchoService echo;
  auto server = sluice::Server::Create();
  if (!server.ok()) return server.status();
  if (absl::Status status = (*server)->Register(&echo); !status.ok()) return status;
  absl::StatusOr<uint16_t> port = (*server)->Listen(address);
  if (!port.ok()) return port.status();  // the port is in use, for example
  end.Wait();
  return (*server)->Drain(absl::Seconds(10));
}

absl::StatusOr<SayReply> Ask(const std::string& address, const SayRequest& request) {  // in another
  auto channel = sluice::Channel::Connect(address);
  if (!channel.ok()) return channel.status();
  EchoClient client(*channel);
  sluice::CallContext context(absl::Seconds(1));  // every call has an end
  return client.Say(context, request);
}

absl::Status TwoWays(EchoClient& client, sluice::CallContext& context, const SayRequest& request,
                     SayReply& reply, std::function<void(const absl::Status&)> done) {
  absl::StatusOr<SayReply> answer = client.Say(context, request);  // waits
  if (!answer.ok()) return answer.status();

  return client.StartSay(context, request, &reply, done);  // calls done(status), unless it fails
}

sluice::Task<absl::Status> Third(EchoClient& client, sluice::CallContext& context,
                                 const SayRequest& request) {
  absl::StatusOr<SayReply> answer = co_await client.CoSay(context, request);  // in a sluice::Task
  co_return answer.status();
}

absl::Status Tail(LogClient& log_client, sluice::CallContext& context, const TailRequest& request,
                  std::vector<std::string>& shown) {
  Line line;
  auto lines = log_client.Tail(context, request);          // rpc Tail(…) returns (stream Line)
  while (lines.Read(&line)) shown.push_back(line.text());  // or co_await lines.CoRead(&line)
  return lines.Finish();                                   // why there are no more
}

absl::Status Publish(const std::string& address, sluice::FlowHandler& publisher,
                     std::function<bool()> done) {
  auto messenger = sluice::Messenger::Create();  // in one process
  if (!messenger.ok()) return messenger.status();
  auto accept = [&](sluice::Flow, const sluice::Offer&) { return &publisher; };
  if (absl::Status status = (*messenger)->Accept("ticks", {}, accept); !status.ok()) return status;
  if (auto port = (*messenger)->Listen(address); !port.ok()) return port.status();
  (*messenger)->Drive(done, absl::InfiniteDuration());
  return absl::OkStatus();
}

absl::Status Subscribe(sluice::Messenger& messenger, const std::string& address,
                       sluice::FlowHandler& subscriber, std::span<const std::byte> bytes) {
  auto flow = messenger.Open(address, "ticks", {.window = 256}, &subscriber);  // in another
  if (!flow.ok()) return flow.status();
  // RESOURCE_EXHAUSTED when the other end is behind, or not there yet; OnWritable() follows.
  return flow->Send(bytes);
}

// `send` gives the capability away.
absl::Status Receive(sluice::Bulk& bulk, bulk::PeerId peer, uint64_t tag, absl::Duration timeout,
                     std::span<std::byte> buffer,
                     std::function<absl::Status(const std::string& capability)> send) {
  auto lent = bulk.Lend(buffer, bulk::kMayWrite);
  if (!lent.ok()) return lent.status();
  absl::Status status = send(lent->capability);  // in a request
  if (status.ok()) {
    auto arrival = bulk.Await(peer, tag, timeout);
    // DATA_LOSS names block, field, expected, actual, and who found it.
    status = arrival.ok() ? arrival->status : arrival.status();
  }
  // From here on no peer reaches the buffer.
  if (absl::Status returned = bulk.Return(lent->id); !returned.ok()) return returned;
  return status;
}

// An address at which `server` listens.
std::string Occupied(Server& server, EchoService* echo) {
  EXPECT_TRUE(server.Register(echo).ok());
  const absl::StatusOr<uint16_t> port = server.Listen("127.0.0.1:0");
  EXPECT_TRUE(port.ok()) << port.status();
  return absl::StrCat("127.0.0.1:", port.value_or(0));
}

TEST(ReadmeSnippetsTest, AnAddressThatIsTakenIsNoticed) {
  EchoService echo;
  auto server = Server::Create();
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = Occupied(**server, &echo);
  EXPECT_FALSE(Serve(address).ok());

  class Nobody final : public FlowHandler {
    void OnMessage(Flow, std::span<const std::byte>) override {}
    void OnClosed(Flow, const absl::Status&, const FlowTotals&) override {}
  } nobody;
  EXPECT_FALSE(Publish(address, nobody, [] { return true; }).ok());
  EXPECT_TRUE(Publish("127.0.0.1:0", nobody, [] { return true; }).ok());

  auto messenger = Messenger::Create();
  ASSERT_TRUE(messenger.ok()) << messenger.status();
  // Not open yet.
  EXPECT_TRUE(absl::IsResourceExhausted(Subscribe(**messenger, address, nobody, {})));
}

TEST(ReadmeSnippetsTest, TheClientGetsItsAnswer) {
  EchoService echo;
  auto server = Server::Create();
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = Occupied(**server, &echo);
  SayRequest request;
  request.set_payload("hello");
  absl::StatusOr<SayReply> reply;
  do {  // a busy machine may not make the second that the page grants
    reply = Ask(address, request);
  } while (absl::IsDeadlineExceeded(reply.status()));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->payload(), "hello");
}

TEST(ReadmeSnippetsTest, ACallThreeWaysAndAStream) {
  class Log final : public LogServiceBase {
    Task<absl::Status> Tail(ServerContext&, const TailRequest&,
                            ServerWriter<Line> writer) override {
      Line line;
      line.set_text("a line");
      co_await writer.Write(line);
      co_return absl::OkStatus();
    }
    Task<absl::Status> Append(ServerContext&, ServerReader<Line>, AppendReply*) override {
      co_return absl::OkStatus();
    }
  } log;
  EchoService echo;
  auto world = InProcess::Start({&echo, &log});
  ASSERT_TRUE(world.ok()) << world.status();
  auto channel = (*world)->NewChannel();
  ASSERT_TRUE(channel.ok()) << channel.status();
  EchoClient client(*channel);
  CallContext context = CallContext::NoDeadline();
  SayRequest request;
  request.set_payload("hello");

  SayReply reply;
  std::promise<absl::Status> called_back;
  const absl::Status started =
      TwoWays(client, context, request, reply,
              [&](const absl::Status& status) { called_back.set_value(status); });
  ASSERT_TRUE(started.ok()) << started;
  EXPECT_TRUE(called_back.get_future().get().ok());
  EXPECT_EQ(reply.payload(), "hello");

  std::promise<absl::Status> awaited;
  Spawn(Third(client, context, request),
        [&](const absl::Status& status) { awaited.set_value(status); });
  EXPECT_TRUE(awaited.get_future().get().ok());

  LogClient log_client(*channel);
  std::vector<std::string> shown;
  EXPECT_TRUE(Tail(log_client, context, TailRequest(), shown).ok());
  EXPECT_EQ(shown, std::vector<std::string>{"a line"});
}

TEST(ReadmeSnippetsTest, MemoryIsLentAndReturned) {
  auto bulk = Bulk::Create();
  ASSERT_TRUE(bulk.ok()) << bulk.status();
  std::vector<std::byte> buffer(4096);
  // There is no such peer.
  EXPECT_FALSE(
      Receive(**bulk, {}, 1, absl::Milliseconds(1), buffer, [](const std::string& capability) {
        return capability.empty() ? absl::InternalError("nothing to give away") : absl::OkStatus();
      }).ok());
}

}  // namespace
}  // namespace readme_snippets_test
}  // namespace sluice::docs
