// SPDX-License-Identifier: Apache-2.0
//
// Calls whose requests and replies do not fit into a message, over the fake network: limits, memory that runs short, and
// every way in which a call can end while they are under way.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "middleware/call/client_engine.h"
#include "middleware/call/server_engine.h"
#include "proto/error_detail.pb.h"  // any message will do as request and reply
#include "tests/support/fake_endpoint.h"
#include "tests/support/manual_clock.h"
#include "transport/base/error.h"

namespace sluice::call {
namespace large_calls_test {

using testing_support::FakeEndpoint;
using testing_support::FakeNetwork;
using Text = ErrorDetail;

constexpr Method kEcho("/test.Service/Echo");
constexpr Method kEchoAgain("/test.Service/EchoAgain", Streams::kNobody, /*idempotent=*/true);
constexpr int64_t kMs = 1'000'000;
constexpr size_t kMiB = 1 << 20;

struct Outcome {
  Text request;
  Text reply;
  int ended = 0;
  absl::Status status = absl::UnknownError("has not ended");
};

class LargeCallsTest : public ::testing::Test {
 protected:
  void Connect(FakeNetwork::Options fake = {.max_large_bytes = 4 * kMiB,
                                            .large_memory_bytes = 8 * kMiB}) {
    client_options_.host = "h";
    client_options_.port = 1;
    client_options_.max_message_bytes = server_options_.max_message_bytes = fake.max_message_bytes;
    client_options_.max_large_bytes = fake.max_large_bytes;
    server_ = std::make_unique<ServerEngine>(server_options_, &clock_, nullptr);
    server_end_ = network_.Create(server_->handler(), &clock_, fake);
    server_->Attach(server_end_.get());
    for (const Method* method : {&kEcho, &kEchoAgain}) {
      MethodHandler handler;
      handler.method = method;
      handler.service = this;
      handler.run = [](void* self, const Incoming&, const google::protobuf::MessageLite& request,
                       google::protobuf::MessageLite* reply) {
        auto* test = static_cast<LargeCallsTest*>(self);
        ++test->handled_;
        auto* text = static_cast<Text*>(reply);
        text->set_cause(static_cast<const Text&>(request).cause());
        if (test->reply_bytes_ != 0) text->set_cause(std::string(test->reply_bytes_, 'r'));
        return absl::OkStatus();
      };
      handler.request = std::make_unique<Text>();
      handler.reply = std::make_unique<Text>();
      ASSERT_TRUE(server_->Register(std::move(handler)).ok());
    }
    ASSERT_TRUE(server_end_->Listen("h", 1).ok());
    client_ = std::make_unique<ClientEngine>(client_options_, &clock_, &random_);
    client_end_ = network_.Create(client_->handler(), &clock_, fake);
    client_->Attach(client_end_.get());
    client_->Dial();
    Settle();
    ASSERT_EQ(client_->state(), ConnectionState::kUp);
  }
  void Settle() {
    for (int quiet = 0; quiet < 40;) {
      const int done = client_->Poll() + server_->Poll();
      quiet = done > 0 ? 0 : quiet + 1;
    }
  }
  absl::Status Start(Outcome* outcome, size_t bytes, uint64_t* id = nullptr,
                     int64_t timeout_ns = 1000 * kMs, const Method& method = kEcho) {
    outcome->request.set_cause(std::string(bytes, 'q'));
    CallSpec spec;
    spec.method = &method;
    spec.request = &outcome->request;
    spec.reply = &outcome->reply;
    spec.timeout_ns = timeout_ns;
    spec.argument = outcome;
    spec.done = [](void* argument, const absl::Status& status) {
      auto* outcome = static_cast<Outcome*>(argument);
      ++outcome->ended;
      outcome->status = status;
    };
    return client_->Start(spec, id);
  }
  void ExpectNothingOut() {
    EXPECT_EQ(client_end_->large_out() + server_end_->large_out(), 0u);
    EXPECT_EQ(client_->session_counters().lent + server_->session_counters().lent, 0u);
  }

