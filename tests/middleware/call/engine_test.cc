// SPDX-License-Identifier: Apache-2.0
//
// ClientEngine and ServerEngine against each other over the fake network, on one thread and a
// manual clock: faults of the wire, credits, deadlines, back-off.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "middleware/call/client_engine.h"
#include "middleware/call/server_engine.h"
#include "proto/error_detail.pb.h"  // any message will do as request and reply
#include "tests/support/fake_endpoint.h"
#include "tests/support/manual_clock.h"
#include "transport/base/error.h"

namespace sluice::call {
namespace engine_test {

using testing_support::FakeEndpoint;
using testing_support::FakeNetwork;
using Text = ErrorDetail;

constexpr Method kEcho("/test.Service/Echo");
constexpr int64_t kMs = 1'000'000;

struct Outcome {
  Text request;
  Text reply;
  int ended = 0;
  absl::Status status = absl::UnknownError("has not ended");
};

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() {
    client_options_.host = "h";
    client_options_.port = 1;
    client_options_.max_message_bytes = 4096;
    client_options_.max_outstanding_calls = 64;
    server_options_.max_message_bytes = 4096;
  }

  void StartServer() {
    server_ = std::make_unique<ServerEngine>(server_options_, &clock_, nullptr);
    server_end_ = network_.Create(server_->handler(), &clock_, fake_options_);
    server_->Attach(server_end_.get());
    MethodHandler handler;
    handler.method = &kEcho;
    handler.service = this;
    handler.run = [](void* self, const Incoming&, const google::protobuf::MessageLite& request,
                     google::protobuf::MessageLite* reply) {
      auto* test = static_cast<EngineTest*>(self);
      ++test->handled_;
      test->clock_.Advance(test->blocks_ns_);
      static_cast<Text*>(reply)->set_cause(static_cast<const Text&>(request).cause());
      return test->answer_;
    };
    handler.request = std::make_unique<Text>();
    handler.reply = std::make_unique<Text>();
    ASSERT_TRUE(server_->Register(std::move(handler)).ok());
    ASSERT_TRUE(server_end_->Listen("h", 1).ok());
  }

  void StartClient() {
    client_ = std::make_unique<ClientEngine>(client_options_, &clock_, &random_);
    client_end_ = network_.Create(client_->handler(), &clock_, fake_options_);
    client_->Attach(client_end_.get());
    client_->Dial();
  }

  void Connect() {
    StartServer();
    StartClient();
    Settle();
    ASSERT_EQ(client_->state(), ConnectionState::kUp);
  }

  // Until nothing moves any more at this time; long enough for the client to look at its clock.
  void Settle() {
    for (int quiet = 0; quiet < 40;) {
      const int done = client_->Poll() + (server_ ? server_->Poll() : 0);
      quiet = done > 0 ? 0 : quiet + 1;
    }
  }
  void Advance(int64_t ns) {
    clock_.Advance(ns);
    Settle();
  }

  absl::Status Start(Outcome* outcome, int64_t timeout_ns = 1000 * kMs, bool wait_for_ready = false,
                     uint64_t* id = nullptr, const Method* method = &kEcho) {
    CallSpec spec;
    spec.method = method;
    spec.request = &outcome->request;
    spec.reply = &outcome->reply;
    spec.timeout_ns = timeout_ns;
    spec.wait_for_ready = wait_for_ready;
    spec.argument = outcome;
    spec.done = [](void* argument, const absl::Status& status) {
      auto* outcome = static_cast<Outcome*>(argument);
      ++outcome->ended;
      outcome->status = status;
    };
    return client_->Start(spec, id);
  }

