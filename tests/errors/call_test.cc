// SPDX-License-Identifier: Apache-2.0
//
// docs/errors.md, "Calls" and what of "Connecting" a call sees: over the network in memory.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "tests/errors/catalogue.h"
#include "tests/middleware/api/chat_service.h"
#include "tests/support/executors.h"
#include "transport/base/error.h"

namespace sluice {
namespace {

using testing_support::ChatClient;
using testing_support::ChatServiceBase;
using testing_support::ChatWorld;
using testing_support::ExpectCatalogued;
using testing_support::FakeNetwork;
using testing_support::FakeStack;
using testing_support::Gate;
using testing_support::Line;
using testing_support::ManualExecutor;

class CallErrors : public ChatWorld {
 protected:
  static absl::Status Say(const std::shared_ptr<Channel>& channel, const std::string& text,
                          CallContext context = CallContext(absl::Seconds(60))) {
    return ChatClient(channel).Say(context, Text(text)).status();
  }
};

TEST_F(CallErrors, HandlerThatTakesTooLong) {
  ExpectCatalogued("deadline", Say(channel_, "wait", CallContext(absl::Milliseconds(1))));
}

class Thrower final : public ChatServiceBase {
 public:
  absl::Status Say(ServerContext&, const Line&, Line*) override { throw 7; }
};

TEST_F(CallErrors, HandlerThatThrows) {
  Thrower thrower;
  Start(&thrower);
  ExpectCatalogued("exception", Say(channel_, "hello"));
  TearDown();  // before its service
}

TEST_F(CallErrors, ServerThatDoesNotComeUp) {
  ChannelOptions options;
  options.connect_in_background = true;
  auto channel = Channel::ConnectOn(std::make_unique<FakeStack>(&network_, FakeNetwork::Options()),
                                    "nobody:1", options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  ExpectCatalogued("connect-wait", (*channel)->WaitUntilConnected(absl::Milliseconds(1)));
  absl::Status inside;
  const Line request;
  Line reply;
  CallContext context(absl::Milliseconds(1));
  context.set_wait_for_ready(true);
  bool ended = false;
  ASSERT_TRUE(ChatClient(*channel)
                  .StartSay(context, request, &reply,
                            [&](const absl::Status&) {
                              inside = (*channel)->WaitUntilConnected(absl::Seconds(60));
                              ended = true;
                            })
                  .ok());
  ASSERT_TRUE((*channel)->Drive([&] { return ended; }, absl::Seconds(60)));
  ExpectCatalogued("waits-for-connection", inside);
}

TEST_F(CallErrors, StopThatIsRequested) {
  std::stop_source stop;
  std::thread stopper([&] {
    chat_.waiting.Wait();
    stop.request_stop();
  });
  CallContext context(absl::Seconds(60));
  context.set_stop_token(stop.get_token());
  ExpectCatalogued("cancelled", Say(channel_, "wait", std::move(context)));
  stopper.join();
}

TEST_F(CallErrors, ChannelThatIsDestroyed) {
  CallContext context(absl::Seconds(60));
  const Line request = Text("wait");
  Line reply;
  std::optional<absl::Status> ended;
  ASSERT_TRUE(
      client()
          .StartSay(context, request, &reply, [&](const absl::Status& status) { ended = status; })
          .ok());
  channel_.reset();
  ASSERT_TRUE(ended.has_value());
  ExpectCatalogued("channel-closed", *ended);
}

TEST_F(CallErrors, ServerThatDies) {
  absl::Status ended;
  std::thread caller([&] { ended = Say(channel_, "wait"); });
  chat_.waiting.Wait();
  server_end_->Kill();
  caller.join();
  ExpectCatalogued("lost", ended);
  ExpectCatalogued("not-connected", Say(channel_, "again"));
}

TEST_F(CallErrors, PlacesForCallsAreTaken) {
  ChannelOptions options;
  options.max_outstanding_calls = 1;
  auto channel = Channel::ConnectOn(
      std::make_unique<FakeStack>(&network_, testing_support::FakeNetwork::Options(), nullptr),
      kAddress, options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  CallContext context(absl::Seconds(60));
  const Line request = Text("wait");
  Line reply;
  ASSERT_TRUE(
      ChatClient(*channel).StartSay(context, request, &reply, [](const absl::Status&) {}).ok());
  ExpectCatalogued("outstanding", Say(*channel, "more"));
  channel->reset();  // before what its call names
}

TEST_F(CallErrors, ServerThatHasEnoughCalls) {
  server_options_.max_concurrent_calls = 1;
  Start(&chat_);
  std::stop_source stop;
  std::thread caller([&] {
    CallContext context(absl::Seconds(60));
    context.set_stop_token(stop.get_token());
    (void)Say(channel_, "wait", std::move(context));
  });
  chat_.waiting.Wait();
  ExpectCatalogued("overloaded", Say(channel_, "more"));
  stop.request_stop();
  caller.join();
}

TEST_F(CallErrors, ExecutorThatHasEnough) {
  class Plain final : public ChatServiceBase {
    absl::Status Say(ServerContext&, const Line&, Line*) override { return absl::OkStatus(); }
  };
  Plain plain;
  ManualExecutor executor;
  Start(&plain, {.executor = &executor, .max_waiting_calls = 1, .max_wait = absl::Nanoseconds(1)});
  CallContext context(absl::Seconds(60));
  const Line request = Text("first");
  Line reply;
  std::optional<absl::Status> first;
  ASSERT_TRUE(
      client()
          .StartSay(context, request, &reply, [&](const absl::Status& status) { first = status; })
          .ok());
  ExpectCatalogued("executor-full", Say(channel_, "second"));
  executor.RunOne();  // a thread that comes late: more than a nanosecond has passed
  DriveUntil([&] { return first.has_value(); });
  ExpectCatalogued("executor-late", *first);
  TearDown();
}

TEST_F(CallErrors, CallerWhoMayNot) {
  server_options_.authorize = [](const ServerContext&) {
    return base::Error(absl::StatusCode::kPermissionDenied, "not for you",
                       {.layer = "test", .cause = "because", .remedy = "ask somebody"});
  };
  Start(&chat_);
  const absl::Status status = Say(channel_, "hello");
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied)
      << "as the server's program gave it";
  EXPECT_EQ(status.message(), "not for you: because; ask somebody");
}

TEST_F(CallErrors, MessagesThatAreTooLarge) {
  server_options_.limits.max_large_message_bytes = 100'000;
  Start(&chat_);
  ExpectCatalogued("request-size", Say(channel_, std::string(1 << 20, 'x')));
  ExpectCatalogued("buffer-size", channel_->MakeBuffer(1 << 20).status());
  CallContext context(absl::Seconds(30));
  Line sum;
  auto numbers = client().Sum(context, &sum);
  EXPECT_FALSE(numbers.Write(Text(std::string(1 << 20, 'x'))));
  numbers.WritesDone();
  ExpectCatalogued("stream-size", numbers.Finish());
  class Talkative final : public ChatServiceBase {
    absl::Status Say(ServerContext&, const Line&, Line* reply) override {
      reply->set_text(std::string(1 << 20, 'x'));
      return absl::OkStatus();
    }
  };
  Talkative talkative;
  Start(&talkative);
  ExpectCatalogued("reply-size", Say(channel_, "short"));
  TearDown();
}

// Its calls end with what they hear of their initial metadata: of the second that they send, or of one that is too large.
class Greeter final : public testing_support::ChatCoServiceBase {
 public:
  Task<absl::Status> Talk(ServerContext& context, ServerReader<Line> reader,
                          ServerWriter<Line>) override {
    Line line;
    co_await reader.Read(&line);
    Metadata metadata;
    EXPECT_TRUE(metadata.Add("key", line.text()).ok());
    const absl::Status first = context.SendInitialMetadata(metadata);
    if (!first.ok()) co_return first;
    co_return context.SendInitialMetadata(metadata);
  }
};

TEST_F(CallErrors, InitialMetadataThatIsNotSent) {
  server_options_.limits.max_message_bytes = 1024;
  Greeter greeter;
  Start(&greeter);
  for (const auto& [bytes, entry] : {std::pair{1, "initial-late"}, {2000, "initial-size"}}) {
    CallContext context(absl::Seconds(30));
    auto talk = client().Talk(context);
    EXPECT_TRUE(talk.Write(Text(std::string(static_cast<size_t>(bytes), 'x'))));
    talk.WritesDone();
    ExpectCatalogued(entry, talk.Finish());
  }
  TearDown();
}

TEST_F(CallErrors, MoreBuffersThanThereIsMemoryFor) {
  constexpr size_t kBytes = 100 << 20;
  const auto first = channel_->MakeBuffer(kBytes);
  const auto second = channel_->MakeBuffer(kBytes);
  ASSERT_TRUE(first.ok() && second.ok());
  ExpectCatalogued("buffer-memory", channel_->MakeBuffer(kBytes).status());
}

TEST_F(CallErrors, MethodsThatAreNotThere) {
  ChatServiceBase nothing;
  Start(&nothing);
  ExpectCatalogued("not-overridden", Say(channel_, "hello"));
  TearDown();
  auto server = Server::CreateOn(
      std::make_unique<FakeStack>(&network_, testing_support::FakeNetwork::Options(), nullptr), {});
  ASSERT_TRUE(server.ok());
  ASSERT_TRUE((*server)->Listen("other:1").ok());
  auto channel = Channel::ConnectOn(
      std::make_unique<FakeStack>(&network_, testing_support::FakeNetwork::Options(), nullptr),
      "other:1");
  ASSERT_TRUE(channel.ok()) << channel.status();
  ExpectCatalogued("no-method", Say(*channel, "hello"));
}

TEST_F(CallErrors, Metadata) {
  CallContext context(absl::Seconds(1));
  ExpectCatalogued("metadata-key", context.AddMetadata("Two Words", "x"));
  ExpectCatalogued("metadata-size", context.AddMetadata("key", std::string(1 << 20, 'x')));
}

TEST_F(CallErrors, CallbackThatWaitsForItsOwnChannel) {
  CallContext context(absl::Seconds(60));
  auto lines = client().Tail(context, Text("x", 3));
  const Line request = Text("hello");
  Line reply;
  std::optional<absl::Status> inside;
  ASSERT_TRUE(
      client()
          .StartSay(context, request, &reply, [&](const absl::Status&) { inside = lines.Finish(); })
          .ok());
  DriveUntil([&] { return inside.has_value(); });
  ExpectCatalogued("waits-in-callback", *inside);
}

TEST_F(CallErrors, HandlerThatOutlivesAShutdown) {
  class Stuck final : public ChatServiceBase {
   public:
    absl::Status Say(ServerContext&, const Line&, Line*) override {
      running.Open();
      released.Wait();
      return absl::OkStatus();
    }
    Gate running;
    Gate released;
  };
  Stuck stuck;
  Start(&stuck);
  std::thread caller([&] { (void)Say(channel_, "hello"); });
  stuck.running.Wait();
  ExpectCatalogued("drain", server_->Drain(absl::Milliseconds(1)));
  ExpectCatalogued("shutdown", server_->Shutdown(absl::Milliseconds(1)));
  stuck.released.Open();
  caller.join();
  EXPECT_TRUE(server_->Shutdown(absl::Seconds(60)).ok());
  TearDown();
}

}  // namespace
}  // namespace sluice