  testing_support::ManualClock clock_;
  base::SeededRandom random_{7};
  FakeNetwork network_;
  ClientEngineOptions client_options_;
  ServerEngineOptions server_options_;
  std::unique_ptr<ServerEngine> server_;
  std::unique_ptr<FakeEndpoint> server_end_;
  std::unique_ptr<ClientEngine> client_;
  std::unique_ptr<FakeEndpoint> client_end_;
  size_t reply_bytes_ = 0;
  int handled_ = 0;
};

TEST_F(LargeCallsTest, RequestAndReplyAreWhole) {
  Connect();
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome, 3 * kMiB).ok());
  Settle();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.reply.cause(), std::string(3 * kMiB, 'q'));
  EXPECT_EQ(client_->session_counters().large_sent, 1u);
  EXPECT_EQ(client_->session_counters().large_received, 1u);
  ExpectNothingOut();
}

TEST_F(LargeCallsTest, AnotherCallIsAnsweredMeanwhile) {
  Connect();
  server_end_->set_hold_fetches(true);
  Outcome large;
  Outcome small;
  ASSERT_TRUE(Start(&large, kMiB).ok());
  ASSERT_TRUE(Start(&small, 10).ok());
  Settle();
  EXPECT_TRUE(small.status.ok());
  EXPECT_EQ(large.ended, 0);
  server_end_->set_hold_fetches(false);
  Settle();
  EXPECT_TRUE(large.status.ok());
  ExpectNothingOut();
}

TEST_F(LargeCallsTest, RequestOverTheLimitIsRefusedBeforeAnythingIsSent) {
  Connect();
  Outcome outcome;
  const absl::Status status = Start(&outcome, 4 * kMiB);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("too large"), std::string::npos);
  const auto detail = base::DetailOf(status);
  ASSERT_TRUE(detail.has_value());
  EXPECT_NE(detail->cause().find("the limit is 4194304"), std::string::npos) << detail->cause();
  EXPECT_NE(detail->remedy().find("max_large_message_bytes"), std::string::npos);
  Settle();
  EXPECT_EQ(handled_, 0);
  EXPECT_EQ(outcome.ended, 0);
}

TEST_F(LargeCallsTest, ReplyOverTheLimitEndsTheCall) {
  Connect();
  reply_bytes_ = 4 * kMiB;
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome, 10).ok());
  Settle();
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted) << outcome.status;
  EXPECT_EQ(outcome.ended, 1);
  ExpectNothingOut();
}

// Requests wait for memory in their order; replies can't wait, and say so.
TEST_F(LargeCallsTest, MemoryThatRunsShort) {
  Connect();
  Outcome outcomes[10];
  server_end_->set_hold_fetches(true);
  for (Outcome& outcome : outcomes) ASSERT_TRUE(Start(&outcome, 3 * kMiB).ok());
  Settle();
  EXPECT_EQ(client_->session_counters().lent, 2u);
  server_end_->set_hold_fetches(false);
  Settle();
  for (Outcome& outcome : outcomes) EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  ExpectNothingOut();

  client_end_->set_hold_fetches(true);
  reply_bytes_ = 3 * kMiB;
  Outcome more[3];
  for (Outcome& outcome : more) ASSERT_TRUE(Start(&outcome, 10).ok());
  Settle();
  EXPECT_EQ(more[2].status.code(), absl::StatusCode::kResourceExhausted) << more[2].status;
  client_end_->set_hold_fetches(false);
  Settle();
  EXPECT_TRUE(more[0].status.ok() && more[1].status.ok());
  ExpectNothingOut();
}

