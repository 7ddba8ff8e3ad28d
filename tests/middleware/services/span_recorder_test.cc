// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/span_recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "examples/echo/echo.sluice.h"
#include "middleware/api/in_process.h"

namespace sluice {
namespace span_recorder_test {

using examples::echo::EchoClient;
using examples::echo::EchoServiceBase;
using examples::echo::SayReply;
using examples::echo::SayRequest;

constexpr char kSay[] = "sluice.examples.echo.Echo/Say";

// Replies with the call's own trace; "fail" fails.
class TracingEcho final : public EchoServiceBase {
 public:
  absl::Status Say(ServerContext& context, const SayRequest& request, SayReply* reply) override {
    if (request.payload() == "fail") return absl::NotFoundError("no such thing");
    const auto trace = context.trace();
    if (trace.has_value()) reply->set_payload(trace->ToString());
    return absl::OkStatus();
  }
};

class SpanRecorderTest : public ::testing::Test {
 protected:
  void Start(SpanOptions options) {
    client_spans_ = std::make_shared<SpanRecorder>(options);
    server_spans_ = std::make_shared<SpanRecorder>(options);
    ServerOptions server_options;
    server_options.interceptors = {server_spans_->ForServers()};
    auto world = InProcess::Start({&echo_}, server_options);
    ASSERT_TRUE(world.ok()) << world.status();
    world_ = *std::move(world);
    ChannelOptions channel_options;
    channel_options.interceptors = {client_spans_->ForChannels()};
    auto channel = world_->NewChannel(channel_options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *channel;
  }
  absl::StatusOr<std::string> Say(const std::string& payload, CallContext& context) {
    SayRequest request;
    request.set_payload(payload);
    auto reply = EchoClient(channel_).Say(context, request);
    if (!reply.ok()) return reply.status();
    return reply->payload();
  }
  absl::StatusOr<std::string> Say(const std::string& payload) {
    CallContext context(absl::Seconds(60));
    return Say(payload, context);
  }
  // Ends the server, so that all spans of its calls have ended.
  void Stop() {
    channel_.reset();
    world_.reset();
  }
  ~SpanRecorderTest() override { Stop(); }

  TracingEcho echo_;
  std::shared_ptr<SpanRecorder> client_spans_;
  std::shared_ptr<SpanRecorder> server_spans_;
  std::unique_ptr<InProcess> world_;
  std::shared_ptr<Channel> channel_;
};

TEST_F(SpanRecorderTest, SampledCallHasASpanAtTheChannelAndThreeAtTheServer) {
  Start({.one_in = 1});
  const auto own_trace = Say("hello");
  ASSERT_TRUE(own_trace.ok()) << own_trace.status();
  Stop();
  const std::vector<Span> client = client_spans_->Take();
  ASSERT_EQ(client.size(), 1u);
  EXPECT_EQ(client[0].kind, Span::Kind::kClient);
  EXPECT_EQ(client[0].name, kSay);
  EXPECT_EQ(client[0].parent_id, 0u);
  EXPECT_NE(client[0].span_id, 0u);
  EXPECT_LE(client[0].start_unix_ns, client[0].end_unix_ns);

  const std::vector<Span> server = server_spans_->Take();
  ASSERT_EQ(server.size(), 3u);
  const Span& wait = server[0];
  const Span& handler = server[1];
  const Span& call = server[2];
  EXPECT_EQ(wait.name, "wait");
  EXPECT_EQ(handler.name, "handler");
  EXPECT_EQ(call.name, kSay);
  EXPECT_EQ(call.kind, Span::Kind::kServer);
  EXPECT_EQ(call.parent_id, client[0].span_id);
  EXPECT_EQ(wait.parent_id, call.span_id);
  EXPECT_EQ(handler.parent_id, call.span_id);
  for (const Span& span : server) EXPECT_EQ(span.trace_id, client[0].trace_id);
  EXPECT_EQ(wait.start_unix_ns, call.start_unix_ns);
  EXPECT_EQ(wait.end_unix_ns, handler.start_unix_ns);
  EXPECT_LE(handler.start_unix_ns, handler.end_unix_ns);
  EXPECT_EQ(handler.end_unix_ns, call.end_unix_ns);

  // What the handler calls becomes a child of the call's span.
  const auto trace = TraceContext::Parse(*own_trace);
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->span_id, call.span_id);
  EXPECT_TRUE(client_spans_->Take().empty()) << "taken once";
}

TEST_F(SpanRecorderTest, ChannelSamplesOneInSoManyCalls) {
  Start({.one_in = 3});
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(Say("hello").ok());
  Stop();
  EXPECT_EQ(client_spans_->Take().size(), 3u);
  EXPECT_EQ(server_spans_->Take().size(), 9u);
}

TEST_F(SpanRecorderTest, ZeroSamplesNoCallByItself) {
  Start({.one_in = 0});
  ASSERT_TRUE(Say("hello").ok());
  CallContext context(absl::Seconds(60));
  context.set_trace({{1, 2}, 3, 1});
  ASSERT_TRUE(Say("hello", context).ok());
  Stop();
  const std::vector<Span> client = client_spans_->Take();
  ASSERT_EQ(client.size(), 1u);
  EXPECT_EQ(client[0].trace_id, (std::array<uint64_t, 2>{1, 2}));
  EXPECT_EQ(client[0].parent_id, 3u);
}

TEST_F(SpanRecorderTest, TraceThatItsOwnerDoesNotSampleGoesOnUnchanged) {
  Start({.one_in = 1});
  CallContext context(absl::Seconds(60));
  context.set_trace({{1, 2}, 3, 0});
  const auto own_trace = Say("hello", context);
  ASSERT_TRUE(own_trace.ok());
  const auto trace = TraceContext::Parse(*own_trace);
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->trace_id, (std::array<uint64_t, 2>{1, 2}));
  EXPECT_FALSE(trace->sampled());
  Stop();
  EXPECT_TRUE(client_spans_->Take().empty());
  EXPECT_TRUE(server_spans_->Take().empty());
}

TEST_F(SpanRecorderTest, ErrorIsInBothSpans) {
  Start({.one_in = 1});
  EXPECT_EQ(Say("fail").status().code(), absl::StatusCode::kNotFound);
  Stop();
  EXPECT_EQ(client_spans_->Take().at(0).status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(server_spans_->Take().at(2).status.code(), absl::StatusCode::kNotFound);
}

TEST_F(SpanRecorderTest, CallWithoutRoomForATraceHasNoSpan) {
  Start({.one_in = 1});
  CallContext context(absl::Seconds(60));
  ASSERT_TRUE(context.AddMetadata("large", std::string(8'150, 'x')).ok());
  EXPECT_TRUE(Say("hello", context).ok());
  Stop();
  EXPECT_TRUE(client_spans_->Take().empty());
  EXPECT_TRUE(server_spans_->Take().empty());
}

TEST_F(SpanRecorderTest, SpansAboveTheLimitAreDroppedAndCounted) {
  Start({.one_in = 1, .max_spans = 4});
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(Say("hello").ok());
  Stop();
  EXPECT_EQ(client_spans_->Take().size(), 4u);
  EXPECT_EQ(client_spans_->dropped(), 2u);
}

TEST_F(SpanRecorderTest, TimesAndIdsComeFromTheOptions) {
  auto next = std::make_shared<std::atomic<uint64_t>>(100);
  Start({.one_in = 1,
         .unix_ns = [] { return int64_t{1'700'000'000'000'000'000}; },
         .random = [next] { return (*next)++; }});
  ASSERT_TRUE(Say("hello").ok());
  Stop();
  const Span span = client_spans_->Take().at(0);
  EXPECT_EQ(span.end_unix_ns, 1'700'000'000'000'000'000);
  EXPECT_EQ(span.trace_id, (std::array<uint64_t, 2>{100, 101}));
  EXPECT_EQ(span.span_id, 102u);
}

}  // namespace span_recorder_test
}  // namespace sluice