  testing_support::ManualClock clock_;
  base::SeededRandom random_{7};
  FakeNetwork network_;
  FakeNetwork::Options fake_options_;
  ClientEngineOptions client_options_;
  ServerEngineOptions server_options_;
  std::unique_ptr<ServerEngine> server_;
  std::unique_ptr<FakeEndpoint> server_end_;
  std::unique_ptr<ClientEngine> client_;
  std::unique_ptr<FakeEndpoint> client_end_;
  absl::Status answer_;
  int handled_ = 0;
  int64_t blocks_ns_ = 0;  // a handler
};

TEST_F(EngineTest, CallsAreAnswered) {
  Connect();
  Outcome outcomes[3];
  for (int i = 0; i < 3; ++i) {
    outcomes[i].request.set_cause(std::to_string(i));
    ASSERT_TRUE(Start(&outcomes[i]).ok());
  }
  Settle();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(outcomes[i].status.ok()) << outcomes[i].status;
    EXPECT_EQ(outcomes[i].reply.cause(), std::to_string(i));
  }
  EXPECT_EQ(client_->counters().calls_ok, 3u);
  EXPECT_EQ(server_->counters().requests, 3u);
  EXPECT_EQ(client_->outstanding(), 0u);
}

TEST_F(EngineTest, CallGoesToTheMethodItNamesNotToTheOneBefore) {
  static constexpr Method kNobodys("/test.Service/Nobodys");
  Connect();
  for (const Method* method : {&kEcho, &kNobodys, &kEcho}) {
    Outcome outcome;
    ASSERT_TRUE(Start(&outcome, 1000 * kMs, false, nullptr, method).ok());
    Settle();
    EXPECT_EQ(outcome.status.ok(), method == &kEcho) << outcome.status;
  }
  EXPECT_EQ(handled_, 2);
}

// A handler passes on the error of a call that it made itself: that call did not run, its own did.
TEST_F(EngineTest, ErrorThatAHandlerPassesOnIsNotSafeToRetry) {
  Connect();
  answer_ = base::Error(absl::StatusCode::kUnavailable, "not connected",
                        {.layer = "call", .retry_safe = true});
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome).ok());
  Settle();
  EXPECT_EQ(handled_, 1);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(base::IsRetrySafe(outcome.status)) << outcome.status;
}

// The least that options allow leaves no room for the text.
TEST_F(EngineTest, PeerThatTakesTheLeastIsAnsweredWithAnError) {
  static constexpr Method kNobodys("/test.Service/Nobodys");
  fake_options_.max_message_bytes = 64;
  Connect();
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome, 1000 * kMs, false, nullptr, &kNobodys).ok());
  Settle();
  EXPECT_EQ(outcome.ended, 1);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnimplemented) << outcome.status;
}

// The server's clock may be the first to say so; its handler then says what it likes.
TEST_F(EngineTest, DeadlineThatTheServerNoticesFirstIsADeadline) {
  struct Late : ServerCall::Observer {
    void OnCancelled() override { call->Finish(absl::CancelledError("the handler's word")); }
    ServerCall* call = nullptr;
  };
  static constexpr Method kLate("/test.Service/Late");
  Connect();
  Late late;
  MethodHandler handler;
  handler.method = &kLate;
  handler.start = [&late](ServerCall* call) {
    late.call = call;
    call->set_observer(&late);
  };
  handler.request = std::make_unique<Text>();
  handler.reply = std::make_unique<Text>();
  ASSERT_TRUE(server_->Register(std::move(handler)).ok());
  Outcome outcome;
  CallSpec spec;
  spec.method = &kLate;
  spec.request = &outcome.request;
  spec.reply = &outcome.reply;
  spec.timeout_ns = 10 * kMs;
  spec.argument = &outcome;
  spec.done = [](void* argument, const absl::Status& status) {
    auto* ended = static_cast<Outcome*>(argument);
    ++ended->ended;
    ended->status = status;
  };
  ASSERT_TRUE(client_->Start(spec).ok());
  Settle();
  clock_.Advance(11 * kMs);
  for (int pass = 0; pass < 40; ++pass) server_->Poll();
  EXPECT_EQ(server_->calls_under_way(), 0u);
  client_->Poll();
  EXPECT_EQ(outcome.ended, 1);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kDeadlineExceeded) << outcome.status;
}