// Behind replies that wait for credit, a large one takes no memory of the backlog.
TEST_F(LargeCallsTest, LargeRepliesWaitForCreditWhereTheyStand) {
  server_options_.max_waiting_bytes_per_peer = 8192;
  Connect({.credits = 4, .max_large_bytes = 4 * kMiB, .large_memory_bytes = 8 * kMiB});
  client_end_->set_withhold_credits(true);
  Outcome small[4];
  for (Outcome& outcome : small) ASSERT_TRUE(Start(&outcome, 10).ok());
  Settle();
  reply_bytes_ = kMiB;
  Outcome large[3];
  for (Outcome& outcome : large) ASSERT_TRUE(Start(&outcome, 10).ok());
  Settle();
  EXPECT_EQ(large[0].ended + large[1].ended + large[2].ended, 0);
  EXPECT_TRUE(server_->HasWaitingReplies());
  client_end_->set_withhold_credits(false);
  Settle();
  for (Outcome& outcome : large) {
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_EQ(outcome.reply.cause().size(), kMiB);
  }
  EXPECT_EQ(server_->counters().overflows, 0u);
  ExpectNothingOut();
}

// The server learns only when credit comes that the device does not know the memory of the reply; the backlog has no
// second place.
TEST_F(LargeCallsTest, LargeReplyThatIsLostWhileItWaitsForCredit) {
  server_options_.max_waiting_replies_per_peer = 1;
  Connect({.credits = 4, .max_large_bytes = 4 * kMiB, .large_memory_bytes = 8 * kMiB});
  client_end_->set_withhold_credits(true);
  Outcome small[4];
  for (Outcome& outcome : small) ASSERT_TRUE(Start(&outcome, 10).ok());
  Settle();
  reply_bytes_ = kMiB;
  server_end_->set_slow_lending(true);
  Outcome large;
  ASSERT_TRUE(Start(&large, 10).ok());
  Settle();
  ASSERT_TRUE(server_->HasWaitingReplies());
  server_end_->FinishLending(absl::ResourceExhaustedError("memlock"));
  Settle();
  EXPECT_EQ(large.ended, 0);
  client_end_->set_withhold_credits(false);
  Settle();
  EXPECT_EQ(large.status.code(), absl::StatusCode::kResourceExhausted) << large.status;
  EXPECT_EQ(large.ended, 1);
  EXPECT_EQ(server_->counters().overflows, 0u) << "the lost reply leaves its place to the error";
  EXPECT_FALSE(server_->HasWaitingReplies());
  ExpectNothingOut();
}

TEST_F(LargeCallsTest, CancelWhileTheRequestIsFetched) {
  Connect();
  server_end_->set_hold_fetches(true);
  Outcome outcome;
  uint64_t id = 0;
  ASSERT_TRUE(Start(&outcome, kMiB, &id).ok());
  Settle();
  EXPECT_TRUE(client_->Cancel(id));
  Settle();
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kCancelled);
  server_end_->set_hold_fetches(false);
  Settle();
  EXPECT_EQ(handled_, 0) << "nobody waits for it";
  EXPECT_EQ(outcome.ended, 1);
  ExpectNothingOut();
}

TEST_F(LargeCallsTest, DeadlineWhileTheRequestIsFetched) {
  Connect();
  server_end_->set_hold_fetches(true);
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome, kMiB, nullptr, 10 * kMs).ok());
  Settle();
  clock_.Advance(20 * kMs);
  Settle();
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kDeadlineExceeded);
  server_end_->set_hold_fetches(false);
  Settle();
  EXPECT_EQ(outcome.ended, 1);
  ExpectNothingOut();
}

TEST_F(LargeCallsTest, CancelWhileTheReplyIsFetched) {
  Connect();
  client_end_->set_hold_fetches(true);
  reply_bytes_ = kMiB;
  Outcome outcome;
  uint64_t id = 0;
  ASSERT_TRUE(Start(&outcome, 10, &id).ok());
  Settle();
  EXPECT_TRUE(client_->Cancel(id));
  client_end_->set_hold_fetches(false);
  Settle();
  EXPECT_EQ(outcome.ended, 1);
  EXPECT_EQ(client_->counters().late_replies, 1u);
  ExpectNothingOut();
}

