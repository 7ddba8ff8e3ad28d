// SPDX-License-Identifier: Apache-2.0
//
// The client styles and the server styles of unary calls: callback, co_await; coroutine, executor. Cancellation.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "middleware/api/client_call.h"
#include "tests/middleware/api/chat_service.h"
#include "tests/support/executors.h"

namespace sluice {
namespace styles_test {

using testing_support::ChatClient;
using testing_support::ChatCoServiceBase;
using testing_support::ChatServiceBase;
using testing_support::ChatWorld;
using testing_support::Gate;
using testing_support::Line;
using testing_support::OutOfStock;
using testing_support::ThreadExecutor;

using StylesTest = ChatWorld;

TEST_F(StylesTest, CallbackGetsTheReplyOnce) {
  CallContext context(absl::Seconds(30));
  const Line request = Text("hello");
  Line reply;
  int ended = 0;
  ASSERT_TRUE(client()
                  .StartSay(context, request, &reply,
                            [&ended](const absl::Status& status) {
                              EXPECT_TRUE(status.ok()) << status;
                              ++ended;
                            })
                  .ok());
  DriveUntil([&] { return ended > 0; });
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(reply.text(), "hello");
}

TEST_F(StylesTest, CallbackThatNeverRunsIsSaidAtTheStart) {
  CallContext context(absl::ZeroDuration());
  const Line request = Text("hello");
  Line reply;
  bool ran = false;
  const absl::Status status =
      client().StartSay(context, request, &reply, [&ran](const absl::Status&) { ran = true; });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  channel_.reset();
  EXPECT_FALSE(ran);
}

Task<absl::StatusOr<std::string>> SayTwice(ChatClient client, std::string text) {
  CallContext context(absl::Seconds(30));
  Line request;
  request.set_text(text);
  const absl::StatusOr<Line> first = co_await client.CoSay(context, request);
  if (!first.ok()) co_return first.status();
  request.set_text(first->text() + "!");
  const absl::StatusOr<Line> second = co_await client.CoSay(context, request);
  if (!second.ok()) co_return second.status();
  co_return second->text();
}

TEST_F(StylesTest, CoroutineAwaitsOneCallAfterTheOther) {
  std::optional<absl::StatusOr<std::string>> good, bad;
  Spawn(SayTwice(client(), "hello"), [&](absl::StatusOr<std::string> text) { good = text; });
  Spawn(SayTwice(client(), "fail"), [&](absl::StatusOr<std::string> text) { bad = text; });
  DriveUntil([&] { return good.has_value() && bad.has_value(); });
  ASSERT_TRUE(good->ok()) << good->status();
  EXPECT_EQ(**good, "hello!");
  EXPECT_EQ(bad->status().code(), absl::StatusCode::kNotFound);
}

TEST_F(StylesTest, ExceptionOfACoroutineReachesTheOneThatAwaitsIt) {
  struct Oops {};
  const auto thrower = [](ChatClient client) -> Task<int> {
    CallContext context(absl::Seconds(30));
    Line request;
    (void)co_await client.CoSay(context, request);
    throw Oops();
  };
  const auto catcher = [&](ChatClient client) -> Task<std::string> {
    try {
      co_await thrower(client);
    } catch (const Oops&) {
      co_return "caught";
    }
    co_return "not thrown";
  };
  std::optional<std::string> result;
  Spawn(catcher(client()), [&](std::string text) { result = text; });
  DriveUntil([&] { return result.has_value(); });
  EXPECT_EQ(*result, "caught");
}

TEST_F(StylesTest, DestroyedCoroutineGivesItsCallUp) {
  {
    CallContext context(absl::Seconds(600));
    const Line request = Text("wait");
    const auto say = [&](ChatClient client) -> Task<void> {
      (void)co_await client.CoSay(context, request);
      ADD_FAILURE() << "nobody was to go on";
    };
    // Started by hand, so that it can be destroyed while it waits.
    Task<void> task = say(client());
    auto awaiter = task.operator co_await();
    awaiter.await_suspend(std::noop_coroutine()).resume();
    chat_.waiting.Wait();
  }
  chat_.stopped.Wait();  // the server has heard of it
  EXPECT_EQ(channel_->counters().calls_failed, 1u);
}

TEST_F(StylesTest, StatusOfAHandlerArrivesWithItsWholeTextAndItsPayloads) {
  CallContext context(absl::Seconds(30));
  EXPECT_EQ(client().Say(context, Text("order")).status(), OutOfStock());
  auto lines = client().Tail(context, Text("order", 1));
  Line line;
  EXPECT_TRUE(lines.Read(&line));
  EXPECT_FALSE(lines.Read(&line));
  EXPECT_EQ(lines.Finish(), OutOfStock());
}

TEST_F(StylesTest, MetadataGoesBothWays) {
  CallContext context(absl::Seconds(30));
  ASSERT_TRUE(context.AddMetadata("who", "me").ok());
  ASSERT_TRUE(context.AddMetadata("trace", std::string("\0\xff", 2)).ok());
  const auto reply = client().Say(context, Text("hello"));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->text(), "me");
  EXPECT_EQ(context.reply_metadata().Find("seen"), "me");
  CallContext plain(absl::Seconds(30));
  ASSERT_TRUE(client().Say(plain, Text("hello")).ok());
  EXPECT_TRUE(plain.reply_metadata().entries().empty());
}

// ---- Stopping

TEST_F(StylesTest, StopEndsEveryStyleOnceAndTheServerHearsOfIt) {
  for (const int style : {0, 1, 2}) {
    SCOPED_TRACE(style);
    testing_support::ChatService chat;
    Start(&chat);
    std::stop_source stop;
    CallContext context(absl::Seconds(600));
    context.set_stop_token(stop.get_token());
    const Line request = Text("wait");
    Line reply;
    std::thread stopper([&] {
      chat.waiting.Wait();
      stop.request_stop();
    });
    std::vector<absl::Status> ends;
    if (style == 0) {
      ends.push_back(client().Say(context, request, &reply));
    } else if (style == 1) {
      ASSERT_TRUE(client()
                      .StartSay(context, request, &reply,
                                [&ends](const absl::Status& status) { ends.push_back(status); })
                      .ok());
      DriveUntil([&] { return !ends.empty(); });
    } else {
      const auto say = [&](ChatClient client) -> Task<absl::Status> {
        co_return (co_await client.CoSay(context, request)).status();
      };
      Spawn(say(client()), [&ends](absl::Status status) { ends.push_back(status); });
      DriveUntil([&] { return !ends.empty(); });
    }
    stopper.join();
    ASSERT_EQ(ends.size(), 1u);
    EXPECT_EQ(ends[0].code(), absl::StatusCode::kCancelled) << ends[0];
    chat.stopped.Wait();
    TearDown();
    EXPECT_EQ(ends.size(), 1u);
  }
}

TEST_F(StylesTest, StopThatWasRequestedBeforeStartsNothing) {
  std::stop_source stop;
  stop.request_stop();
  CallContext context(absl::Seconds(30));
  context.set_stop_token(stop.get_token());
  EXPECT_EQ(client().Say(context, Text("hello")).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(channel_->counters().calls_started, 0u);
}

TEST_F(StylesTest, DeadlineStopsTheHandler) {
  CallContext context(absl::Milliseconds(50));
  EXPECT_EQ(client().Say(context, Text("wait")).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  chat_.stopped.Wait();
}

TEST_F(StylesTest, DeathOfTheCallerStopsTheHandler) {
  CallContext context(absl::Seconds(600));
  const Line request = Text("wait");
  Line reply;
  ASSERT_TRUE(client().StartSay(context, request, &reply, [](const absl::Status&) {}).ok());
  chat_.waiting.Wait();
  client_end_->Kill();
  chat_.stopped.Wait();
}

// Answers with what the server at the end of its channel says.
class Relay final : public ChatCoServiceBase {
 public:
  explicit Relay(std::shared_ptr<Channel> onward) : onward_(std::move(onward)) {}
  Task<absl::Status> Say(ServerContext& context, const Line& request, Line* reply) override {
    CallContext onward =
        request.number() == 0 ? CallContext::FromServer(context) : CallContext(absl::Seconds(60));
    const std::thread::id here = std::this_thread::get_id();
    const absl::StatusOr<Line> answer = co_await onward_.CoSay(onward, request);
    EXPECT_EQ(std::this_thread::get_id(), here) << "a handler goes on where it began";
    if (!answer.ok()) co_return answer.status();
    *reply = *answer;
    co_return absl::OkStatus();
  }

 private:
  ChatClient onward_;
};

class ThirdHopTest : public ChatWorld {
 protected:
  void SetUp() override {
    ChatWorld::SetUp();
    relay_ = std::make_unique<Relay>(channel_);
    testing_support::FakeNetwork::Options fake;
    auto middle = Server::CreateOn(std::make_unique<testing_support::FakeStack>(&network_, fake),
                                   ServerOptions());
    ASSERT_TRUE(middle.ok());
    middle_ = *std::move(middle);
    ASSERT_TRUE(middle_->Register(relay_.get()).ok());
    ASSERT_TRUE(middle_->Listen("middle:1").ok());
    auto first = Channel::ConnectOn(std::make_unique<testing_support::FakeStack>(&network_, fake),
                                    "middle:1", {});
    ASSERT_TRUE(first.ok()) << first.status();
    first_ = *first;
  }
  void TearDown() override {
    first_.reset();
    middle_.reset();
    relay_.reset();
    ChatWorld::TearDown();
  }

  std::unique_ptr<Relay> relay_;
  std::unique_ptr<Server> middle_;
  std::shared_ptr<Channel> first_;
};

TEST_F(ThirdHopTest, ReplyComesBack) {
  CallContext context(absl::Seconds(30));
  const auto reply = ChatClient(first_).Say(context, Text("hello"));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->text(), "hello");
}

TEST_F(ThirdHopTest, StopAndDeadlineReachTheThird) {
  std::stop_source stop;
  CallContext context(absl::Seconds(600));
  context.set_stop_token(stop.get_token());
  std::thread stopper([&] {
    chat_.waiting.Wait();
    stop.request_stop();
  });
  const auto reply = ChatClient(first_).Say(context, Text("wait"));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kCancelled);
  chat_.stopped.Wait();
  stopper.join();
}

TEST_F(ThirdHopTest, DeadlineReachesTheThird) {
  CallContext context(absl::Milliseconds(50));
  const auto reply = ChatClient(first_).Say(context, Text("wait"));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kDeadlineExceeded);
  chat_.stopped.Wait();
}

