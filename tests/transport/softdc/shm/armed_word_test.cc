// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/armed_word.h"

#include <gtest/gtest.h>

#include "tests/transport/softdc/shm/shared_area.h"

namespace sluice::softdc::shm {
namespace armed_word_test {

constexpr uint32_t kLink = 3;
constexpr uint32_t kOtherLink = 4;
using Mode = ArmedWord::Mode;

class ArmedWordTest : public ::testing::Test {
 protected:
  ArmedWordTest()
      : area_(ArmedWord::Bytes()),
        owner_(*ArmedWord::Create(area_.data(), area_.size())),
        producer_(*ArmedWord::Attach(area_.data(), area_.size())) {}

  SharedArea area_;
  ArmedWord owner_;
  ArmedWord producer_;
};

TEST_F(ArmedWordTest, CreateRefusesShortOrCrookedMemory) {
  EXPECT_FALSE(ArmedWord::Create(area_.data(), ArmedWord::Bytes() - 1));
  EXPECT_FALSE(ArmedWord::Attach(area_.bytes() + 4, area_.size() - 4));
}

TEST_F(ArmedWordTest, UnarmedIsNeverTaken) {
  EXPECT_FALSE(producer_.TryTake(kLink, true));
  EXPECT_FALSE(owner_.CollectEvent());
}

TEST_F(ArmedWordTest, OneArmGivesOneRingAndOneEvent) {
  owner_.Arm(Mode::kAny);
  EXPECT_FALSE(owner_.CollectEvent());
  EXPECT_TRUE(producer_.TryTake(kLink, false));
  EXPECT_FALSE(producer_.TryTake(kOtherLink, true));
  EXPECT_TRUE(owner_.CollectEvent());
  EXPECT_FALSE(owner_.CollectEvent());
  EXPECT_FALSE(producer_.TryTake(kLink, true)) << "unarmed again";
}

TEST_F(ArmedWordTest, SolicitedIgnoresPlainCompletions) {
  owner_.Arm(Mode::kSolicited);
  EXPECT_FALSE(producer_.TryTake(kLink, false));
  EXPECT_TRUE(producer_.TryTake(kLink, true));
  EXPECT_TRUE(owner_.CollectEvent());
}

TEST_F(ArmedWordTest, ArmForAnyWinsOverSolicited) {
  owner_.Arm(Mode::kAny);
  owner_.Arm(Mode::kSolicited);
  EXPECT_TRUE(producer_.TryTake(kLink, false));
  EXPECT_TRUE(owner_.CollectEvent());
  owner_.Arm(Mode::kSolicited);
  owner_.Arm(Mode::kAny);
  EXPECT_TRUE(producer_.TryTake(kLink, false));
}

TEST_F(ArmedWordTest, ArmWhileAnEventIsDueKeepsTheEvent) {
  owner_.Arm(Mode::kAny);
  ASSERT_TRUE(producer_.TryTake(kLink, false));
  owner_.Arm(Mode::kAny);
  EXPECT_TRUE(owner_.CollectEvent());
}

TEST_F(ArmedWordTest, OwesAfterDeathWhenTheDeadOneTookTheWord) {
  owner_.Arm(Mode::kAny);
  ASSERT_TRUE(producer_.TryTake(kLink, false));
  EXPECT_FALSE(owner_.OwesAfterDeath(kOtherLink, true)) << "somebody living owes it";
  EXPECT_TRUE(owner_.OwesAfterDeath(kLink, false));
  EXPECT_TRUE(owner_.CollectEvent());
  EXPECT_FALSE(owner_.OwesAfterDeath(kLink, false)) << "collected: nothing is owed";
}

TEST_F(ArmedWordTest, OwesAfterDeathWhenTheDeadOnePublishedWithoutLooking) {
  owner_.Arm(Mode::kAny);
  EXPECT_FALSE(owner_.OwesAfterDeath(kLink, false));
  EXPECT_TRUE(owner_.OwesAfterDeath(kLink, true));
  EXPECT_TRUE(owner_.CollectEvent());
  EXPECT_FALSE(owner_.OwesAfterDeath(kLink, true)) << "not armed";
}

}  // namespace armed_word_test
}  // namespace sluice::softdc::shm
