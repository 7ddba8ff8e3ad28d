// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/ledger.h"

#include "gtest/gtest.h"

namespace sluice::simulation {
namespace ledger_test {

class LedgerTest : public ::testing::Test {
 protected:
  LedgerTest() : ledger_(3), a_(ledger_.Up(0, 1)), b_(ledger_.Up(1, 0)) {}
  void Send(uint32_t end, int count) {
    for (int i = 0; i < count; ++i) ledger_.Sent(end);
  }
  std::string Broken() const {
    return ledger_.violations().empty() ? "" : ledger_.violations().front().what;
  }

  Ledger ledger_;
  const uint32_t a_;
  const uint32_t b_;
};

TEST_F(LedgerTest, InOrderOnceAndAcknowledged_IsWellAndAllArrived) {
  Send(a_, 2);
  ledger_.Delivered(b_, a_, 0);
  EXPECT_FALSE(ledger_.AllArrived());
  ledger_.Delivered(b_, a_, 1);
  ledger_.Acknowledged(a_, 2);
  ledger_.Sweep();
  EXPECT_TRUE(ledger_.AllArrived());
  EXPECT_TRUE(ledger_.Connected(0, 1));
  EXPECT_EQ(Broken(), "");
}

TEST_F(LedgerTest, SameMessageTwice_IsRepeated) {
  Send(a_, 2);
  ledger_.Delivered(b_, a_, 0);
  ledger_.Delivered(b_, a_, 0);
  EXPECT_NE(Broken().find("repeated"), std::string::npos) << Broken();
}

TEST_F(LedgerTest, MessageAfterTheNext_IsLostOrReordered) {
  Send(a_, 2);
  ledger_.Delivered(b_, a_, 1);
  EXPECT_NE(Broken().find("lost or reordered"), std::string::npos) << Broken();
}

TEST_F(LedgerTest, MessageForAnotherHost_IsMisdelivered) {
  const uint32_t c = ledger_.Up(2, 0);
  Send(a_, 1);
  ledger_.Delivered(c, a_, 0);
  EXPECT_NE(Broken().find("misdelivered"), std::string::npos) << Broken();
}

TEST_F(LedgerTest, MessageForThePreviousIncarnation_IsMisdelivered) {
  Send(a_, 2);
  ledger_.Delivered(b_, a_, 0);
  ledger_.Down(b_, "killed", /*announced=*/true);
  const uint32_t again = ledger_.Up(1, 0);
  ledger_.Delivered(again, a_, 1);
  EXPECT_NE(Broken().find("another incarnation"), std::string::npos) << Broken();
}

TEST_F(LedgerTest, MoreAcknowledgedThanDelivered_IsBroken) {
  Send(a_, 2);
  ledger_.Delivered(b_, a_, 0);
  ledger_.Acknowledged(a_, 2);
  EXPECT_NE(Broken().find("is told that 2 messages were delivered"), std::string::npos) << Broken();
}

TEST_F(LedgerTest, ConnectionThatEndsWithoutCause_IsBroken) {
  Send(a_, 1);
  ledger_.Delivered(b_, a_, 0);
  ledger_.Down(a_, "just so", /*announced=*/false);
  EXPECT_NE(Broken().find("without a cause"), std::string::npos) << Broken();
}

TEST_F(LedgerTest, ConnectionThatEndsInTrouble_IsExcusedAtBothEnds) {
  Send(a_, 1);
  ledger_.Delivered(b_, a_, 0);
  ledger_.BeginTrouble(1, 0);
  ledger_.EndTrouble(1, 0);
  ledger_.Down(a_, "its peer was killed", /*announced=*/false);
  ledger_.Down(b_, "goodbye", /*announced=*/false);
  EXPECT_EQ(Broken(), "");
  EXPECT_EQ(ledger_.downs(), 2u);
}

TEST_F(LedgerTest, ConnectionThatComesUpWhenItsOtherEndIsGone_IsExcused) {
  const uint32_t killed = ledger_.Up(2, 0);
  Send(killed, 1);
  ledger_.Down(killed, "killed", /*announced=*/true);
  const uint32_t late = ledger_.Up(0, 2);
  ledger_.Delivered(late, killed, 0);
  ledger_.Down(late, "its peer has gone", /*announced=*/false);
  EXPECT_EQ(Broken(), "");
}

}  // namespace ledger_test
}  // namespace sluice::simulation
