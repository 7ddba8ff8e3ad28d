// SPDX-License-Identifier: Apache-2.0
//
// Exceptions that leave the user's code: each ends its call with UNKNOWN, is logged, and disturbs nothing else.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "middleware/api/client_call.h"
#include "middleware/api/interceptor.h"
#include "middleware/api/status_detail.h"
#include "middleware/api/stream.h"
#include "middleware/api/task.h"
#include "tests/middleware/api/chat_service.h"
#include "tests/support/kept_log.h"

namespace sluice {
namespace exceptions_test {

using testing_support::ChatClient;
using testing_support::ChatCoServiceBase;
using testing_support::ChatServiceBase;
using testing_support::ChatWorld;
using testing_support::FakeNetwork;
using testing_support::FakeStack;
using testing_support::KeptLog;
using testing_support::Lasting;
using testing_support::Line;

// Throws what the text says.
void ThrowFor(const std::string& text) {
  if (text == "throw") throw std::runtime_error("the cellar is flooded\n");
  if (text == "throw long") throw std::runtime_error(std::string(100'000, 'x'));
  if (text == "throw 7") throw 7;
}

class PlainThrower final : public ChatServiceBase {
 public:
  absl::Status Say(ServerContext&, const Line& request, Line* reply) override {
    ThrowFor(request.text());
    reply->set_text(request.text());
    return absl::OkStatus();
  }
};

class CoThrower final : public ChatCoServiceBase {
 public:
  Task<absl::Status> Say(ServerContext&, const Line& request, Line* reply) override {
    ThrowFor(request.text());
    reply->set_text(request.text());
    co_return absl::OkStatus();
  }
  Task<absl::Status> Talk(ServerContext&, ServerReader<Line> reader,
                          ServerWriter<Line> writer) override {
    Line line;
    while (co_await reader.Read(&line)) {
      ThrowFor(line.text());
      if (!co_await writer.Write(line)) break;
    }
    co_return absl::OkStatus();
  }
};

class ThreadExecutor final : public Executor {
 public:
  ~ThreadExecutor() override {
    for (std::thread& thread : threads_) thread.join();
  }
  void Run(absl::AnyInvocable<void() &&> work) override {
    if (broken) throw std::runtime_error("no thread is to be had");
    threads_.emplace_back(std::move(work));
  }
  bool broken = false;

 private:
  std::vector<std::thread> threads_;
};

class ExceptionsTest : public ChatWorld {
 protected:
  void SetUp() override { server_options_.log = server_log_; }
  std::shared_ptr<Channel> ConnectWith(ChannelOptions options) {
    options.log = client_log_;
    auto channel = Channel::ConnectOn(
        std::make_unique<FakeStack>(&network_, FakeNetwork::Options()), kAddress, options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return channel.ok() ? *channel : nullptr;
  }
  void StartBoth(Service* service, const RegisterOptions& options = {}) {
    Start(service, options);
    channel_ = ConnectWith({});
  }
  absl::Status Say(const std::string& text) {
    CallContext context(absl::Seconds(60));
    return client().Say(context, Text(text)).status();
  }
  static size_t Count(const KeptLog& log) {
    size_t count = 0;
    for (size_t i = 0; i < log.size(); ++i) count += log[i].event == "exception" ? 1 : 0;
    return count;
  }
  void ExpectHandlerIsCaught() {
    const absl::Status status = Say("throw");
    EXPECT_EQ(status.code(), absl::StatusCode::kUnknown) << status;
    EXPECT_NE(status.message().find("handler of /sluice.tests.chat.Chat/Say threw an exception"),
              absl::string_view::npos)
        << status;
    EXPECT_NE(status.message().find("the cellar is flooded?"), absl::string_view::npos) << status;
    ASSERT_TRUE(DetailOf(status).has_value());
    EXPECT_EQ(DetailOf(status)->peer(), kAddress) << "how the client calls the server";
    const absl::Status other = Say("throw 7");
    EXPECT_EQ(other.code(), absl::StatusCode::kUnknown) << other;
    const absl::Status long_one = Say("throw long");
    EXPECT_EQ(long_one.code(), absl::StatusCode::kUnknown);
    EXPECT_LT(long_one.message().size(), 600u);
    EXPECT_TRUE(Say("hello").ok());
    channel_.reset();
    server_.reset();
    EXPECT_EQ(Count(*server_log_), 3u) << server_log_->Lines();
    EXPECT_EQ(Count(*client_log_), 0u) << client_log_->Lines();
  }

  PlainThrower plain_;
  CoThrower co_;
  std::shared_ptr<KeptLog> server_log_ = std::make_shared<KeptLog>();
  std::shared_ptr<KeptLog> client_log_ = std::make_shared<KeptLog>();
};

TEST_F(ExceptionsTest, PlainHandlerThatThrowsEndsItsCallOnly) {
  StartBoth(&plain_);
  ExpectHandlerIsCaught();
}

TEST_F(ExceptionsTest, CoroutineHandlerThatThrowsEndsItsCallOnly) {
  StartBoth(&co_);
  ExpectHandlerIsCaught();
}

TEST_F(ExceptionsTest, HandlerOnAnExecutorThatThrowsEndsItsCallOnly) {
  ThreadExecutor executor;
  StartBoth(&plain_, {.executor = &executor});
  ExpectHandlerIsCaught();
}

TEST_F(ExceptionsTest, ExecutorThatThrowsRefusesTheCall) {
  ThreadExecutor executor;
  executor.broken = true;
  StartBoth(&plain_, {.executor = &executor});
  const absl::Status status = Say("hello");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown) << status;
  EXPECT_NE(status.message().find("no thread is to be had"), absl::string_view::npos) << status;
  channel_.reset();
  server_.reset();
  EXPECT_EQ(Count(*server_log_), 1u);
}

TEST_F(ExceptionsTest, StreamingHandlerThatThrowsEndsItsCallAfterWhatItHasSent) {
  StartBoth(&co_);
  CallContext context(absl::Seconds(60));
  auto talk = client().Talk(context);
  Line line;
  ASSERT_TRUE(talk.Write(Text("hello")));
  ASSERT_TRUE(talk.Read(&line));
  ASSERT_TRUE(talk.Write(Text("throw")));
  EXPECT_FALSE(talk.Read(&line));
  EXPECT_EQ(talk.Finish().code(), absl::StatusCode::kUnknown);
  EXPECT_TRUE(Say("hello").ok());
}

class ThrowingServerInterceptor final : public ServerInterceptor {
 public:
  absl::Status OnCall(const ServerContext& context) override {
    if (context.metadata().Find("on-call").has_value()) throw std::runtime_error("in OnCall()");
    return absl::OkStatus();
  }
  void OnEnd(const ServerContext& context, const absl::Status&, absl::Duration) override {
    if (context.metadata().Find("on-end").has_value()) throw std::runtime_error("in OnEnd()");
  }
};

TEST_F(ExceptionsTest, AuthorizeAndServerInterceptorsThatThrow) {
  server_options_.interceptors = {std::make_shared<ThrowingServerInterceptor>()};
  server_options_.authorize = [](const ServerContext& context) -> absl::Status {
    if (context.metadata().Find("authorize").has_value()) throw std::runtime_error("in authorize");
    return absl::OkStatus();
  };
  StartBoth(&plain_);
  const auto say = [this](const std::string& key) {
    CallContext context(absl::Seconds(60));
    EXPECT_TRUE(context.AddMetadata(key, "x").ok());
    return client().Say(context, Text("hello")).status();
  };
  const absl::Status refused = say("authorize");
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnknown) << refused;
  EXPECT_NE(refused.message().find("in authorize"), absl::string_view::npos) << refused;
  EXPECT_EQ(say("on-call").code(), absl::StatusCode::kUnknown);
  EXPECT_TRUE(say("on-end").ok()) << "it had its answer by then";
  EXPECT_TRUE(say("nothing").ok());
  channel_.reset();
  server_.reset();
  EXPECT_EQ(Count(*server_log_), 3u) << server_log_->Lines();
}

class ThrowingClientInterceptor final : public ClientInterceptor {
 public:
  absl::Status OnCall(ClientCall& call) override {
    if (call.metadata().Find("on-call").has_value()) throw std::runtime_error("in OnCall()");
    return absl::OkStatus();
  }
  void OnEnd(const ClientCall& call, const absl::Status&, absl::Duration) override {
    if (call.metadata().Find("on-end").has_value()) throw std::runtime_error("in OnEnd()");
  }
};

TEST_F(ExceptionsTest, ClientInterceptorsThatThrow) {
  Start(&plain_);
  ChannelOptions options;
  options.interceptors = {std::make_shared<ThrowingClientInterceptor>()};
  channel_ = ConnectWith(options);
  const auto say = [this](const std::string& key) {
    CallContext context(absl::Seconds(60));
    EXPECT_TRUE(context.AddMetadata(key, "x").ok());
    return client().Say(context, Text("hello")).status();
  };
  EXPECT_EQ(say("on-call").code(), absl::StatusCode::kUnknown);
  EXPECT_TRUE(say("on-end").ok());
  EXPECT_TRUE(say("nothing").ok());
  EXPECT_EQ(Count(*client_log_), 2u) << client_log_->Lines();
}

TEST_F(ExceptionsTest, CallbackThatThrowsIsLoggedAndNothingElse) {
  StartBoth(&plain_);
  CallContext context(absl::Seconds(60));
  std::deque<Line> replies;
  int ended = 0;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client()
                    .StartSay(context, Lasting("hello"), &replies.emplace_back(),
                              [&ended](const absl::Status& status) {
                                EXPECT_TRUE(status.ok()) << status;
                                ++ended;
                                throw std::runtime_error("in the callback");
                              })
                    .ok());
  }
  // The C callback has another way.
  const Line request = Text("hello");
  Line reply;
  ASSERT_TRUE(channel_
                  ->StartCall(
                      ChatClient::SayMethod(), context, request, &reply,
                      [](void* argument, const absl::Status&) {
                        ++*static_cast<int*>(argument);
                        throw 7;
                      },
                      &ended)
                  .ok());
  DriveUntil([&] { return ended == 4; });
  EXPECT_TRUE(Say("hello").ok());
  channel_.reset();
  EXPECT_EQ(Count(*client_log_), 4u) << client_log_->Lines();
}

TEST_F(ExceptionsTest, CallbackOfAStreamThatThrowsEndsTheCall) {
  StartBoth(&co_);
  CallContext context(absl::Seconds(60));
  auto talk = client().Talk(context);
  ASSERT_TRUE(talk.Write(Text("hello")));
  Line line;
  talk.StartRead(&line, [](bool) { throw std::runtime_error("in the callback"); });
  const absl::Status status = talk.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown) << status;
  EXPECT_NE(status.message().find("in the callback"), absl::string_view::npos) << status;
  EXPECT_TRUE(Say("hello").ok());
}