TEST_F(EngineTest, CallThatWasCancelledWhileItStartedEndsInTheNextPass) {
  Connect();
  Outcome outcome;
  CallControl control;
  uint64_t id = 0;
  EXPECT_FALSE(control.Cancel(&id)) << "it has no number so far";
  CallSpec spec;
  spec.method = &kEcho;
  spec.request = &outcome.request;
  spec.reply = &outcome.reply;
  spec.timeout_ns = 1000 * kMs;
  spec.argument = &outcome;
  spec.done = [](void* argument, const absl::Status& status) {
    auto* ended = static_cast<Outcome*>(argument);
    ++ended->ended;
    ended->status = status;
  };
  spec.control = &control;
  ASSERT_TRUE(client_->Start(spec).ok());
  EXPECT_EQ(outcome.ended, 0) << "callbacks run in Poll() only";
  client_->Poll();
  EXPECT_EQ(outcome.ended, 1);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kCancelled);
}

TEST_F(EngineTest, MessageThatComesTwiceIsHandledOnce) {
  Connect();
  const auto twice = [](std::vector<std::byte>&) { return 2; };
  client_end_->set_tamper(twice);
  server_end_->set_tamper(twice);
  Outcome outcomes[5];
  for (Outcome& outcome : outcomes) ASSERT_TRUE(Start(&outcome).ok());
  Settle();
  EXPECT_EQ(handled_, 5);
  for (Outcome& outcome : outcomes) EXPECT_EQ(outcome.ended, 1);
  EXPECT_EQ(server_->session_counters().duplicates, 5u);
  EXPECT_EQ(client_->session_counters().duplicates, 5u);
  EXPECT_EQ(client_->counters().late_replies, 0u);
}

