// SPDX-License-Identifier: Apache-2.0
//
// Two engines over the fake network: opening, windows, turns, delivery, ends.
#include "middleware/flow/flow_engine.h"

#include "tests/middleware/flow/flow_fixture.h"
#include "transport/base/error.h"

namespace sluice::flow {
namespace flow_engine_test {

using Texts = std::vector<std::string>;

TEST_F(FlowTest, MessagesGoBothWaysAndTheEndIsHeardByBoth) {
  Start();
  Ear ear;
  Open(&ear);
  EXPECT_EQ(ear.flow.Send(BytesOf("early")).code(), absl::StatusCode::kResourceExhausted);
  Settle();
  ASSERT_EQ(ear.opened, 1);
  ASSERT_EQ(ears_.size(), 1u);
  EXPECT_EQ(ear.writable, 1) << "it was refused once";
  ASSERT_TRUE(ear.flow.Send(BytesOf("one")).ok());
  ASSERT_TRUE(ear.flow.Send(BytesOf("")).ok());
  ASSERT_TRUE(ears_[0]->flow.Send(BytesOf("back")).ok());
  Settle();
  EXPECT_EQ(ears_[0]->heard, (Texts{"one", ""}));
  EXPECT_EQ(ear.heard, Texts{"back"});
  ear.flow.Close();
  EXPECT_FALSE(ear.flow.is_open());
  EXPECT_EQ(ear.flow.Send(BytesOf("late")).code(), absl::StatusCode::kFailedPrecondition);
  Settle();
  EXPECT_EQ(ear.closed, 1);
  EXPECT_EQ(ears_[0]->closed, 1);
  EXPECT_TRUE(ear.status.ok() && ears_[0]->status.ok());
  EXPECT_EQ(ear.totals.sent, 2u);
  EXPECT_EQ(ear.totals.delivered, 2u);
  EXPECT_EQ(ears_[0]->totals.received, 2u);
  EXPECT_EQ(a_->engine.flows() + b_->engine.flows(), 0u);
}

TEST_F(FlowTest, AcceptorMaySendAtOnce) {
  Start();
  on_offer_ = [](Ear* ear) { ASSERT_TRUE(ear->flow.Send(BytesOf("welcome")).ok()); };
  Ear ear;
  Open(&ear);
  Settle();
  EXPECT_EQ(ear.opened, 1);
  EXPECT_EQ(ear.heard, Texts{"welcome"});
}

TEST_F(FlowTest, AcceptorThatClosesAtOnceEndsTheOpener) {
  Start();
  on_offer_ = [](Ear* ear) { ear->flow.Close(absl::AbortedError("changed its mind")); };
  Ear ear;
  Open(&ear);
  Settle();
  EXPECT_EQ(ear.opened, 0);
  EXPECT_EQ(ear.status, absl::AbortedError("changed its mind"));
  EXPECT_EQ(ears_[0]->closed, 1);
  EXPECT_EQ(a_->engine.flows() + b_->engine.flows(), 0u);
}

TEST_F(FlowTest, RefusalsSayWhy) {
  Start();
  ASSERT_TRUE(
      b_->engine.Accept("closed shop", {}, [](Flow, const Offer&) { return nullptr; }).ok());
  Ear nobody;
  Ear refused;
  Open(&nobody, {}, "other end");
  Open(&refused, {}, "closed shop");
  Settle();
  EXPECT_EQ(nobody.status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(nobody.status.message()).find("other end"), std::string::npos);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(base::DetailOf(refused.status)->remedy().empty());
  EXPECT_EQ(b_->engine.counters().refused, 2u);
  EXPECT_EQ(a_->engine.flows() + b_->engine.flows(), 0u);
}

TEST_F(FlowTest, FullTablesRefuse) {
  engine_options_.max_flows = 1024;
  Start();
  std::vector<Ear> ears(1024);
  for (Ear& ear : ears) Open(&ear);
  EXPECT_EQ(a_->engine.Open("b", 1, "end", {}, &ears[0]).status().code(),
            absl::StatusCode::kResourceExhausted);
  Settle();
  Node c(&network_, &clock_);
  Ear late;
  late.flow = *c.engine.Open("b", 1, "end", {}, &late);
  for (int i = 0; i < 10; ++i) {
    c.engine.Poll();
    Settle();
  }
  EXPECT_EQ(late.status.code(), absl::StatusCode::kResourceExhausted);
  ears[5].flow.Close();
  Settle();
  late = {};
  late.flow = *c.engine.Open("b", 1, "end", {}, &late);
  for (int i = 0; i < 10; ++i) {
    c.engine.Poll();
    Settle();
  }
  EXPECT_EQ(late.opened, 1);
  b_.reset();
  Settle();
}

TEST_F(FlowTest, NamesAndDuplicateEndsAreChecked) {
  Start();
  const auto none = [](Flow, const Offer&) { return nullptr; };
  EXPECT_EQ(b_->engine.Accept("end", {}, none).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(b_->engine.Accept("", {}, none).code(), absl::StatusCode::kInvalidArgument);
  Ear ear;
  EXPECT_EQ(a_->engine.Open("b", 1, std::string(256, 'n'), {}, &ear).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(a_->engine.Open("b", 1, std::string(255, 'n'), {}, &ear).ok());
  Settle();
  EXPECT_EQ(ear.status.code(), absl::StatusCode::kNotFound);
}

TEST_F(FlowTest, WindowHoldsTheSenderBackUntilItsMessagesAreConsumed) {
  accept_options_ = {.window = 4, .manual_consume = true};
  Start();
  Ear ear;
  Open(&ear);
  Settle();
  EXPECT_EQ(ear.SendAll("m"), 4);
  Settle();
  EXPECT_EQ(ears_[0]->heard.size(), 4u);
  EXPECT_EQ(ear.writable, 0);
  ears_[0]->flow.Consume(3);
  Settle();
  EXPECT_EQ(ear.writable, 1);
  EXPECT_EQ(ear.SendAll("m"), 3);
  Settle();
  EXPECT_EQ(ears_[0]->heard.size(), 7u);
}

TEST_F(FlowTest, AnswerOfAHandlerCarriesTheWholeWindow) {
  accept_options_.window = 1;
  on_offer_ = [](Ear* ear) {
    ear->on_message = [ear] { EXPECT_TRUE(ear->flow.Send(BytesOf("back")).ok()); };
  };
  Start();
  Ear ear;
  int answers = 0;
  absl::Status refused;
  ear.on_message = [&] {
    if (++answers < 10) refused.Update(ear.flow.Send(BytesOf("there")));
  };
  Open(&ear, {.window = 1});
  Settle();
  ASSERT_TRUE(ear.flow.Send(BytesOf("there")).ok());
  Settle();
  EXPECT_TRUE(refused.ok()) << refused;
  EXPECT_EQ(answers, 10);
}

TEST_F(FlowTest, OneFlowThatIsNotReadDoesNotHoldUpAnother) {
  fake_.credits = 8;
  accept_options_ = {.window = 64, .manual_consume = true};
  Start();
  Ear stuck;
  Ear other;
  Open(&stuck);
  Open(&other);
  Settle();
  while (stuck.SendAll("s") > 0) Settle();
  ASSERT_EQ(stuck.flow.totals().sent, 64u);
  for (int i = 0; i < 64; ++i) {
    ASSERT_TRUE(other.flow.Send(BytesOf("o")).ok()) << i;
    Settle();
  }
}

TEST_F(FlowTest, MessageOverTheLimitNamesBothSizes) {
  fake_.max_message_bytes = 1024;
  Start();
  Ear ear;
  Open(&ear);
  Settle();
  EXPECT_EQ(ear.flow.limit_bytes(), 976u);
  const absl::Status status = ear.flow.Send(BytesOf(std::string(977, 'x')));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("977 bytes, the limit is 976"), std::string::npos);
  EXPECT_TRUE(ear.flow.Send(BytesOf(std::string(976, 'x'))).ok());
  Settle();
  EXPECT_EQ(ears_[0]->heard[0].size(), 976u);
}

TEST_F(FlowTest, ReservedMessageIsSentInPlaceOrNotAtAll) {
  Start();
  Ear ear;
  Open(&ear);
  Settle();
  for (bool send : {false, true}) {
    auto buffer = ear.flow.Reserve(100);
    ASSERT_TRUE(buffer.ok());
    std::memcpy(buffer->data, "abc", 3);
    send ? ear.flow.Commit(*buffer, 3) : ear.flow.Cancel(*buffer);
  }
  Settle();
  EXPECT_EQ(ears_[0]->heard, Texts{"abc"});
}

// The shares of three priorities, all of which have more to send than there is credit for.
TEST_F(FlowTest, PrioritiesShareCreditsByWeightAndNoneStarves) {
  fake_.credits = 21;
  accept_options_.window = 60000;
  Start();
  Ear ears[3];
  for (int i = 0; i < 3; ++i) {
    Open(&ears[i], {.priority = static_cast<Priority>(i)});
    ears[i].on_writable = [&ears, i] { ears[i].SendAll(std::to_string(i)); };
  }
  Settle();
  for (Ear& ear : ears) ear.SendAll("first");
  for (int i = 0; i < 100; ++i) {
    b_->engine.Poll();
    a_->engine.Poll();
  }
  const double all = static_cast<double>(a_->engine.counters().messages_sent);
  ASSERT_GT(all, 1000);
  EXPECT_NEAR(static_cast<double>(ears[0].flow.totals().sent) / all, 1.0 / 21, 0.02);
  EXPECT_NEAR(static_cast<double>(ears[1].flow.totals().sent) / all, 4.0 / 21, 0.02);
  EXPECT_NEAR(static_cast<double>(ears[2].flow.totals().sent) / all, 16.0 / 21, 0.02);
}

TEST_F(FlowTest, FlowsOfOnePriorityTakeTurns) {
  fake_.credits = 8;
  accept_options_.window = 60000;
  Start();
  Ear ears[5];
  for (int i = 0; i < 5; ++i) {
    Open(&ears[i]);
    ears[i].on_writable = [&ears, i] { ears[i].SendAll("m"); };
  }
  Settle();
  for (Ear& ear : ears) ear.SendAll("first");
  for (int i = 0; i < 200; ++i) {
    b_->engine.Poll();
    a_->engine.Poll();
  }
  for (Ear& ear : ears) {
    EXPECT_NEAR(static_cast<double>(ear.flow.totals().sent),
                static_cast<double>(ears[0].flow.totals().sent), 16);
    EXPECT_GT(ear.flow.totals().sent, 200u);
  }
}

TEST_F(FlowTest, DeliveryIsReportedOnceAPass) {
  Start();
  Ear ear;
  Open(&ear, {.report_delivery = true});
  Settle();
  EXPECT_EQ(ear.SendAll("m", 10), 10);
  Settle();
  ASSERT_TRUE(ears_[0]->flow.Send(BytesOf("carries it")).ok());
  Settle();
  EXPECT_EQ(ear.delivered, 10u);
  EXPECT_EQ(ear.reports, 1);
}

TEST_F(FlowTest, OneAcknowledgementReportsEachFlow) {
  Start();
  Ear ears[2];
  for (Ear& ear : ears) Open(&ear);
  Settle();
  const auto alternate = [&] {
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(ears[0].SendAll("m", 2), 2);
      EXPECT_EQ(ears[1].SendAll("m", 1), 1);
    }
    Settle();
    ASSERT_TRUE(ears_[0]->flow.Send(BytesOf("carries it")).ok());
    Settle();
  };
  alternate();
  EXPECT_EQ(ears[0].delivered, 6u);
  EXPECT_EQ(ears[1].delivered, 3u);
  alternate();
  EXPECT_EQ(ears[0].delivered, 12u);
  EXPECT_EQ(ears[1].delivered, 6u);
  EXPECT_EQ(ears[0].reports, 2);
  EXPECT_EQ(ears[1].reports, 2);
}

TEST_F(FlowTest, HandlerThatIsToldOfADeliveryMayCloseFlows) {
  Start();
  Ear ears[3];
  for (Ear& ear : ears) Open(&ear);
  Settle();
  ears[0].on_delivered = [&] {  // its own flow, and one whose report is due
    ears[0].flow.Close();
    ears[2].flow.Close();
  };
  for (Ear& ear : ears) EXPECT_EQ(ear.SendAll("m", 1), 1);
  Settle();
  ASSERT_TRUE(ears_[1]->flow.Send(BytesOf("carries it")).ok());
  Settle();
  EXPECT_EQ(ears[0].closed, 1);
  EXPECT_EQ(ears[1].closed, 0);
  EXPECT_EQ(ears[1].delivered, 1u);
  EXPECT_EQ(ears[2].closed, 1);
  EXPECT_EQ(ears[2].totals.delivered, 1u);
  EXPECT_EQ(a_->engine.flows(), 1u);
}

TEST_F(FlowTest, HandlerThatClosesInsideItsMessageReportsNoWindow) {
  accept_options_ = {.window = 1};
  Start();
  Ear ear;
  Open(&ear);
  Settle();
  const uint64_t before = b_->engine.counters().control_sent;
  ears_[0]->on_message = [&] { ears_[0]->flow.Close(); };
  EXPECT_EQ(ear.SendAll("m", 1), 1);
  Settle();
  EXPECT_EQ(b_->engine.counters().control_sent, before + 1) << "the close";
  EXPECT_EQ(ear.closed, 1);
  EXPECT_EQ(ears_[0]->closed, 1);
  EXPECT_EQ(b_->engine.flows(), 0u);
}

TEST_F(FlowTest, DeliveryOfAFlowThatIsOverIsNotItsSuccessors) {
  Start();
  Ear ear;
  Open(&ear);
  Settle();
  ears_[0]->flow.Close();
  b_->engine.Poll();
  EXPECT_EQ(ear.SendAll("m", 3), 3);
  a_->engine.Poll();  // the other end's close, answered
  ASSERT_EQ(a_->engine.flows(), 0u);
  Ear next;
  Open(&next);
  ASSERT_EQ(static_cast<uint32_t>(next.flow.id()), static_cast<uint32_t>(ear.flow.id()))
      << "the same place";
  Settle();
  EXPECT_EQ(next.opened, 1);
  EXPECT_EQ(next.flow.totals().delivered, 0u);
}

TEST_F(FlowTest, CloseBeforeTheAnswerEndsBothSides) {
  Start();
  Ear ear;
  Open(&ear);
  ear.flow.Close();
  EXPECT_EQ(ear.closed, 0) << "handlers are called in Poll() only";
  Settle();
  EXPECT_EQ(ear.opened, 0);
  EXPECT_EQ(ear.closed, 1);
  ASSERT_EQ(ears_.size(), 1u);
  EXPECT_EQ(ears_[0]->closed, 1);
  EXPECT_EQ(a_->engine.flows() + b_->engine.flows(), 0u);
}

TEST_F(FlowTest, BothCloseAtOnceWithTheirReasons) {
  Start();
  Ear ear;
  Open(&ear);
  Settle();
  ear.flow.Close(absl::AbortedError("a"));
  ears_[0]->flow.Close(absl::DataLossError("b"));
  Settle();
  EXPECT_EQ(ear.status, absl::DataLossError("b"));
  EXPECT_EQ(ears_[0]->status, absl::AbortedError("a"));
  EXPECT_EQ(a_->engine.flows() + b_->engine.flows(), 0u);
}

TEST_F(FlowTest, WhatWasSentBeforeCloseIsDeliveredWithoutCredit) {
  fake_.credits = 4;
  Start();
  Ear ear;
  Open(&ear);
  Settle();
  EXPECT_EQ(ear.SendAll("m"), 4);
  ear.flow.Close();
  Settle();
  EXPECT_EQ(ears_[0]->heard.size(), 4u);
  EXPECT_EQ(ears_[0]->closed, 1);
  EXPECT_EQ(ear.totals.delivered, 4u);
}

TEST_F(FlowTest, PeerThatDiesEndsItsFlowsAndSaysWhatIsKnown) {
  Start();
  Ear ear;
  Open(&ear);
  Settle();
  EXPECT_EQ(ear.SendAll("m", 3), 3);
  Settle();
  ASSERT_TRUE(ears_[0]->flow.Send(BytesOf("ack")).ok());
  Settle();
  EXPECT_EQ(ear.SendAll("m", 2), 2);
  bool reopened = false;
  Ear again;
  ear.on_closed = [&] {  // from inside: the old connection is gone already
    EXPECT_EQ(ear.flow.Send(BytesOf("x")).code(), absl::StatusCode::kFailedPrecondition);
    auto flow = a_->engine.Open("b", 1, "end", {}, &again);
    reopened = flow.ok();
    if (reopened) again.flow = *flow;
  };
  b_->endpoint->Kill();
  Settle();
  EXPECT_EQ(ear.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(ear.status.message()).find("3 of 5 messages"), std::string::npos)
      << ear.status;
  EXPECT_TRUE(reopened);
  EXPECT_EQ(again.status.code(), absl::StatusCode::kUnavailable) << "no process listens";
  EXPECT_EQ(a_->engine.flows(), 0u);
}

TEST_F(FlowTest, CloseOfTheEngineEndsAllFlows) {
  Start();
  Ear ears[3];
  for (Ear& ear : ears) Open(&ear);
  Settle();
  a_->engine.Close();
  Settle();
  for (Ear& ear : ears) EXPECT_EQ(ear.status.code(), absl::StatusCode::kCancelled);
  for (const auto& ear : ears_) EXPECT_EQ(ear->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(a_->engine.flows() + b_->engine.flows(), 0u);
  EXPECT_EQ(a_->engine.Open("b", 1, "end", {}, &ears[0]).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(FlowTest, FlowsToOneAddressShareAConnection) {
  Start();
  Ear ears[3];
  for (Ear& ear : ears) Open(&ear);
  Settle();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(ears[i].flow.Send(BytesOf(std::to_string(i))).ok());
  EXPECT_EQ(a_->endpoint->credits_out(), 3);
  Settle();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ears_[i]->heard, Texts{std::to_string(i)});
}

}  // namespace flow_engine_test
}  // namespace sluice::flow