TEST_F(LargeCallsTest, TheServerDies) {
  Connect();
  server_end_->set_hold_fetches(true);
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome, kMiB).ok());
  Settle();
  server_end_->Kill();
  Settle();
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(outcome.ended, 1);
  EXPECT_EQ(client_end_->large_out(), 0u);
}

TEST_F(LargeCallsTest, RequestWhoseMemoryIsRefusedHere) {
  Connect();
  client_end_->set_slow_lending(true);
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome, kMiB).ok());
  client_end_->FinishLending(absl::ResourceExhaustedError("memlock"));
  Settle();
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(outcome.status.message().find("memlock"), std::string::npos) << outcome.status;
  EXPECT_EQ(handled_, 0);
  ExpectNothingOut();
}

// Nothing would follow that it could wait for.
TEST_F(LargeCallsTest, RequestThatTheSystemGivesNoMemoryForEndsAtOnce) {
  Connect();
  client_end_->set_fail_lending(true);
  Outcome outcome;
  const absl::Status status = Start(&outcome, kMiB);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("mmap failed"), std::string::npos) << status;
  Outcome small;
  EXPECT_TRUE(Start(&small, 10).ok());
  Settle();
  EXPECT_TRUE(small.status.ok()) << small.status;
  EXPECT_EQ(outcome.ended, 0) << "Start() has said it";
  ExpectNothingOut();
}

TEST_F(LargeCallsTest, RequestThatWaitedForMemoryWhichThenThereIsNone) {
  Connect();
  server_end_->set_hold_fetches(true);
  Outcome outcomes[3];
  for (Outcome& outcome : outcomes) ASSERT_TRUE(Start(&outcome, 3 * kMiB).ok());
  Settle();
  client_end_->set_fail_lending(true);
  server_end_->set_hold_fetches(false);
  Settle();
  EXPECT_TRUE(outcomes[0].status.ok() && outcomes[1].status.ok());
  EXPECT_EQ(outcomes[2].status.code(), absl::StatusCode::kResourceExhausted) << outcomes[2].status;
  EXPECT_EQ(outcomes[2].ended, 1);
  ExpectNothingOut();
}

TEST_F(LargeCallsTest, ReplyThatTheSystemGivesNoMemoryFor) {
  Connect();
  server_end_->set_fail_lending(true);
  reply_bytes_ = kMiB;
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome, 10).ok());
  Settle();
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted) << outcome.status;
  EXPECT_NE(outcome.status.message().find("reply not sent"), std::string::npos) << outcome.status;
  EXPECT_EQ(outcome.ended, 1);
  ExpectNothingOut();
}

// A server that drains is not over while a reply stands in its memory that its caller has not read.
TEST_F(LargeCallsTest, DrainWaitsForRepliesToBeRead) {
  Connect();
  client_end_->set_hold_fetches(true);
  reply_bytes_ = kMiB;
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome, 10).ok());
  Settle();
  server_->StartDrain(clock_.NowNs() + 1000 * kMs, clock_.NowNs() + 2000 * kMs);
  Settle();
  EXPECT_FALSE(server_->drain().over());
  EXPECT_TRUE(server_->HasWaitingReplies());
  client_end_->set_hold_fetches(false);
  Settle();
  EXPECT_TRUE(server_->drain().over());
  EXPECT_EQ(server_->drain().phase(), DrainPhase::kDrained);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  ExpectNothingOut();
}

TEST_F(LargeCallsTest, RequestThatTheServerHasNoMemoryFor) {
  Connect();
  server_end_->set_fail_fetches(absl::ResourceExhaustedError("memlock"));
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome, kMiB).ok());
  Settle();
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted) << outcome.status;
  EXPECT_EQ(handled_, 0);
  ExpectNothingOut();
}