TEST_F(ThirdHopTest, ContextOfItsOwnIsNotStopped) {
  std::stop_source stop;
  CallContext context(absl::Seconds(600));
  context.set_stop_token(stop.get_token());
  std::thread stopper([&] {
    chat_.waiting.Wait();
    stop.request_stop();
  });
  const auto reply = ChatClient(first_).Say(context, Text("wait", 1));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kCancelled);
  stopper.join();
  EXPECT_FALSE(chat_.stopped.open());
  server_end_->Kill();  // so that the call onward ends
}

// ---- Executor

class PlainChat final : public ChatServiceBase {
 public:
  // Each "meet" waits until there are two of them.
  absl::Status Say(ServerContext& context, const Line& request, Line* reply) override {
    if (request.text() == "meet") {
      if (meeting.fetch_add(1) == 1) both.Open();
      both.Wait();
    }
    if (request.text() == "wait") {
      began.Open();
      std::stop_token token = context.stop_token();
      Gate stop;
      const std::stop_callback callback(token, [&] { stop.Open(); });
      stop.Wait();
      stopped.Open();
      return absl::CancelledError("nobody waits");
    }
    reply->set_text(request.text());
    return absl::OkStatus();
  }
  std::atomic<int> meeting{0};
  Gate both, began, stopped;
};