TEST_F(EngineTest, MissingMessageBreaksTheConnection) {
  Connect();
  Outcome lost;
  Outcome next;
  client_end_->set_drop(true);
  ASSERT_TRUE(Start(&lost).ok());
  client_->Flush();
  client_end_->set_drop(false);
  ASSERT_TRUE(Start(&next).ok());
  Settle();
  EXPECT_EQ(handled_, 0);
  EXPECT_EQ(server_->counters().protocol_errors, 1u);
  EXPECT_EQ(lost.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(next.status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(EngineTest, DeadlineOfALostCall) {
  Connect();
  client_end_->set_drop(true);
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome, 10 * kMs).ok());
  Advance(9 * kMs);
  EXPECT_EQ(outcome.ended, 0);
  Advance(2 * kMs);
  EXPECT_EQ(outcome.ended, 1);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(std::string(outcome.status.message()).find("h:1"), std::string::npos) << outcome.status;
}

TEST_F(EngineTest, CallsWaitForCreditInTheirOrder) {
  fake_options_.credits = 2;
  Connect();
  server_end_->set_withhold_credits(true);
  Outcome outcomes[6];
  for (int i = 0; i < 6; ++i) {
    outcomes[i].request.set_cause(std::to_string(i));
    ASSERT_TRUE(Start(&outcomes[i], i == 3 ? 5 * kMs : 1000 * kMs).ok());
  }
  Settle();
  EXPECT_EQ(handled_, 2);
  Advance(6 * kMs);
  EXPECT_EQ(outcomes[3].status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(base::DetailOf(outcomes[3].status)->retry_safe()) << "it was never sent";
  server_end_->set_withhold_credits(false);
  Settle();
  EXPECT_EQ(handled_, 5);
  for (int i : {0, 1, 2, 4, 5})
    EXPECT_TRUE(outcomes[i].status.ok()) << i << ": " << outcomes[i].status;
}

// A refused place is not asked for twice: for a large request the memory would be taken and given back twice.
TEST_F(EngineTest, CallWithoutCreditAsksForAPlaceOnce) {
  Connect();
  client_end_->set_fail_reserves(1);
  Outcome outcome;
  outcome.request.set_cause("waits");
  uint64_t id = 0;
  ASSERT_TRUE(Start(&outcome, 1000 * kMs, /*wait_for_ready=*/false, &id).ok());
  EXPECT_EQ(server_->Poll(), 0) << "it was sent";
  Settle();
  EXPECT_EQ(handled_, 1);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
}

TEST_F(EngineTest, RepliesWaitForCreditAndNothingIsLost) {
  fake_options_.credits = 4;
  Connect();
  client_end_->set_withhold_credits(true);
  Outcome outcomes[20];
  for (int i = 0; i < 20; ++i) {
    outcomes[i].request.set_cause(std::to_string(i));
    ASSERT_TRUE(Start(&outcomes[i]).ok());
  }
  Settle();
  EXPECT_EQ(handled_, 20);
  EXPECT_EQ(client_->counters().calls_ok, 4u);
  EXPECT_TRUE(server_->HasWaitingReplies());
  client_end_->set_withhold_credits(false);
  Settle();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(outcomes[i].reply.cause(), std::to_string(i));
  EXPECT_FALSE(server_->HasWaitingReplies());
  EXPECT_EQ(server_->counters().replies_waited, 16u);
}

TEST_F(EngineTest, PeerThatTakesNoRepliesIsDisconnectedAtItsBound) {
  fake_options_.credits = 4;
  server_options_.max_waiting_replies_per_peer = 5;
  Connect();
  client_end_->set_withhold_credits(true);
  Outcome outcomes[20];
  for (Outcome& outcome : outcomes) ASSERT_TRUE(Start(&outcome).ok());
  Settle();
  EXPECT_EQ(server_->counters().overflows, 1u);
  EXPECT_FALSE(server_->HasWaitingReplies());
  for (Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.ended, 1);
    EXPECT_TRUE(outcome.status.ok() || absl::IsUnavailable(outcome.status)) << outcome.status;
  }
}

TEST_F(EngineTest, FullTableSaysSo) {
  client_options_.max_outstanding_calls = 2;
  Connect();
  client_end_->set_drop(true);
  Outcome outcomes[3];
  ASSERT_TRUE(Start(&outcomes[0]).ok());
  ASSERT_TRUE(Start(&outcomes[1]).ok());
  const absl::Status full = Start(&outcomes[2]);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(full.message()).find("max_outstanding_calls"), std::string::npos) << full;
  client_->Close();
  EXPECT_EQ(outcomes[0].ended + outcomes[1].ended, 2);
  EXPECT_EQ(outcomes[2].ended, 0);
}

TEST_F(EngineTest, CancelEndsOnceAndTheReplyComesTooLate) {
  Connect();
  Outcome outcome;
  uint64_t id = 0;
  ASSERT_TRUE(Start(&outcome, 1000 * kMs, false, &id).ok());
  client_->Flush();
  EXPECT_TRUE(client_->Cancel(id));
  EXPECT_FALSE(client_->Cancel(id));
  Settle();
  EXPECT_EQ(outcome.ended, 1);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(client_->counters().late_replies, 1u);
}

TEST_F(EngineTest, BackOffDoublesIsBoundedAndRests) {
  client_options_.backoff_min_ns = 10 * kMs;
  client_options_.backoff_max_ns = 40 * kMs;
  client_options_.max_reconnect_attempts = 4;
  StartClient();  // nobody listens
  Settle();
  EXPECT_EQ(client_->state(), ConnectionState::kBackoff);
  Outcome outcome;
  const absl::Status fast = Start(&outcome);
  EXPECT_EQ(fast.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(fast.message()).find("refused"), std::string::npos) << fast;
  // Waits of 10, 20, 40, 40 ms, each within a quarter; then it rests.
  int64_t least = 0;
  int64_t most = 0;
  for (int64_t wait : {10, 20, 40, 40}) {
    least += wait * 3 / 4;
    most += wait * 5 / 4 + 1;
  }
  int64_t waited = 0;
  while (client_->state() == ConnectionState::kBackoff) {
    ASSERT_LE(waited, most);
    Advance(kMs);
    ++waited;
  }
  EXPECT_EQ(client_->state(), ConnectionState::kIdle);
  EXPECT_GE(waited, least);
  EXPECT_EQ(client_->SleepLimitNs(), -1) << "no timer runs";
  // The next call makes it try again, and finds the server.
  StartServer();
  ASSERT_TRUE(Start(&outcome).ok());
  Settle();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
}

