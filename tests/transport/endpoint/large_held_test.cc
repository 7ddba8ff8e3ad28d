// SPDX-License-Identifier: Apache-2.0
//
// Large messages whose memory is in somebody's hands (held_memory.h), between endpoints in virtual time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/transport/endpoint/large_world.h"

namespace sluice::endpoint {
namespace large_held_test {

using LargeHeldTest = LargeWorld;

TEST_F(LargeHeldTest, HeldMemoryIsLentAgainToItsPeerAlone) {
  Start();
  const auto lent = Lend(kMiB);
  HeldMemory held = lender_->endpoint().HoldLent(lent->number);
  EndLoan(*lent);
  EXPECT_EQ(held.data(), lent->data);
  EXPECT_FALSE(lender_->endpoint().LendHeld({77, 1}, held));
  EXPECT_FALSE(reader_->endpoint().LendHeld(to_lender_, held)) << "another endpoint's";
  const auto other = Lend(kMiB);
  EXPECT_NE(other->data, lent->data) << "it is not free";
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(lender_->endpoint().LendHeld(to_reader_, held));
    EXPECT_FALSE(lender_->endpoint().LendHeld(to_reader_, held)) << "it is lent";
    const uint32_t fetch = Fetch(Where(*lent));
    EXPECT_TRUE(End(fetch).ok()) << End(fetch);
    ExpectSame(fetch, kMiB);
    GiveBack(fetch);
    EndLoan(*lent);
  }
  EndLoan(*other);
  held.Reset();
  std::vector<std::byte*> free;
  for (int i = 0; i < 2; ++i) free.push_back(Lend(kMiB)->data);
  EXPECT_TRUE(std::find(free.begin(), free.end(), lent->data) != free.end()) << "used again";
}

TEST_F(LargeHeldTest, HeldMemoryStaysWhenItsKeyDiesWithTheConnection) {
  Start();
  const auto lent = Lend(kMiB);
  const RemoteMemory where = Where(*lent);
  const HeldMemory held = lender_->endpoint().HoldLent(lent->number);
  lender_->endpoint().Disconnect(to_reader_);
  ASSERT_TRUE(Run([&] { return !lender_saw_.downs.empty() && !reader_saw_.downs.empty(); }));
  EndLoan(*lent);
  ASSERT_TRUE(reader_->Connect(0).ok());
  ASSERT_TRUE(Run([&] { return lender_saw_.ups.size() + reader_saw_.ups.size() == 4; }));
  to_reader_ = lender_saw_.ups[1].id;
  to_lender_ = reader_saw_.ups[1].id;
  lender_saw_.downs.clear();
  reader_saw_.downs.clear();
  EXPECT_EQ(End(Fetch(where)).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(lender_->endpoint().LendHeld(to_reader_, held)) << "it was another peer's";
  EXPECT_EQ(held.data()[77], At(77));
}

TEST_F(LargeHeldTest, MemoryThatIsRegisteredAfterItsPeerHasGoneIsRevoked) {
  Start();
  const Simulation::As as(*simulation_, 0);
  const auto lent = lender_->endpoint().Lend(to_reader_, kMiB, /*waits=*/true);
  ASSERT_TRUE(lent.ok());
  ASSERT_FALSE(lender_->endpoint().WhereLent(lent->number).has_value());
  HeldMemory held = lender_->endpoint().HoldLent(lent->number);
  lender_->endpoint().Disconnect(to_reader_);
  ASSERT_TRUE(Run([&] { return !lender_saw_.downs.empty(); }));
  Run([] { return false; }, 1'000'000'000);
  EXPECT_FALSE(lender_->endpoint().WhereLent(lent->number).has_value());
  lender_->endpoint().EndLoan(lent->number);
  held.data()[0] = std::byte{1};
  held.Reset();
  Run([] { return false; }, 1'000'000'000);
}

// Half of the memory stays for others, and who waits for what is held gets it.
TEST_F(LargeHeldTest, WhatWasFetchedIsHeldUpToAHalf) {
  Start();
  StartSecondLender();
  const auto lent = Lend(7 * kMiB);
  const uint32_t a = Fetch(Where(*lent));
  const uint32_t b = Fetch(to_second_, LendFromSecond(7 * kMiB));
  ASSERT_TRUE(End(a).ok() && End(b).ok());
  HeldMemory held = reader_->endpoint().HoldFetched(a);
  ASSERT_TRUE(held);
  EXPECT_EQ(held.data(), reader_saw_.fetched.at(a)->data);
  EXPECT_FALSE(reader_->endpoint().HoldFetched(b)) << "over a half";
  const uint32_t c = Fetch(Where(*lent));
  EXPECT_FALSE(Run([&] { return reader_saw_.fetched.contains(c); }, 1'000'000'000));
  ExpectSame(a, 7 * kMiB);
  reader_saw_.fetched.erase(a);
  held.Reset();
  EXPECT_TRUE(End(c).ok()) << End(c);
  held = reader_->endpoint().HoldFetched(c);
  EXPECT_TRUE(held);
  GiveBack(b);
  EndLoan(*lent);
}

// It would wait for ever, or until the first is given back: what is held counts for no peer.
TEST_F(LargeHeldTest, WhoKeepsOneMessageGetsTheNextOfThatPeer) {
  Start();
  const auto lent = Lend(7 * kMiB);
  const uint32_t first = Fetch(Where(*lent));
  ASSERT_TRUE(End(first).ok());
  const HeldMemory held = reader_->endpoint().HoldFetched(first);
  ASSERT_TRUE(held);
  const uint32_t next = Fetch(Where(*lent));
  EXPECT_TRUE(End(next).ok());
  GiveBack(next);
  EndLoan(*lent);
}

// However little memory there is: what is held leaves room for the largest message.
TEST_F(LargeHeldTest, WhatIsHeldLeavesRoomForTheLargestMessage) {
  Options options = LargeOptions();
  options.max_large_bytes = 12 * kMiB;
  Start(options);
  const auto small = Lend(3 * kMiB);
  std::vector<uint32_t> fetches;
  for (int i = 0; i < 2; ++i) fetches.push_back(Fetch(Where(*small)));
  ASSERT_TRUE(End(fetches[0]).ok() && End(fetches[1]).ok());
  const HeldMemory held = reader_->endpoint().HoldFetched(fetches[0]);
  EXPECT_TRUE(held);
  EXPECT_FALSE(reader_->endpoint().HoldFetched(fetches[1])) << "less than a half, but too much";
  GiveBack(fetches[1]);
  EndLoan(*small);
  const auto large = Lend(12 * kMiB);
  ASSERT_TRUE(large.has_value());
  const uint32_t fetch = Fetch(Where(*large));
  EXPECT_TRUE(End(fetch).ok());
  GiveBack(fetch);
  EndLoan(*large);
}

TEST_F(LargeHeldTest, HeldMemoryOutlivesItsEndpoint) {
  Start();
  const auto lent = Lend(kMiB);
  const uint32_t fetch = Fetch(Where(*lent));
  ASSERT_TRUE(End(fetch).ok());
  HeldMemory written = lender_->endpoint().HoldLent(lent->number);
  HeldMemory read = reader_->endpoint().HoldFetched(fetch);
  EndLoan(*lent);
  lender_->endpoint().Disconnect(to_reader_);
  ASSERT_TRUE(Run([&] { return !lender_saw_.downs.empty() && !reader_saw_.downs.empty(); }));
  lender_.reset();
  reader_.reset();
  simulation_.reset();
  EXPECT_EQ(std::memcmp(written.data(), read.data(), kMiB), 0);
  written.data()[kMiB - 1] = std::byte{1};
}

}  // namespace large_held_test
}  // namespace sluice::endpoint