TEST_F(LargeCallsTest, ReplyWhoseMemoryIsRefusedThere) {
  Connect();
  server_end_->set_slow_lending(true);
  reply_bytes_ = kMiB;
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome, 10).ok());
  Settle();
  EXPECT_EQ(outcome.ended, 0);
  server_end_->FinishLending(absl::ResourceExhaustedError("memlock"));
  Settle();
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted) << outcome.status;
  EXPECT_EQ(outcome.ended, 1);
  ExpectNothingOut();
}

TEST_F(LargeCallsTest, ReplyThatTheCallerHasNoMemoryFor) {
  Connect();
  client_end_->set_fail_fetches(absl::ResourceExhaustedError("memlock"));
  reply_bytes_ = kMiB;
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome, 10).ok());
  Settle();
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted) << outcome.status;
  ExpectNothingOut();
}

// The server takes it back when it leaves, and the client may not know yet that it left.
TEST_F(LargeCallsTest, ReplyThatTheServerTookBack) {
  Connect();
  client_end_->set_fail_fetches(absl::PermissionDeniedError("refused"));
  reply_bytes_ = kMiB;
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome, 10).ok());
  Settle();
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable) << outcome.status;
  EXPECT_EQ(outcome.ended, 1);
  const auto detail = base::DetailOf(outcome.status);
  ASSERT_TRUE(detail.has_value());
  EXPECT_FALSE(detail->retry_safe()) << "the handler has run";
  ExpectNothingOut();
}

TEST_F(LargeCallsTest, ReplyThatTheServerTookBackIsAskedForAgainIfThatDoesNoHarm) {
  client_options_.retry.max_attempts = 2;
  Connect();
  client_end_->set_fail_fetches(absl::PermissionDeniedError("refused"));
  reply_bytes_ = kMiB;
  Outcome once;
  Outcome again;
  ASSERT_TRUE(Start(&once, 10).ok());
  ASSERT_TRUE(Start(&again, 10, nullptr, 60'000 * kMs, kEchoAgain).ok());
  Settle();
  EXPECT_EQ(once.status.code(), absl::StatusCode::kUnavailable) << once.status;
  EXPECT_EQ(again.ended, 0) << "it pauses";
  client_end_->set_fail_fetches(absl::OkStatus());
  clock_.Advance(100 * kMs);
  Settle();
  EXPECT_EQ(again.ended, 1);
  EXPECT_TRUE(again.status.ok()) << again.status;
  EXPECT_EQ(again.reply.cause().size(), kMiB);
  EXPECT_EQ(handled_, 3);
  ExpectNothingOut();
}

TEST_F(LargeCallsTest, RequestThatTheClientTookBack) {
  Connect();
  server_end_->set_fail_fetches(absl::PermissionDeniedError("refused"));
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome, kMiB).ok());
  Settle();
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable) << outcome.status;
  const auto detail = base::DetailOf(outcome.status);
  EXPECT_TRUE(detail.has_value() && detail->retry_safe()) << outcome.status;  // it has not run
  EXPECT_EQ(outcome.ended, 1);
  EXPECT_EQ(handled_, 0);
  ExpectNothingOut();
}

// A request that was not read has not run: it may be tried again, whatever its method does.
TEST_F(LargeCallsTest, RequestThatCouldNotBeReadIsSentAgain) {
  client_options_.retry.max_attempts = 2;
  Connect();
  server_end_->set_fail_fetches(absl::PermissionDeniedError("refused"));
  server_end_->set_hold_fetches(true);
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome, kMiB).ok());
  Settle();
  server_end_->set_fail_fetches(absl::OkStatus());  // those that come from now on
  server_end_->set_hold_fetches(false);
  Settle();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(handled_, 1);
  EXPECT_EQ(client_->counters().retries, 1u);
  ExpectNothingOut();
}

}  // namespace large_calls_test
}  // namespace sluice::call
