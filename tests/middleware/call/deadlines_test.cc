// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/deadlines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

namespace sluice::call {
namespace deadlines_test {

class DeadlinesTest : public ::testing::Test {
 protected:
  static void OnDue(void* context, Deadline* due) {
    auto* const self = static_cast<DeadlinesTest*>(context);
    EXPECT_LE(due->deadline_ns, self->now_ns_) << "too early";
    self->came_.push_back(due - self->all_.data());
  }
  void Add(size_t which, int64_t deadline_ns) {
    all_[which].deadline_ns = deadline_ns;
    deadlines_.Add(&all_[which]);
  }
  std::vector<size_t> Advance(int64_t now_ns) {
    came_.clear();
    now_ns_ = now_ns;
    wheel_.Advance(now_ns);
    return came_;
  }

  int64_t now_ns_ = 0;
  base::TimerWheel wheel_{0, 1000};
  Deadlines deadlines_{&wheel_, &now_ns_, &DeadlinesTest::OnDue, this};
  std::array<Deadline, 16> all_;
  std::vector<size_t> came_;
};

TEST_F(DeadlinesTest, DeadlinesInOrderShareOneTimer) {
  for (size_t i = 0; i < 8; ++i) Add(i, 10'000 + static_cast<int64_t>(i / 2) * 1000);
  EXPECT_EQ(wheel_.size(), 1u);
  EXPECT_EQ(Advance(9'000), std::vector<size_t>{});
  EXPECT_EQ(Advance(11'000), (std::vector<size_t>{0, 1, 2, 3}));
  EXPECT_EQ(Advance(20'000), (std::vector<size_t>{4, 5, 6, 7})) << "all that are due in one pass";
  EXPECT_EQ(wheel_.size(), 0u);
}

TEST_F(DeadlinesTest, AnEarlierDeadlineIsNotDelayedByTheQueue) {
  Add(0, 50'000);
  Add(1, 5'000);
  EXPECT_EQ(wheel_.size(), 2u);
  EXPECT_EQ(Advance(6'000), std::vector<size_t>{1});
  EXPECT_EQ(Advance(50'000), std::vector<size_t>{0});
}

TEST_F(DeadlinesTest, ADeadlineAfterALongerOneThatHasGoneIsInTime) {
  Add(0, 50'000);
  deadlines_.Remove(&all_[0]);
  Add(1, 5'000);
  EXPECT_EQ(wheel_.size(), 1u) << "the timer of the queue, moved";
  EXPECT_EQ(Advance(6'000), std::vector<size_t>{1});
  EXPECT_EQ(Advance(60'000), std::vector<size_t>{});
}

TEST_F(DeadlinesTest, RemovedDeadlinesLeaveTheTimerUntilItIsSettled) {
  Add(0, 5'000);
  Add(1, 90'000);
  deadlines_.Remove(&all_[0]);
  EXPECT_LE(wheel_.NextWakeNs(), 5'000);
  deadlines_.Settle();
  EXPECT_GT(wheel_.NextWakeNs(), 5'000);
  EXPECT_LE(wheel_.NextWakeNs(), 90'000);
  deadlines_.Remove(&all_[1]);
  deadlines_.Settle();
  EXPECT_EQ(wheel_.NextWakeNs(), -1) << "a side without calls sleeps without a limit";
  Add(2, 7'000);
  EXPECT_EQ(Advance(7'000), std::vector<size_t>{2});
}

TEST_F(DeadlinesTest, RandomDeadlinesComeOnceAndInTime) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::array<bool, 16> armed{};
    for (int step = 0; step < 2000; ++step) {
      const size_t which = random() % all_.size();
      if (random() % 8 == 0) {
        const auto came = Advance(now_ns_ + static_cast<int64_t>(random() % 20'000));
        for (const size_t one : came) {
          ASSERT_TRUE(armed[one]) << "it was removed, or has come";
          armed[one] = false;
        }
        for (size_t i = 0; i < all_.size(); ++i) {
          // Late by less than a tick.
          if (armed[i]) {
            ASSERT_GT(all_[i].deadline_ns + 1000, now_ns_);
          }
        }
      } else if (armed[which]) {
        deadlines_.Remove(&all_[which]);
        armed[which] = false;
      } else {
        const bool usual = random() % 4 != 0;
        Add(which, now_ns_ + (usual ? 30'000 : static_cast<int64_t>(1 + random() % 60'000)));
        armed[which] = true;
      }
      if (random() % 16 == 0) deadlines_.Settle();
    }
    for (size_t i = 0; i < all_.size(); ++i) {
      if (armed[i]) deadlines_.Remove(&all_[i]);
    }
    deadlines_.Settle();
    ASSERT_EQ(wheel_.size(), 0u);
  }
}

}  // namespace deadlines_test
}  // namespace sluice::call
