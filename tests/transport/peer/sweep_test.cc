// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/sweep.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::peer {
namespace sweep_test {

constexpr int64_t kRoundNs = 64'000;
constexpr int64_t kStepNs = kRoundNs / Sweep::kSlices;

// Takes the next look when it is due and says which records it has.
std::vector<size_t> LookOnTime(Sweep& sweep, size_t size) {
  std::vector<size_t> records;
  for (size_t i = sweep.Take(size, sweep.due_ns()); i < size; i += Sweep::kSlices) {
    records.push_back(i);
  }
  return records;
}

TEST(Sweep, TenThousandRecordsAreEachLookedAtOnceARoundAndFewAtOnce) {
  constexpr size_t kSize = 10'000;
  Sweep sweep(kRoundNs);
  sweep.Start(5);
  std::vector<int> looks(kSize, 0);
  for (int round = 1; round <= 3; ++round) {
    const int64_t start_ns = sweep.due_ns();
    for (uint32_t i = 0; i < Sweep::kSlices; ++i) {
      const auto records = LookOnTime(sweep, kSize);
      EXPECT_LE(records.size(), kSize / Sweep::kSlices + 1);
      for (const size_t record : records) ++looks[record];
    }
    EXPECT_EQ(sweep.due_ns() - start_ns, kRoundNs);
    EXPECT_EQ(std::count(looks.begin(), looks.end(), round), static_cast<ptrdiff_t>(kSize));
  }
}

TEST(Sweep, FewRecordsCostAsManyLooksARound) {
  for (const size_t size : {1, 2, 63}) {
    Sweep sweep(kRoundNs);
    sweep.Start(0);
    const int64_t start_ns = sweep.due_ns();
    for (size_t i = 0; i < size; ++i) EXPECT_EQ(LookOnTime(sweep, size), std::vector<size_t>{i});
    EXPECT_EQ(sweep.due_ns() - start_ns, kRoundNs) << size;
  }
}

TEST(Sweep, RecordsAddedMeanwhileAreReachedWithinTwoRounds) {
  for (size_t before = 1; before < 2 * Sweep::kSlices; ++before) {
    Sweep sweep(kRoundNs);
    sweep.Start(0);
    LookOnTime(sweep, before);
    const int64_t added_ns = sweep.due_ns() - kStepNs;
    const size_t record = before;  // the new one
    for (;;) {
      const int64_t now_ns = sweep.due_ns();
      const auto records = LookOnTime(sweep, before + 1);
      ASSERT_LE(now_ns - added_ns, 2 * kRoundNs) << before;
      if (std::find(records.begin(), records.end(), record) != records.end()) break;
    }
  }
}

TEST(Sweep, LookThatComesLateDelaysTheOthersInsteadOfCrowdingThem) {
  constexpr size_t kSize = 100;
  Sweep sweep(kRoundNs);
  sweep.Start(0);
  std::vector<int64_t> last_ns(Sweep::kSlices, -kRoundNs);
  int64_t now_ns = 0;
  for (int look = 0; look < 500; ++look) {
    now_ns = std::max(now_ns, sweep.due_ns());
    if (look % 7 == 3) now_ns += 3 * kRoundNs + look;  // this side was away
    const uint32_t slice = sweep.Take(kSize, now_ns);
    EXPECT_GE(now_ns - last_ns[slice], kRoundNs - kStepNs);
    EXPECT_GT(sweep.due_ns(), now_ns - kStepNs);
    last_ns[slice] = now_ns;
  }
}

}  // namespace sweep_test
}  // namespace sluice::peer
