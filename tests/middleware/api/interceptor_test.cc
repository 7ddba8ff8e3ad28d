// SPDX-License-Identifier: Apache-2.0
//
// What sees calls on their way, at both ends, and who may call.
#include "middleware/api/interceptor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "middleware/api/client_call.h"
#include "middleware/api/in_process.h"
#include "tests/middleware/api/chat.sluice.h"

namespace sluice {
namespace interceptor_test {

using testing_support::Lasting;
using tests::chat::ChatClient;
using tests::chat::ChatServiceBase;
using tests::chat::Line;

// What happened, in its order; from any thread.
class Journal {
 public:
  void Add(std::string line) {
    std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
    changed_.notify_all();
  }
  // Of as many as that, waited for.
  std::vector<std::string> Lines(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(30), [&] { return lines_.size() >= count; });
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

std::string CodeOf(const absl::Status& status) { return absl::StatusCodeToString(status.code()); }

class ClientWitness final : public ClientInterceptor {
 public:
  ClientWitness(std::string name, Journal* journal, absl::Status answer = absl::OkStatus())
      : name_(std::move(name)), journal_(journal), answer_(std::move(answer)) {}
  absl::Status OnCall(ClientCall& call) override {
    journal_->Add(name_ + " sees " + call.method());
    if (answer_.ok()) return call.AddMetadata("by", name_);
    return answer_;
  }
  void OnEnd(const ClientCall&, const absl::Status& status, absl::Duration took) override {
    EXPECT_GE(took, absl::ZeroDuration());
    journal_->Add(name_ + " hears " + CodeOf(status));
  }

 private:
  const std::string name_;
  Journal* const journal_;
  const absl::Status answer_;
};

class ServerWitness final : public ServerInterceptor {
 public:
  ServerWitness(std::string name, Journal* journal, absl::Status answer = absl::OkStatus())
      : name_(std::move(name)), journal_(journal), answer_(std::move(answer)) {}
  absl::Status OnCall(const ServerContext& context) override {
    journal_->Add(name_ + " sees " + context.method());
    return answer_;
  }
  void OnEnd(const ServerContext& context, const absl::Status& status,
             absl::Duration took) override {
    EXPECT_GE(took, absl::ZeroDuration());
    EXPECT_FALSE(context.peer().empty());
    journal_->Add(name_ + " hears " + CodeOf(status));
  }

 private:
  const std::string name_;
  Journal* const journal_;
  const absl::Status answer_;
};

// "fail" fails; otherwise it says the metadata that came.
class Chat final : public ChatServiceBase {
 public:
  absl::Status Say(ServerContext& context, const Line& request, Line* reply) override {
    ++calls;
    if (request.text() == "fail") return absl::NotFoundError("no");
    const Metadata& metadata = context.metadata();
    for (const auto& [key, value] : metadata.entries()) {
      reply->set_text(reply->text() + key + "=" + value + " ");
    }
    return absl::OkStatus();
  }
  Task<absl::Status> Tail(ServerContext&, const Line&, ServerWriter<Line> writer) override {
    ++calls;
    for (int i = 0; i < 3; ++i) co_await writer.Write(Line());
    co_return absl::OkStatus();
  }
  std::atomic<int> calls{0};
};

class InterceptorTest : public ::testing::Test {
 protected:
  void Start() {
    auto world = InProcess::Start({&chat_}, server_options_);
    ASSERT_TRUE(world.ok()) << world.status();
    world_ = *std::move(world);
    auto channel = world_->NewChannel(channel_options_);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *channel;
  }
  ~InterceptorTest() override { channel_.reset(); }
  absl::StatusOr<Line> Say(const std::string& text, CallContext& context) {
    Line request;
    request.set_text(text);
    return ChatClient(channel_).Say(context, request);
  }
  absl::StatusOr<Line> Say(const std::string& text) {
    CallContext context(absl::Seconds(60));
    return Say(text, context);
  }

