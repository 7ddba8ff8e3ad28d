// SPDX-License-Identifier: Apache-2.0
//
// A peer that takes no messages, and asks for answers all the time: it gets a share of the control slots, and other peers get
// their messages.
#include <cstdint>

#include "gtest/gtest.h"
#include "tests/support/manual_clock.h"
#include "tests/transport/endpoint/offender.h"
#include "transport/softdc/verbs.h"

namespace sluice::endpoint {
namespace control_slots_test {

constexpr uint64_t kSlots = 256;  // of an endpoint
constexpr uint64_t kFew = 4;
constexpr uint32_t kManyAsks = 300;  // more than there are slots

// A message to a peer without receive buffers waits until there is one. With the usual number of retries it would fail after some
// milliseconds, and the slots would be free again.
int RetryForEver(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  ibv_qp_attr changed = *attr;
  if ((mask & IBV_QP_RNR_RETRY) != 0) changed.rnr_retry = 7;
  return softdc::Verbs().modify_qp(qp, &changed, mask);
}

const verbs::VerbsApi& PatientVerbs() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = softdc::Verbs();
    api.modify_qp = &RetryForEver;
    return api;
  }();
  return table;
}

class ControlSlotsTest : public OffenderTest {
 protected:
  void SetUp() override {
    server_.emplace(WithWindow(8), &PatientVerbs(), &time_, &saw_);
    const auto port = server_->endpoint->Listen("127.0.0.1", 0);
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *port;
    ConnectOffender(hostile_);
    ConnectOffender(other_);
    ASSERT_EQ(saw_.ups.size(), 2u);
  }
  // The server waits until its goodbyes have left, so the hostile peer takes its messages now.
  void TearDown() override {
    for (const Recorder::Up& up : saw_.ups) server_->endpoint->Disconnect(up.id);
    if (!saw_.ups.empty()) {
      hostile_.TakeAll();
      Drive(*server_, hostile_,
            [&] { return hostile_.Has(peer::Kind::kGoodbye) || hostile_.down; });
    }
    OffenderTest::TearDown();
  }
  Counters Counts() { return server_->endpoint->Counts(); }
  // Each message is handled by itself, so each asks for an answer of its own.
  void Say(RawPeer& raw, peer::Kind kind, uint32_t times = 1) {
    for (uint32_t i = 0; i < times; ++i) {
      const uint64_t before = Counts().control_received;
      raw.Send(raw.Prefix(kind));
      Drive(*server_, raw,
            [&] { return raw.under_way == 0 && Counts().control_received != before; });
    }
  }
  // Afterwards the hostile peer holds all slots that it can get.
  void FillSlots() {
    Say(hostile_, peer::Kind::kProbe, kManyAsks);
    ASSERT_LE(Counts().credit_messages, kSlots / 4 + kFew);
    ASSERT_EQ(hostile_.received.size(), 1u) << "the answer of its handshake";
  }
  void SendAll(PeerId peer) {
    while (server_->Send(peer, "data").ok()) continue;
  }

  testing_support::ManualClock time_;
  Recorder saw_;
  RawPeer hostile_{Shared(), &softdc::Verbs(), /*first_buffers=*/1};
  RawPeer other_{Shared()};
};

TEST_F(ControlSlotsTest, PeerThatTakesNothingGetsAQuarterAndOthersGetTheirAnswers) {
  ASSERT_NO_FATAL_FAILURE(FillSlots());
  EXPECT_GE(Counts().credit_messages, kSlots / 4 - kFew);
  Say(other_, peer::Kind::kProbe);
  Drive(*server_, other_, [&] { return other_.Has(peer::Kind::kCredits); });
  EXPECT_TRUE(saw_.downs.empty());
}

// Once others have the first quarter, it gets a few.
TEST_F(ControlSlotsTest, PeerGetsAFewWhileAQuarterIsInUse) {
  ASSERT_NO_FATAL_FAILURE(FillSlots());
  const uint64_t before = Counts().credit_messages;
  RawPeer second(Shared(), &softdc::Verbs(), /*first_buffers=*/1);
  ConnectOffender(second);
  Say(second, peer::Kind::kProbe, kManyAsks);
  const uint64_t got = Counts().credit_messages - before;
  EXPECT_GE(got, kFew - 1) << "its handshake may hold a slot";
  EXPECT_LE(got, kFew);
  second.TakeAll();
  // Its slots are behind those of the first peer, in the order of completions.
  hostile_.TakeAll();
  Drive(*server_, second, [&] {
    hostile_.Step();
    return second.Has(peer::Kind::kCredits) && Counts().credit_messages > before + got;
  });
}

TEST_F(ControlSlotsTest, AnswerThatWaitedIsSentWhenThePeerTakesItsMessages) {
  ASSERT_NO_FATAL_FAILURE(FillSlots());
  const uint64_t before = Counts().credit_messages;
  while (!server_->endpoint->PrepareToSleep()) server_->endpoint->Poll();
  EXPECT_EQ(Counts().credit_messages, before) << "it sleeps although an answer waits";
  hostile_.TakeAll();
  Drive(*server_, hostile_, [&] {
    return Counts().credit_messages > before &&
           hostile_.received.size() == 1 + Counts().credit_messages;
  });
  EXPECT_EQ(Counts().credit_messages, before + 1) << "one answer for all that were left";
}

TEST_F(ControlSlotsTest, GoodbyesAreSent) {
  ASSERT_NO_FATAL_FAILURE(FillSlots());
  server_->endpoint->Disconnect(saw_.ups[1].id);
  Drive(*server_, other_, [&] { return other_.Has(peer::Kind::kGoodbye) || other_.down; });
  EXPECT_TRUE(other_.Has(peer::Kind::kGoodbye));
  server_->endpoint->Disconnect(saw_.ups[0].id);
  for (int i = 0; i < 64; ++i) server_->endpoint->Poll();
  hostile_.TakeAll();
  Drive(*server_, hostile_, [&] { return hostile_.Has(peer::Kind::kGoodbye) || hostile_.down; });
  EXPECT_TRUE(hostile_.Has(peer::Kind::kGoodbye)) << "behind its answers";
}

// Both have used all credit, and have answered all requests for a report, the second of which may follow from the first answer.
TEST_F(ControlSlotsTest, PeersBehindItAreAskedForCredit) {
  ASSERT_NO_FATAL_FAILURE(FillSlots());
  SendAll(saw_.ups[0].id);
  SendAll(saw_.ups[1].id);
  Say(hostile_, peer::Kind::kCredits, 2);
  Say(other_, peer::Kind::kCredits, 2);
  ASSERT_EQ(Counts().probes, 0u);
  time_.Advance(3'000'000);
  Look();
  EXPECT_EQ(Counts().probes, 1u) << "of the second peer";
}

}  // namespace control_slots_test
}  // namespace sluice::endpoint
