// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/claim_journal.h"

#include <gtest/gtest.h>

#include "tests/transport/softdc/shm/shared_area.h"

namespace sluice::softdc::shm {
namespace claim_journal_test {

TEST(ClaimJournalTest, CreateRefusesShortOrCrookedMemory) {
  const SharedArea area(4096);
  EXPECT_FALSE(ClaimJournal::Create(area.data(), ClaimJournal::Bytes() - 1));
  EXPECT_FALSE(ClaimJournal::Attach(area.bytes() + 8, 1024));
}

TEST(ClaimJournalTest, ReadReturnsWhatWasWrittenAtTheLimits) {
  const SharedArea area(4096);
  auto writer = *ClaimJournal::Create(area.data(), area.size());
  const auto reader = *ClaimJournal::Attach(area.data(), area.size());
  EXPECT_EQ(reader.Read().count, 0u);
  for (const uint32_t srq : {0u, 1u, kMaxSrqId}) {
    for (const uint32_t count : {1u, kMaxClaim}) {
      for (const uint64_t head : {uint64_t{0}, (uint64_t{1} << 32) - 1, uint64_t{1} << 40}) {
        writer.Write(srq, head, count);
        const ClaimIntent intent = reader.Read();
        EXPECT_EQ(intent.srq_id, srq);
        EXPECT_EQ(intent.count, count);
        EXPECT_EQ(intent.head, static_cast<uint32_t>(head));
      }
    }
  }
  writer.Clear();
  EXPECT_EQ(reader.Read().count, 0u);
}

TEST(ClaimJournalTest, CoversExactlyItsTicketsAlsoWhereTheLowBitsWrap) {
  const uint64_t wrap = uint64_t{1} << 32;
  const ClaimIntent intent = {.srq_id = 9, .head = static_cast<uint32_t>(wrap - 2), .count = 4};
  EXPECT_FALSE(intent.Covers(9, wrap - 3));
  EXPECT_TRUE(intent.Covers(9, wrap - 2));
  EXPECT_TRUE(intent.Covers(9, wrap + 1));
  EXPECT_FALSE(intent.Covers(9, wrap + 2));
  EXPECT_FALSE(intent.Covers(8, wrap));
  EXPECT_FALSE((ClaimIntent{.srq_id = 9, .head = 5, .count = 0}).Covers(9, 5));
}

}  // namespace claim_journal_test
}  // namespace sluice::softdc::shm
