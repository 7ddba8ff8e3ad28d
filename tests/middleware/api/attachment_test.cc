// SPDX-License-Identifier: Apache-2.0
//
// Bytes beside the message of a request and of a reply, in every style of client and handler.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "examples/echo/echo.sluice.h"
#include "middleware/api/in_process.h"

namespace sluice {
namespace {

using examples::echo::EchoClient;
using examples::echo::EchoCoServiceBase;
using examples::echo::EchoServiceBase;
using examples::echo::SayReply;
using examples::echo::SayRequest;

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr size_t kLimit = 1 << 20;

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

// Answers with the attachment, in capitals at its ends, and with the message.
absl::Status Answer(ServerContext& context, const SayRequest& request, SayReply* reply) {
  std::string back(reinterpret_cast<const char*>(context.attachment().data()),
                   context.attachment().size());
  if (!back.empty()) back.front() = back.back() = 'X';
  if (request.payload() == "double") back += back;
  context.set_reply_attachment(std::move(back));
  reply->set_payload(request.payload());
  return request.payload() == "fail" ? absl::NotFoundError("told to") : absl::OkStatus();
}

class Plain final : public EchoServiceBase {
  absl::Status Say(ServerContext& context, const SayRequest& request, SayReply* reply) override {
    return Answer(context, request, reply);
  }
};

class Coroutine final : public EchoCoServiceBase {
  Task<absl::Status> Say(ServerContext& context, const SayRequest& request,
                         SayReply* reply) override {
    co_return Answer(context, request, reply);
  }
};

class Threads final : public Executor {
 public:
  ~Threads() override {
    for (std::thread& thread : threads_) thread.join();
  }
  void Run(absl::AnyInvocable<void() &&> work) override {
    threads_.emplace_back([work = std::move(work)]() mutable { std::move(work)(); });
  }

 private:
  std::vector<std::thread> threads_;  // the polling thread's
};

class AttachmentTest : public testing::Test {
 protected:
  void Start(Service* service, const RegisterOptions& registering = {}) {
    ServerOptions options;
    options.limits.max_large_message_bytes = kLimit;
    auto world = InProcess::Start({service}, options, registering);
    ASSERT_TRUE(world.ok()) << world.status();
    world_ = std::move(*world);
    auto channel = world_->NewChannel();
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *channel;
  }
  absl::Status Say(CallContext& context, const std::string& text) {
    SayRequest request;
    request.set_payload(text);
    const auto reply = EchoClient(channel_).Say(context, request);
    if (reply.ok()) {
      EXPECT_EQ(reply->payload(), text);
    }
    return reply.status();
  }
  // Of several sizes: beside a small message, in a large one.
  void ExpectBothWays() {
    CallContext context(kLong);
    for (const size_t size : {2, 1000, 100'000, 1'000'000}) {
      const std::string sent = std::string(1, 'a') + std::string(size - 2, 'b') + "c";
      context.set_attachment(Bytes(sent));
      ASSERT_TRUE(Say(context, "text").ok());
      EXPECT_EQ(context.reply_attachment(), "X" + std::string(size - 2, 'b') + "X");
    }
    context.set_attachment({});
    ASSERT_TRUE(Say(context, "text").ok());
    EXPECT_EQ(context.reply_attachment(), "") << "that of the call before is gone";
  }

  Plain plain_;
  Coroutine coroutine_;
  Threads threads_;
  std::unique_ptr<InProcess> world_;
  std::shared_ptr<Channel> channel_;
};

TEST_F(AttachmentTest, PlainHandler) {
  Start(&plain_);
  ExpectBothWays();
}

TEST_F(AttachmentTest, CoroutineHandler) {
  Start(&coroutine_);
  ExpectBothWays();
}

TEST_F(AttachmentTest, HandlerOnAnotherThread) {
  Start(&plain_, {.executor = &threads_});
  ExpectBothWays();
}

TEST_F(AttachmentTest, CallWithACallback) {
  Start(&plain_);
  CallContext context(kLong);
  const std::string sent = "abc";
  context.set_attachment(Bytes(sent));
  bool done = false;
  SayReply reply;
  const SayRequest request;
  const absl::Status started =
      EchoClient(channel_).StartSay(context, request, &reply, [&](const absl::Status& status) {
        EXPECT_TRUE(status.ok()) << status;
        done = true;
      });
  ASSERT_TRUE(started.ok()) << started;
  ASSERT_TRUE(channel_->Drive([&] { return done; }, kLong));
  EXPECT_EQ(context.reply_attachment(), "XbX");
}

TEST_F(AttachmentTest, StaysWithTheCallThatItIsOf) {
  Start(&plain_);
  CallContext with(kLong);
  CallContext without(kLong);
  const std::string sent = "abc";
  with.set_attachment(Bytes(sent));
  ASSERT_TRUE(Say(with, "one").ok());
  ASSERT_TRUE(Say(without, "two").ok());
  EXPECT_EQ(with.reply_attachment(), "XbX");
  EXPECT_EQ(without.reply_attachment(), "");
}

TEST_F(AttachmentTest, DoesNotGoWithAnError) {
  Start(&plain_);
  CallContext context(kLong);
  const std::string sent = "abc";
  context.set_attachment(Bytes(sent));
  EXPECT_EQ(Say(context, "fail").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(context.reply_attachment(), "");
}

TEST_F(AttachmentTest, CountsTowardsTheLimitOfAMessage) {
  Start(&plain_);
  CallContext context(kLong);
  const std::string large(kLimit, 'a');
  context.set_attachment(Bytes(large));
  const absl::Status request = Say(context, "");
  EXPECT_EQ(request.code(), absl::StatusCode::kResourceExhausted) << request;
  EXPECT_NE(request.message().find("1048580 bytes, the limit is 1048576"), std::string::npos)
      << request;
  const std::string half(kLimit / 2, 'a');
  context.set_attachment(Bytes(half));
  const absl::Status reply = Say(context, "double");
  EXPECT_EQ(reply.code(), absl::StatusCode::kResourceExhausted) << reply;
  EXPECT_EQ(context.reply_attachment(), "");
  EXPECT_TRUE(Say(context, "").ok());
}

}  // namespace
}  // namespace sluice
