// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/trace_context.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "examples/echo/echo.sluice.h"
#include "middleware/api/in_process.h"

namespace sluice {
namespace trace_context_test {

constexpr char kValid[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContextTest, ReadsAndWrites) {
  const auto context = TraceContext::Parse(kValid);
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->trace_id[0], 0x0af7651916cd43ddu);
  EXPECT_EQ(context->trace_id[1], 0x8448eb211c80319cu);
  EXPECT_EQ(context->span_id, 0xb7ad6b7169203331u);
  EXPECT_TRUE(context->sampled());
  EXPECT_EQ(context->ToString(), kValid);
  EXPECT_EQ(context->Child(0x1234).ToString(),
            "00-0af7651916cd43dd8448eb211c80319c-0000000000001234-01");
  EXPECT_EQ(context->Child(0).span_id, 1u);
}

TEST(TraceContextTest, WhatIsNoneIsNone) {
  const std::string valid = kValid;
  const auto with = [&](size_t at, char c) {
    std::string changed = valid;
    changed[at] = c;
    return changed;
  };
  const std::string none[] = {"",
                              "00",
                              valid.substr(0, 54),
                              valid + "-",
                              valid + "-00",
                              with(0, 'g'),
                              with(3, 'A'),
                              with(2, '_'),
                              with(35, ' '),
                              with(52, '0'),
                              with(54, 'z'),
                              with(40, '\0'),
                              "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                              "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                              "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                              "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.more"};
  for (const std::string& text : none) EXPECT_FALSE(TraceContext::Parse(text).has_value()) << text;
}

TEST(TraceContextTest, LaterVersionsAreReadAsFarAsTheyAreKnown) {
  const auto context =
      TraceContext::Parse("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff-what");
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->flags, 1);
  EXPECT_EQ(context->ToString().substr(0, 3), "00-");
}

// Remembers what its caller sent, and calls on if there is somebody.
class Hop final : public examples::echo::EchoServiceBase {
 public:
  absl::Status Say(ServerContext& context, const examples::echo::SayRequest& request,
                   examples::echo::SayReply* reply) override {
    const Metadata& sent = context.metadata();
    received = std::string(sent.Find(kTraceParent).value_or("none"));
    state = std::string(sent.Find(kTraceState).value_or("none"));
    own = context.trace();
    if (next == nullptr) return absl::OkStatus();
    CallContext onward = CallContext::FromServer(context);
    const auto answer = examples::echo::EchoClient(next).Say(onward, request);
    if (answer.ok()) *reply = *answer;
    return answer.status();
  }
  std::shared_ptr<Channel> next;
  std::string received;
  std::string state;
  std::optional<TraceContext> own;
};

class TraceOverHopsTest : public ::testing::Test {
 protected:
  TraceOverHopsTest() : second_world_(*InProcess::Start({&second_})) {
    first_.next = *second_world_->NewChannel();
    first_world_ = *InProcess::Start({&first_});
    channel_ = *first_world_->NewChannel();
  }
  ~TraceOverHopsTest() override {  // channels go before the worlds they lead to
    channel_.reset();
    first_world_.reset();
    first_.next.reset();
  }
  void Call(CallContext& context) {
    const auto reply = examples::echo::EchoClient(channel_).Say(context, {});
    ASSERT_TRUE(reply.ok()) << reply.status();
  }

  Hop second_;
  Hop first_;
  std::unique_ptr<InProcess> second_world_;
  std::unique_ptr<InProcess> first_world_;
  std::shared_ptr<Channel> channel_;
};

TEST_F(TraceOverHopsTest, EachHopIsASpanOfTheSameTrace) {
  CallContext context(absl::Seconds(60));
  context.set_trace(*TraceContext::Parse(kValid));
  ASSERT_TRUE(context.AddMetadata(kTraceState, "vendor=1").ok());
  Call(context);
  EXPECT_EQ(first_.received, kValid);
  ASSERT_TRUE(first_.own.has_value());
  EXPECT_EQ(first_.own->trace_id, TraceContext::Parse(kValid)->trace_id);
  EXPECT_NE(first_.own->span_id, TraceContext::Parse(kValid)->span_id);
  EXPECT_TRUE(first_.own->sampled());
  EXPECT_EQ(second_.received, first_.own->ToString());
  EXPECT_EQ(second_.state, "vendor=1");
  ASSERT_TRUE(second_.own.has_value());
}

TEST_F(TraceOverHopsTest, WhatIsNoTraceEndsAtTheFirstHop) {
  CallContext context(absl::Seconds(60));
  ASSERT_TRUE(context.AddMetadata(kTraceParent, "00-nonsense").ok());
  Call(context);
  EXPECT_FALSE(first_.own.has_value());
  EXPECT_EQ(second_.received, "none");
}

}  // namespace trace_context_test
}  // namespace sluice