TEST_F(EngineTest, WaitForReadyWaitsUntilItsDeadline) {
  StartClient();
  Settle();
  Outcome patient;
  Outcome short_lived;
  ASSERT_TRUE(Start(&patient, 1000 * kMs, true).ok());
  ASSERT_TRUE(Start(&short_lived, 10 * kMs, true).ok());
  Advance(15 * kMs);
  EXPECT_EQ(short_lived.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(patient.ended, 0);
  StartServer();
  Advance(100 * kMs);
  EXPECT_TRUE(patient.status.ok()) << patient.status;
}

TEST_F(EngineTest, WaitForReadyOutlivesARest) {
  client_options_.max_reconnect_attempts = 0;
  client_options_.backoff_max_ns = 40 * kMs;
  StartClient();
  Settle();
  EXPECT_EQ(client_->state(), ConnectionState::kIdle);
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome, 1000 * kMs, true).ok());
  Settle();
  StartServer();
  Advance(41 * kMs);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
}

TEST_F(EngineTest, ServerThatGoesEndsWhatIsUnderWay) {
  Connect();
  server_end_->set_drop(true);
  Outcome sent;
  ASSERT_TRUE(Start(&sent).ok());
  Settle();
  server_end_->Kill();
  Settle();
  EXPECT_EQ(sent.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(base::DetailOf(sent.status)->retry_safe());
  EXPECT_NE(std::string(sent.status.message()).find("killed"), std::string::npos) << sent.status;
}

TEST_F(EngineTest, ErrorCodeOutsideTheCanonicalSetBecomesUnknown) {
  Connect();
  answer_ = absl::Status(static_cast<absl::StatusCode>(99), "odd");
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome).ok());
  Settle();
  EXPECT_EQ(outcome.status, absl::UnknownError("odd"));
}

TEST_F(EngineTest, CallAfterALongSleepHasItsWholeTime) {
  Connect();
  client_->SleepLimitNs();  // somebody goes to sleep, and is not the one who starts the call
  clock_.Advance(1000 * kMs);
  Outcome outcome;
  ASSERT_TRUE(Start(&outcome, 100 * kMs).ok());
  Settle();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
}

TEST_F(EngineTest, BothSidesCountCallsByMethodCodeAndTime) {
  client_options_.timed_every = server_options_.timed_every = 1;
  Connect();
  Outcome good, bad, late;
  good.request.set_cause("x");
  ASSERT_TRUE(Start(&good).ok());
  Settle();
  answer_ = absl::NotFoundError("no");
  ASSERT_TRUE(Start(&bad).ok());
  client_->Flush();
  clock_.Advance(3 * kMs);
  Settle();
  server_end_->set_drop(true);
  ASSERT_TRUE(Start(&late, 10 * kMs).ok());
  Advance(11 * kMs);
  EXPECT_EQ(late.status.code(), absl::StatusCode::kDeadlineExceeded);

  const auto client = client_->stats().Snapshot();
  const auto server = server_->stats().Snapshot();
  ASSERT_EQ(client.size(), 1u);
  ASSERT_EQ(server.size(), 1u);
  EXPECT_EQ(client[0].method, kEcho.full_name);
  EXPECT_EQ(client[0].started, 3u);
  EXPECT_EQ(client[0].ended[static_cast<int>(absl::StatusCode::kOk)], 1u);
  EXPECT_EQ(client[0].ended[static_cast<int>(absl::StatusCode::kNotFound)], 1u);
  EXPECT_EQ(client[0].ended[static_cast<int>(absl::StatusCode::kDeadlineExceeded)], 1u);
  EXPECT_EQ(client[0].in_flight(), 0u);
  EXPECT_EQ(client[0].latency_ns.count(), 3u);
  EXPECT_EQ(client[0].latency_ns.sum(), static_cast<uint64_t>(14 * kMs));
  EXPECT_EQ(server[0].ended[static_cast<int>(absl::StatusCode::kNotFound)], 2u);
  EXPECT_EQ(server[0].request_bytes, client[0].request_bytes);
  EXPECT_GT(server[0].reply_bytes, client[0].reply_bytes) << "one was dropped";
}

