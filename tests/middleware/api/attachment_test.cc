// SPDX-License-Identifier: Apache-2.0
//
// Bytes beside the message of a request and of a reply, in every style of client and handler.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "examples/echo/echo.sluice.h"
#include "middleware/api/in_process.h"
#include "tests/support/executors.h"

namespace sluice {
namespace attachment_test {

using examples::echo::EchoClient;
using examples::echo::EchoCoServiceBase;
using examples::echo::EchoServiceBase;
using examples::echo::SayReply;
using examples::echo::SayRequest;
using testing_support::InlineExecutor;
using testing_support::ThreadExecutor;

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr size_t kLimit = 1 << 20;

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

// Answers with the attachment, in capitals at its ends, and with the message.
absl::Status Answer(ServerContext& context, const SayRequest& request, SayReply* reply) {
  if (request.payload() == "buffer") {
    auto back = context.MakeBuffer(context.attachment().size());
    if (!back.ok()) return back.status();
    std::ranges::copy(context.attachment(), back->data());
    back->bytes().front() = back->bytes().back() = std::byte{'X'};
    context.set_reply_attachment(*std::move(back));
    reply->set_payload(request.payload());
    return absl::OkStatus();
  }
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

  // "abb…bc".
  void SetBuffer(CallContext* context, size_t size) {
    auto buffer = channel_->MakeBuffer(size);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    std::ranges::fill(buffer->bytes(), std::byte{'b'});
    buffer->bytes().front() = std::byte{'a'};
    buffer->bytes().back() = std::byte{'c'};
    context->set_attachment(*std::move(buffer));
  }
  void ExpectBuffersBothWays() {
    CallContext context(kLong);
    for (const size_t size : {2, 1000, 100'000, 1'000'000}) {
      SetBuffer(&context, size);
      ASSERT_TRUE(Say(context, "buffer").ok());
      EXPECT_EQ(context.reply_attachment(), "X" + std::string(size - 2, 'b') + "X");
    }
  }

  Plain plain_;
  Coroutine coroutine_;
  ThreadExecutor threads_;
  InlineExecutor at_once_;
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

TEST_F(AttachmentTest, BuffersWithAPlainHandler) {
  Start(&plain_);
  ExpectBuffersBothWays();
}

TEST_F(AttachmentTest, BuffersWithACoroutineHandler) {
  Start(&coroutine_);
  ExpectBuffersBothWays();
}

TEST_F(AttachmentTest, BuffersWithAHandlerOnAnotherThread) {
  Start(&plain_, {.executor = &threads_});
  ExpectBuffersBothWays();
}

TEST_F(AttachmentTest, BuffersWithAnExecutorThatRunsAtOnce) {
  Start(&plain_, {.executor = &at_once_});
  ExpectBuffersBothWays();
}

TEST_F(AttachmentTest, BuffersWithACallback) {
  Start(&plain_);
  CallContext context(kLong);
  SetBuffer(&context, 100'000);
  bool done = false;
  SayRequest request;
  request.set_payload("buffer");
  SayReply reply;
  const absl::Status started =
      EchoClient(channel_).StartSay(context, request, &reply, [&](const absl::Status& status) {
        EXPECT_TRUE(status.ok()) << status;
        done = true;
      });
  ASSERT_TRUE(started.ok()) << started;
  ASSERT_TRUE(channel_->Drive([&] { return done; }, kLong));
  EXPECT_EQ(context.reply_attachment(), "X" + std::string(99'998, 'b') + "X");
}

Task<absl::Status> SayOnce(EchoClient client, CallContext& context, const SayRequest& request) {
  const auto reply = co_await client.CoSay(context, request);
  co_return reply.status();
}

TEST_F(AttachmentTest, BuffersWithCoAwait) {
  Start(&plain_);
  CallContext context(kLong);
  SetBuffer(&context, 100'000);
  SayRequest request;
  request.set_payload("buffer");
  bool done = false;
  Spawn(SayOnce(EchoClient(channel_), context, request), [&](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    done = true;
  });
  ASSERT_TRUE(channel_->Drive([&] { return done; }, kLong));
  EXPECT_EQ(context.reply_attachment(), "X" + std::string(99'998, 'b') + "X");
}

TEST_F(AttachmentTest, CopiesOfAContextShareTheBufferAndNotTheReply) {
  Start(&plain_);
  CallContext context(kLong);
  SetBuffer(&context, 100'000);
  ASSERT_TRUE(Say(context, "text").ok());
  CallContext copy = context;
  EXPECT_EQ(copy.reply_attachment(), "");
  EXPECT_EQ(copy.buffer(), context.buffer());
  context.set_attachment({});
  ASSERT_TRUE(Say(copy, "text").ok());
  EXPECT_EQ(copy.reply_attachment(), context.reply_attachment());
  context = copy;
  EXPECT_EQ(context.reply_attachment(), "");
}

TEST_F(AttachmentTest, BytesAfterABufferLetItGo) {
  Start(&plain_);
  CallContext context(kLong);
  SetBuffer(&context, 100'000);
  const std::string sent = "abc";
  context.set_attachment(Bytes(sent));
  EXPECT_EQ(context.buffer(), nullptr);
  ASSERT_TRUE(Say(context, "text").ok());
  EXPECT_EQ(context.reply_attachment(), "XbX");
}

TEST_F(AttachmentTest, AReplyThatIsTakenOutlivesItsCallAndItsChannel) {
  Start(&plain_);
  CallContext context(kLong);
  Buffer large;
  Buffer small;
  for (auto [size, taken] : {std::pair(100'000, &large), std::pair(3, &small)}) {
    SetBuffer(&context, size);
    ASSERT_TRUE(Say(context, "text").ok());
    const auto* const where = context.reply_attachment().data();
    *taken = context.TakeReplyAttachment();
    EXPECT_EQ(taken->text().data(), where) << "it is not copied";
    EXPECT_EQ(context.reply_attachment(), "");
  }
  channel_.reset();
  world_.reset();
  EXPECT_EQ(large.text(), "X" + std::string(99'998, 'b') + "X");
  EXPECT_EQ(small.text(), "XbX");
  std::thread([&] { large = {}; }).join();
}

TEST_F(AttachmentTest, MakeBufferSaysWhyNot) {
  Start(&plain_);
  EXPECT_EQ(channel_->MakeBuffer(kLimit).status().code(), absl::StatusCode::kInvalidArgument);
  world_->KillServer();
  EXPECT_TRUE(channel_->Drive(
      [&] { return channel_->connection_state() != call::ConnectionState::kUp; }, kLong));
  EXPECT_EQ(channel_->MakeBuffer(kLimit / 2).status().code(), absl::StatusCode::kUnavailable);
}

// Several callers, handlers on other threads, replies that are let go of anywhere and late, and a server that ends meanwhile.
TEST_F(AttachmentTest, BuffersInManyHandsAtOnce) {
  Start(&plain_, {.executor = &threads_});
  std::mutex mutex;
  std::vector<Buffer> kept;
  std::atomic<int> answered{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&, i] {
      CallContext context(kLong);
      for (int n = 0; !over; ++n) {
        const size_t size = 20'000 + 40'000 * static_cast<size_t>((n + i) % 4);
        auto buffer = channel_->MakeBuffer(size);
        if (!buffer.ok()) continue;
        std::ranges::fill(buffer->bytes(), std::byte{'b'});
        context.set_attachment(*std::move(buffer));
        SayRequest request;
        request.set_payload("buffer");
        const auto reply = EchoClient(channel_).Say(context, request);
        if (!reply.ok()) continue;
        EXPECT_EQ(context.reply_attachment(), "X" + std::string(size - 2, 'b') + "X");
        ++answered;
        std::lock_guard lock(mutex);
        kept.push_back(context.TakeReplyAttachment());
        if (kept.size() > 10) kept.erase(kept.begin() + n % 10);
      }
    });
  }
  while (answered < 200) std::this_thread::yield();
  world_->KillServer();
  over = true;
  for (std::thread& caller : callers) caller.join();
  channel_.reset();
  world_.reset();
  for (const Buffer& buffer : kept) EXPECT_EQ(buffer.text().front(), 'X');
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

}  // namespace attachment_test
}  // namespace sluice