TEST_F(StylesTest, ExecutorRunsPlainHandlersSeveralAtATime) {
  PlainChat plain;
  ThreadExecutor threads;
  Start(&plain, {.executor = &threads});
  int ended = 0;
  CallContext context(absl::Seconds(60));
  const Line request = Text("meet");
  Line replies[2];
  for (Line& reply : replies) {
    ASSERT_TRUE(client()
                    .StartSay(context, request, &reply,
                              [&ended](const absl::Status& status) {
                                EXPECT_TRUE(status.ok()) << status;
                                ++ended;
                              })
                    .ok());
  }
  DriveUntil([&] { return ended == 2; });
  EXPECT_EQ(replies[0].text(), "meet");
  TearDown();
}

TEST_F(StylesTest, ExecutorsHandlerIsToldToStop) {
  PlainChat plain;
  ThreadExecutor threads;
  Start(&plain, {.executor = &threads});
  std::stop_source stop;
  CallContext context(absl::Seconds(600));
  context.set_stop_token(stop.get_token());
  std::thread stopper([&] {
    plain.began.Wait();
    stop.request_stop();
  });
  EXPECT_EQ(client().Say(context, Text("wait")).status().code(), absl::StatusCode::kCancelled);
  plain.stopped.Wait();
  stopper.join();
  TearDown();
}

TEST_F(StylesTest, ShutdownTellsHandlersAndWaitsForThem) {
  CallContext context(absl::Seconds(600));
  const Line request = Text("wait");
  Line reply;
  std::atomic<bool> ended{false};
  ASSERT_TRUE(client()
                  .StartSay(context, request, &reply,
                            [&ended](const absl::Status& status) {
                              EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
                              ended = true;
                            })
                  .ok());
  chat_.waiting.Wait();
  EXPECT_TRUE(server_->Shutdown(absl::Milliseconds(10)).ok());
  chat_.stopped.Wait();
  DriveUntil([&] { return ended.load(); });
}

TEST_F(StylesTest, TooManyCallsUnderWayAreRefused) {
  server_options_.max_concurrent_calls = 1;
  Start(&chat_);
  std::stop_source stop;
  CallContext held(absl::Seconds(600));
  held.set_stop_token(stop.get_token());
  const Line request = Text("wait");
  Line reply;
  bool ended = false;
  ASSERT_TRUE(client()
                  .StartSay(held, request, &reply, [&ended](const absl::Status&) { ended = true; })
                  .ok());
  chat_.waiting.Wait();
  CallContext context(absl::Seconds(30));
  const auto refused = client().Say(context, Text("hello"));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(refused.status().message()).find("max_concurrent_calls"),
            std::string::npos);
  stop.request_stop();
  DriveUntil([&] { return ended; });
  chat_.stopped.Wait();
}

}  // namespace styles_test
}  // namespace sluice