  Chat chat_;
  Journal client_;
  Journal server_;
  ServerOptions server_options_;
  ChannelOptions channel_options_;
  std::unique_ptr<InProcess> world_;
  std::shared_ptr<Channel> channel_;
};

constexpr char kSay[] = "/sluice.tests.chat.Chat/Say";

TEST_F(InterceptorTest, BothEndsSeeEachCallInOrderAndItsEndInTheOther) {
  channel_options_.interceptors = {std::make_shared<ClientWitness>("a", &client_),
                                   std::make_shared<ClientWitness>("b", &client_)};
  server_options_.interceptors = {std::make_shared<ServerWitness>("x", &server_),
                                  std::make_shared<ServerWitness>("y", &server_)};
  Start();
  CallContext context(absl::Seconds(60));
  ASSERT_TRUE(context.AddMetadata("own", "1").ok());
  const auto said = Say("hello", context);
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_EQ(said->text(), "own=1 by=a by=b ") << "what they add goes with it";
  EXPECT_EQ(client_.Lines(4),
            (std::vector<std::string>{std::string("a sees ") + kSay, std::string("b sees ") + kSay,
                                      "b hears OK", "a hears OK"}));
  EXPECT_EQ(server_.Lines(4),
            (std::vector<std::string>{std::string("x sees ") + kSay, std::string("y sees ") + kSay,
                                      "y hears OK", "x hears OK"}));
  EXPECT_EQ(Say("fail").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(client_.Lines(8)[7], "a hears NOT_FOUND");
  EXPECT_EQ(server_.Lines(8)[7], "x hears NOT_FOUND");
  EXPECT_EQ(Say("again", context)->text(), "own=1 by=a by=b ") << "the context is as it was";
}

TEST_F(InterceptorTest, ClientThatRefusesEndsTheCallBeforeItStarts) {
  channel_options_.interceptors = {
      std::make_shared<ClientWitness>("a", &client_),
      std::make_shared<ClientWitness>("b", &client_, absl::PermissionDeniedError("not today")),
      std::make_shared<ClientWitness>("c", &client_)};
  Start();
  EXPECT_EQ(Say("hello").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(client_.Lines(3),
            (std::vector<std::string>{std::string("a sees ") + kSay, std::string("b sees ") + kSay,
                                      "a hears PERMISSION_DENIED"}));
  EXPECT_EQ(chat_.calls, 0);
  CallContext context(absl::Seconds(60));
  Line reply;
  bool ran = false;
  EXPECT_EQ(ChatClient(channel_)
                .StartSay(context, Lasting(""), &reply, [&](const absl::Status&) { ran = true; })
                .code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(ran);
}

TEST_F(InterceptorTest, ServerThatRefusesKeepsTheHandlerFromRunning) {
  server_options_.interceptors = {
      std::make_shared<ServerWitness>("x", &server_),
      std::make_shared<ServerWitness>("y", &server_, absl::ResourceExhaustedError("quota")),
      std::make_shared<ServerWitness>("z", &server_)};
  Start();
  EXPECT_EQ(Say("hello").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(chat_.calls, 0);
  EXPECT_EQ(server_.Lines(3),
            (std::vector<std::string>{std::string("x sees ") + kSay, std::string("y sees ") + kSay,
                                      "x hears RESOURCE_EXHAUSTED"}));
}

TEST_F(InterceptorTest, CallbacksAndStreamsAreSeenToo) {
  channel_options_.interceptors = {std::make_shared<ClientWitness>("a", &client_)};
  server_options_.interceptors = {std::make_shared<ServerWitness>("x", &server_)};
  Start();
  Journal done;
  CallContext context(absl::Seconds(60));
  Line reply;
  ASSERT_TRUE(ChatClient(channel_)
                  .StartSay(context, Lasting(""), &reply,
                            [&](const absl::Status& status) { done.Add(CodeOf(status)); })
                  .ok());
  EXPECT_EQ(done.Lines(1), std::vector<std::string>{"OK"});
  EXPECT_EQ(client_.Lines(2)[1], "a hears OK") << "before the caller's own callback";
  EXPECT_EQ(reply.text(), "by=a ");

  auto lines = ChatClient(channel_).Tail(context, Line());
  Line line;
  int read = 0;
  while (lines.Read(&line)) ++read;
  EXPECT_TRUE(lines.Finish().ok());
  EXPECT_EQ(read, 3);
  EXPECT_EQ(client_.Lines(4)[3], "a hears OK");
  EXPECT_EQ(server_.Lines(4)[2], "x sees /sluice.tests.chat.Chat/Tail");
  EXPECT_EQ(server_.Lines(4)[3], "x hears OK");
}

TEST_F(InterceptorTest, AuthorizationComesFirst) {
  server_options_.authorize = [](const ServerContext& context) -> absl::Status {
    const Metadata& metadata = context.metadata();
    const auto token = metadata.Find("token");
    if (!token.has_value()) return absl::UnauthenticatedError("who are you?");
    if (*token != "open sesame") return absl::PermissionDeniedError("not you");
    return absl::OkStatus();
  };
  server_options_.interceptors = {std::make_shared<ServerWitness>("x", &server_)};
  Start();
  EXPECT_EQ(Say("hello").status().code(), absl::StatusCode::kUnauthenticated);
  CallContext wrong(absl::Seconds(60));
  ASSERT_TRUE(wrong.AddMetadata("token", "guess").ok());
  EXPECT_EQ(Say("hello", wrong).status().code(), absl::StatusCode::kPermissionDenied);
  auto refused = ChatClient(channel_).Tail(wrong, Line());
  Line line;
  EXPECT_FALSE(refused.Read(&line));
  EXPECT_EQ(refused.Finish().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(chat_.calls, 0) << "no handler has run";
  CallContext right(absl::Seconds(60));
  ASSERT_TRUE(right.AddMetadata("token", "open sesame").ok());
  EXPECT_TRUE(Say("hello", right).ok());
  EXPECT_EQ(server_.Lines(2).size(), 2u) << "interceptors see what is authorised";
}

}  // namespace interceptor_test
}  // namespace sluice
