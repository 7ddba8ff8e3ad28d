// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/half_open.h"

#include <string>

#include "gtest/gtest.h"

namespace sluice::peer {
namespace half_open_test {

TEST(HalfOpen, OneSourceMayHaveAllAndItsOldestMakesRoomForAnother) {
  HalfOpen places(4);
  for (uint32_t client = 10; client < 14; ++client) {
    EXPECT_FALSE(places.Surplus("a").has_value());
    places.Enter("a", client);
  }
  EXPECT_TRUE(places.full());
  EXPECT_FALSE(places.Surplus("a").has_value()) << "its own share";
  ASSERT_TRUE(places.Surplus("b").has_value());
  EXPECT_EQ(*places.Surplus("b"), 10u);
  places.Leave("a", 10);
  places.Enter("b", 20);
  EXPECT_EQ(places.Surplus("b"), 11u);
  places.Leave("a", 11);
  places.Enter("b", 21);
  // Two each: one more for either would only be the other's turn next.
  EXPECT_FALSE(places.Surplus("a").has_value());
  EXPECT_FALSE(places.Surplus("b").has_value());
  EXPECT_EQ(places.Surplus("c").has_value(), true);
}

TEST(HalfOpen, ANewcomerFindsAPlaceHoweverManyTakeWhatTheyCan) {
  HalfOpen places(512);
  uint32_t next = 0;
  for (int i = 0; i < 255; ++i) {
    const std::string source = "hostile" + std::to_string(i);
    for (int tries = 0; tries < 600 && !places.full(); ++tries) places.Enter(source, next++);
    ASSERT_TRUE(places.Surplus("newcomer").has_value()) << i;
  }
}

TEST(HalfOpen, OldestIsNamedWhileThisHasPlacesToo) {
  HalfOpen places(100);
  places.Enter("a", 1);
  EXPECT_FALSE(places.Oldest("b").has_value()) << "one more than none is no surplus";
  places.Enter("a", 2);
  EXPECT_FALSE(places.Surplus("b").has_value());
  EXPECT_EQ(places.Oldest("b"), 1u);
  EXPECT_FALSE(places.Oldest("a").has_value());
}

TEST(HalfOpen, PlacesComeBack) {
  HalfOpen places(2);
  places.Enter("a", 1);
  places.Enter("a", 2);
  EXPECT_TRUE(places.full());
  places.Leave("a", 1);
  EXPECT_FALSE(places.full());
  places.Leave("a", 2);
  EXPECT_EQ(places.taken(), 0u);
}

TEST(HalfOpen, HalfTakenIsSaidBeforeThePlaceBeyondIsTaken) {
  HalfOpen places(5);
  EXPECT_FALSE(places.half_taken());
  places.Enter("a", 1);
  EXPECT_FALSE(places.half_taken());
  places.Enter("a", 2);
  EXPECT_TRUE(places.half_taken());
  EXPECT_TRUE(HalfOpen(1).half_taken()) << "half of one place is none";
}

}  // namespace half_open_test
}  // namespace sluice::peer
