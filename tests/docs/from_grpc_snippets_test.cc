// SPDX-License-Identifier: Apache-2.0
//
// Sluice's side of the C++ code in docs/from-grpc.md.
#include <gtest/gtest.h>

#include <concepts>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "examples/echo/echo.sluice.h"
#include "examples/log_tail/log.sluice.h"
#include "middleware/api/channel.h"
#include "middleware/api/end_signals.h"
#include "middleware/api/in_process.h"
#include "middleware/api/run_on.h"
#include "middleware/api/server.h"
#include "middleware/api/sleep.h"
#include "middleware/api/state_change.h"
#include "middleware/api/status_detail.h"
#include "middleware/api/thread_pool.h"
#include "middleware/api/when.h"

namespace sluice::docs {
namespace from_grpc_snippets_test {
namespace {

using namespace sluice::examples::echo;
using namespace sluice::examples::log_tail;

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

class LogImpl final : public LogCoServiceBase {
  sluice::Task<absl::Status> Tail(sluice::ServerContext& context, const TailRequest& request,
                                  sluice::ServerWriter<Line> writer) override {
    sluice::Metadata first;
    if (absl::Status status = first.Add("version", "7"); !status.ok()) co_return status;
    absl::Status sent = context.SendInitialMetadata(first);
    if (!sent.ok()) co_return sent;
    Line line;
    for (uint32_t i = 0; i < request.last(); ++i) {
      line.set_text(absl::StrCat("line ", i));
      if (!co_await writer.Write(line)) break;  // nobody reads
    }
    co_return absl::OkStatus();
  }
};

absl::Status ReadLog(const std::shared_ptr<sluice::Channel>& channel, const TailRequest& request,
                     std::string* version, std::vector<std::string>* texts) {
  LogClient client(channel);
  sluice::CallContext context(absl::Seconds(10));
  auto lines = client.Tail(context, request);  // sluice::ClientReader<Line>
  sluice::Metadata first;
  if (lines.ReadInitialMetadata(&first)) *version = first.Find("version").value_or("");
  Line line;
  while (lines.Read(&line)) texts->push_back(line.text());
  return lines.Finish();
}

// The table "Names": each of Sluice's names, used as it says.
static_assert(requires(std::shared_ptr<Channel> channel, Server& server, CallContext& call,
                       ServerContext& context, const Metadata& metadata, std::stop_source stop,
                       absl::Status status, ChannelOptions options, ServerOptions server_options,
                       EchoClient client, SayRequest request, SayReply reply, Line line,
                       Executor* executor) {
  { Channel::Connect("host:1", options) } -> std::same_as<absl::StatusOr<std::shared_ptr<Channel>>>;
  options.connect_in_background = true;
  options.stream_window = server_options.stream_window;
  channel->connection_state();
  channel->WaitUntilConnected(absl::Seconds(1));
  { Server::Create(server_options) } -> std::same_as<absl::StatusOr<std::unique_ptr<Server>>>;
  { server.Listen("host:1") } -> std::same_as<absl::StatusOr<uint16_t>>;
  server.Wait();
  server.Drain(absl::Seconds(1));
  server.Shutdown(absl::Seconds(1));
  CallContext(absl::Seconds(1));
  CallContext::NoDeadline();
  CallContext::FromServer(context);
  call.set_wait_for_ready(true);
  call.set_stop_token(stop.get_token());
  { call.AddMetadata("key", "value") } -> std::same_as<absl::Status>;
  { call.reply_metadata() } -> std::same_as<const Metadata&>;
  {metadata.entries()};
  { context.metadata() } -> std::same_as<const Metadata&>;
  { context.AddReplyMetadata("key", "value") } -> std::same_as<absl::Status>;
  { context.SendInitialMetadata(metadata) } -> std::same_as<absl::Status>;
  { context.cancelled() } -> std::same_as<bool>;
  context.stop_token();
  context.time_left_on_arrival();
  { context.peer() } -> std::same_as<const std::string&>;
  client.Say(call, request);
  client.StartSay(call, request, &reply, [](const absl::Status&) {});
  client.CoSay(call, request);
  status.SetPayload("type.googleapis.com/shop.OutOfStock", absl::Cord());
  DetailOf(status);
  { IsRetrySafe(status) } -> std::same_as<bool>;
  RunOn(executor);
  SleepFor(absl::Seconds(1), context.stop_token());
  InProcess::Start;
});
static_assert(requires(ClientReader<Line> reader, ClientWriter<Line> writer,
                       ClientReaderWriter<Line, Line> both, Line line, Metadata metadata) {
  reader.Read(&line);
  reader.CoRead(&line);
  reader.StartRead(&line, [](bool) {});
  reader.ReadInitialMetadata(&metadata);
  reader.CoReadInitialMetadata(&metadata);
  reader.StartReadInitialMetadata(&metadata, [](bool) {});
  writer.Write(line);
  writer.WritesDone();
  both.Finish();
  both.CoFinish();
  both.Cancel();
});

TEST(FromGrpcSnippetsTest, InitialMetadataIsReadBeforeTheLines) {
  LogImpl log;
  auto process = sluice::InProcess::Start({&log});
  ASSERT_TRUE(process.ok()) << process.status();
  const auto channel = (*process)->NewChannel();
  ASSERT_TRUE(channel.ok()) << channel.status();
  TailRequest request;
  request.set_last(3);
  std::string version;
  std::vector<std::string> texts;
  absl::Status status;
  do {  // as below
    texts.clear();
    status = ReadLog(*channel, request, &version, &texts);
  } while (absl::IsDeadlineExceeded(status));
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(version, "7");
  EXPECT_EQ(texts, (std::vector<std::string>{"line 0", "line 1", "line 2"}));
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
