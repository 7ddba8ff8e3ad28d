// SPDX-License-Identifier: Apache-2.0
#include "transport/base/state_table.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace sluice::base {
namespace state_table_test {

enum class Door : uint8_t { kOpen, kClosed, kLocked };
enum class Push : uint8_t { kShut, kTurn };

constexpr Transition<Door, Push> kRows[] = {
    {Door::kOpen, Push::kShut, Door::kClosed},
    {Door::kClosed, Push::kTurn, Door::kLocked},
    {Door::kLocked, Push::kTurn, Door::kClosed},
};
constexpr StateTable kTable(kRows, {"open", "closed", "locked"}, {"shut", "turn"});

TEST(StateTableTest, Next) {
  Door door = Door::kOpen;
  EXPECT_FALSE(kTable.Next(door, Push::kTurn, &door));
  EXPECT_EQ(door, Door::kOpen) << "left as it is";
  EXPECT_TRUE(kTable.Next(door, Push::kShut, &door));
  EXPECT_EQ(door, Door::kClosed);
  EXPECT_TRUE(kTable.Next(door, Push::kTurn, &door));
  EXPECT_EQ(door, Door::kLocked);
  EXPECT_FALSE(kTable.Next(door, Push::kShut, &door));
  static_assert([] {
    Door next = Door::kOpen;
    return kTable.Next(Door::kLocked, Push::kTurn, &next) && next == Door::kClosed;
  }());
}

TEST(StateTableTest, Print) {
  EXPECT_STREQ(kTable.NameOf(Door::kLocked), "locked");
  EXPECT_STREQ(kTable.NameOf(Push::kTurn), "turn");
  EXPECT_EQ(
      kTable.Print("door "),
      "door open: shut -> closed\ndoor closed: turn -> locked\ndoor locked: turn -> closed\n");
}

}  // namespace state_table_test
}  // namespace sluice::base