TEST_F(EngineTest, HandlerThatTakesLongIsASlowCallInATimedPassOrNot) {
  server_options_.timed_every = 1'000'000;
  Connect();
  Outcome first;
  ASSERT_TRUE(Start(&first).ok());
  Settle();
  blocks_ns_ = 99 * kMs;
  Outcome quick;
  ASSERT_TRUE(Start(&quick).ok());
  Settle();
  EXPECT_EQ(server_->slow_calls().seen(), 0u);
  blocks_ns_ = 100 * kMs;
  Outcome slow;
  ASSERT_TRUE(Start(&slow).ok());
  client_->Flush();
  while (handled_ < 3) server_->Poll();
  server_->PrepareToSleep();
  clock_.Advance(5000 * kMs);  // asleep: not the handler's time
  Settle();
  ASSERT_EQ(server_->slow_calls().seen(), 1u);
  EXPECT_EQ(server_->slow_calls().kept()[0].method, kEcho.full_name);
  EXPECT_EQ(server_->slow_calls().kept()[0].took_ns, 100 * kMs);
}

TEST_F(EngineTest, SameMethodTwiceIsRefused) {
  StartServer();
  MethodHandler handler;
  handler.method = &kEcho;
  const absl::Status status = server_->Register(std::move(handler));
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(std::string(status.message()).find(kEcho.full_name), std::string::npos);
}

// Random bytes in either direction: nobody crashes, each call ends once, and a new connection
// works.
TEST_F(EngineTest, DamagedMessagesNeverHarmMoreThanTheirConnection) {
  client_options_.backoff_min_ns = kMs;
  client_options_.backoff_max_ns = kMs;
  client_options_.max_reconnect_attempts = 1'000'000;
  Connect();
  std::mt19937 random(1);
  bool harm = true;
  const auto damage = [&](std::vector<std::byte>& message) {
    if (!harm || random() % 8 != 0) return 1;
    for (uint32_t n = 1 + random() % 3; n > 0; --n) {
      message[random() % message.size()] = static_cast<std::byte>(random());
    }
    if (random() % 4 == 0) message.resize(random() % (message.size() + 1));
    return static_cast<int>(random() % 3);
  };
  client_end_->set_tamper(damage);
  server_end_->set_tamper(damage);
  int started = 0;
  std::vector<std::unique_ptr<Outcome>> outcomes;
  for (int round = 0; round < 3000; ++round) {
    auto outcome = std::make_unique<Outcome>();
    outcome->request.set_cause(std::string(random() % 50, 'c'));
    if (Start(outcome.get(), 20 * kMs, true).ok()) {
      ++started;
      outcomes.push_back(std::move(outcome));
    }
    if (round % 3 == 0) Advance(kMs / 4);
  }
  harm = false;
  Advance(30 * kMs);
  ASSERT_EQ(outcomes.size(), static_cast<size_t>(started));
  for (const auto& outcome : outcomes) ASSERT_EQ(outcome->ended, 1);
  EXPECT_GT(client_->counters().protocol_errors, 0u);
  EXPECT_GT(server_->counters().protocol_errors, 0u);
  EXPECT_GT(client_->counters().calls_ok, 0u);
  Outcome last;
  ASSERT_TRUE(Start(&last, 1000 * kMs, true).ok());
  Advance(10 * kMs);
  EXPECT_TRUE(last.status.ok()) << last.status;
}

}  // namespace engine_test
}  // namespace sluice::call