TEST_F(ExceptionsTest, CallbackMayThrowAfterItHasDestroyedItsStream) {
  StartBoth(&co_);
  CallContext context(absl::Seconds(60));
  auto talk = std::make_unique<ClientReaderWriter<Line, Line>>(client().Talk(context));
  ASSERT_TRUE(talk->Write(Text("hello")));
  Line line;
  bool called = false;
  talk->StartRead(&line, [&](bool) {
    called = true;
    talk.reset();
    throw std::runtime_error("in the callback");
  });
  DriveUntil([&] { return called; });
  EXPECT_TRUE(Say("hello").ok());
}

Task<absl::Status> ThrowAfterACall(ChatClient client) {
  CallContext context(absl::Seconds(60));
  const Line request;
  const auto reply = co_await client.CoSay(context, request);
  if (reply.ok()) throw std::runtime_error("in the coroutine");
  co_return absl::OkStatus();
}
Task<absl::Status> AwaitIt(ChatClient client) {
  const absl::Status status = co_await ThrowAfterACall(client);
  co_return status;
}

TEST_F(ExceptionsTest, SpawnedCoroutineThatThrowsEndsWithUnknown) {
  StartBoth(&plain_);
  std::optional<absl::Status> ended;
  Spawn(AwaitIt(client()), [&ended](absl::Status status) { ended = std::move(status); });
  DriveUntil([&] { return ended.has_value(); });
  EXPECT_EQ(ended->code(), absl::StatusCode::kUnknown) << *ended;
  EXPECT_NE(ended->message().find("in the coroutine"), absl::string_view::npos) << *ended;
}

TEST_F(ExceptionsTest, ExceptionOfAConditionLeavesDriveAndTheChannelGoesOn) {
  StartBoth(&plain_);
  EXPECT_THROW(
      (void)channel_->Drive([]() -> bool { throw std::runtime_error("no"); }, absl::Seconds(60)),
      std::runtime_error);
  EXPECT_TRUE(Say("hello").ok());
}

}  // namespace exceptions_test
}  // namespace sluice
