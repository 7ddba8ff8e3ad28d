// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/transport/softdc/shm/shared_area.h"
#include "transport/softdc/shm/claim_journal.h"
#include "transport/softdc/shm/srq_claimer.h"
#include "transport/softdc/shm/srq_owner.h"

namespace sluice::softdc::shm {
namespace srq_test {

constexpr uint32_t kSrqId = 7;

class SrqTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kCapacity = 8;
  static constexpr uint32_t kMaxSge = 3;

  SrqTest()
      : area_(SrqOwner::Bytes(kCapacity, kMaxSge)),
        line_(2 * ClaimJournal::Bytes()),
        owner_(*SrqOwner::Create(area_.data(), area_.size(), kSrqId, kCapacity, kMaxSge)),
        claimer_(*SrqClaimer::Attach(area_.data(), area_.size())),
        journal_(*ClaimJournal::Create(line_.data(), line_.size())) {}

  void PostOne(uint64_t wr_id) {
    const Sge sge{.offset = wr_id * 100, .key = 2, .length = 64};
    ASSERT_TRUE(owner_.Post({&sge, 1}, wr_id));
  }
  ClaimResult Claim(uint32_t want) { return claimer_.Claim(want, journal_, wqes_); }

  SharedArea area_;
  SharedArea line_;
  SrqOwner owner_;
  SrqClaimer claimer_;
  ClaimJournal journal_;
  std::array<ClaimedWqe, 16> wqes_;
};

// Rows for pieces are of WQEs that have several, and most have one.
TEST(SrqMemoryTest, AnSrqTakesPagesAsItIsUsed) {
  constexpr uint32_t kLarge = 4096;
  const SparseArea area(SrqOwner::Bytes(kLarge, 4));
  auto owner = SrqOwner::Create(area.data(), area.size(), kSrqId, kLarge, 4);
  ASSERT_TRUE(owner);
  EXPECT_LE(area.TouchedBytes(), 4096u);
}

TEST_F(SrqTest, CreateRefusesBadShapesAndShortMemory) {
  EXPECT_FALSE(SrqOwner::Create(area_.data(), area_.size(), kSrqId, 6, 1));
  EXPECT_FALSE(SrqOwner::Create(area_.data(), area_.size(), kSrqId, 1, 1));
  EXPECT_FALSE(SrqOwner::Create(area_.data(), area_.size(), kSrqId, kCapacity, 0));
  EXPECT_FALSE(SrqOwner::Create(area_.data(), area_.size(), kMaxSrqId + 1, kCapacity, 1));
  EXPECT_FALSE(SrqOwner::Create(area_.bytes() + 8, area_.size() - 8, kSrqId, 2, 1));
  const size_t enough = SrqOwner::Bytes(kCapacity, kMaxSge);
  EXPECT_FALSE(SrqOwner::Create(area_.data(), enough - 1, kSrqId, kCapacity, kMaxSge));
}

TEST_F(SrqTest, AttachRefusesWhatIsNoSrqOrTooLong) {
  EXPECT_FALSE(SrqClaimer::Attach(line_.data(), line_.size()));
  EXPECT_FALSE(SrqClaimer::Attach(area_.data(), area_.size() - 1));
  EXPECT_FALSE(SrqClaimer::Attach(nullptr, area_.size()));
  auto* head = static_cast<internal::SrqHead*>(area_.data());
  head->capacity = 16;  // would reach past the memory
  EXPECT_FALSE(SrqClaimer::Attach(area_.data(), area_.size()));
  head->capacity = 7;
  EXPECT_FALSE(SrqClaimer::Attach(area_.data(), area_.size()));
  head->capacity = kCapacity;
  EXPECT_TRUE(SrqClaimer::Attach(area_.data(), area_.size()));
}

TEST_F(SrqTest, ClaimSeesOnlyWhatWasRung) {
  EXPECT_EQ(Claim(1).status, ClaimStatus::kEmpty);
  PostOne(11);
  EXPECT_EQ(Claim(1).status, ClaimStatus::kEmpty);
  EXPECT_EQ(claimer_.Unclaimed(), 0u);
  owner_.Ring();
  EXPECT_EQ(owner_.Unclaimed(), 1u);
  EXPECT_EQ(claimer_.Unclaimed(), 1u);
  const ClaimResult result = Claim(4);
  EXPECT_EQ(result.status, ClaimStatus::kOk);
  EXPECT_EQ(result.count, 1u);
  EXPECT_EQ(wqes_[0].sge_count, 1u);
  EXPECT_EQ(wqes_[0].sge, (Sge{.offset = 1100, .key = 2, .length = 64}));
  EXPECT_EQ(owner_.Unclaimed(), 0u);
  EXPECT_EQ(Claim(1).status, ClaimStatus::kEmpty);
  EXPECT_EQ(owner_.Complete(wqes_[0].wqe_index), 11u);
}

TEST_F(SrqTest, ClaimWritesTheIntentItTakes) {
  for (uint64_t i = 0; i < 5; ++i) PostOne(i);
  owner_.Ring();
  ASSERT_EQ(Claim(2).count, 2u);
  ASSERT_EQ(Claim(2).count, 2u);
  const ClaimIntent intent = journal_.Read();
  EXPECT_EQ(intent.srq_id, kSrqId);
  EXPECT_EQ(intent.head, 2u);
  EXPECT_EQ(intent.count, 2u);
}

TEST_F(SrqTest, PostSaysFullAtCapacityAndRefusesTooManySges) {
  const std::array<Sge, kMaxSge + 1> sges{};
  EXPECT_FALSE(owner_.Post(sges, 0));
  for (uint64_t i = 0; i < kCapacity; ++i) PostOne(i);
  EXPECT_FALSE(owner_.Post({}, 99));
  EXPECT_EQ(owner_.outstanding(), kCapacity);
  owner_.Ring();
  ASSERT_EQ(Claim(1).count, 1u);
  EXPECT_FALSE(owner_.Post({}, 99)) << "claimed is not yet consumed";
  ASSERT_TRUE(owner_.Complete(wqes_[0].wqe_index));
  EXPECT_TRUE(owner_.Post({}, 99));
}

TEST_F(SrqTest, SgesComeBackAsPostedWhereverTheyAreKept) {
  const std::vector<std::vector<Sge>> posted = {
      {},
      {{.offset = 5, .key = 6, .length = 7}},
      {{.offset = internal::kMaxSlotOffset, .key = internal::kMaxSlotKey, .length = ~0u}},
      {{.offset = internal::kMaxSlotOffset + 1, .key = 1, .length = 9}},
      {{.offset = 1, .key = internal::kMaxSlotKey + 1, .length = 9}},
      {{.offset = 0x7fff12345678, .key = 0, .length = 1}, {.offset = 2, .key = 2, .length = 2}},
      {{.offset = 3, .key = 3, .length = 3},
       {.offset = 4, .key = 4, .length = 4},
       {.offset = ~uint64_t{0}, .key = ~0u, .length = ~0u}},
  };
  for (const auto& sges : posted) ASSERT_TRUE(owner_.Post(sges, 0));
  owner_.Ring();
  ASSERT_EQ(Claim(16).count, posted.size());
  for (size_t i = 0; i < posted.size(); ++i) {
    std::array<Sge, kMaxSge> out;
    const uint32_t count = claimer_.Sges(wqes_[i], out);
    EXPECT_EQ(count, wqes_[i].sge_count);
    const std::vector<Sge> want = posted[i].empty() ? std::vector<Sge>{Sge{}} : posted[i];
    EXPECT_EQ(std::vector<Sge>(out.begin(), out.begin() + count), want) << "WQE " << i;
    EXPECT_EQ(wqes_[i].sge, want[0]);
  }
}

TEST_F(SrqTest, CompleteRefusesWhatIsNotOutstanding) {
  PostOne(1);
  EXPECT_FALSE(owner_.Complete(kCapacity));
  EXPECT_FALSE(owner_.Complete(~0u));
  EXPECT_FALSE(owner_.Complete(kCapacity - 1));
  EXPECT_EQ(owner_.Complete(0), 1u);
  EXPECT_FALSE(owner_.Complete(0)) << "twice";
}

TEST_F(SrqTest, RepostKeepsWrIdAndSgesUnderANewTicket) {
  const std::array<Sge, 2> two = {Sge{.offset = 1, .key = 1, .length = 1},
                                  Sge{.offset = 2, .key = 2, .length = 2}};
  ASSERT_TRUE(owner_.Post(two, 42));
  owner_.Ring();
  ASSERT_EQ(Claim(1).count, 1u);
  const uint32_t index = wqes_[0].wqe_index;
  EXPECT_TRUE(owner_.Repost(index));
  EXPECT_FALSE(owner_.Repost(index + 1));
  EXPECT_EQ(Claim(1).status, ClaimStatus::kEmpty);
  owner_.Ring();
  ASSERT_EQ(Claim(1).count, 1u);
  EXPECT_EQ(wqes_[0].wqe_index, index);
  std::array<Sge, 2> out;
  ASSERT_EQ(claimer_.Sges(wqes_[0], out), 2u);
  EXPECT_EQ(out, two);
  EXPECT_EQ(owner_.Complete(index), 42u);
}

TEST_F(SrqTest, DrainToReturnsEachOutstandingWrIdOnce) {
  for (uint64_t i = 0; i < 5; ++i) PostOne(i);
  owner_.Ring();
  ASSERT_EQ(Claim(1).count, 1u);
  std::vector<uint64_t> wr_ids;
  owner_.DrainTo(&wr_ids);
  std::sort(wr_ids.begin(), wr_ids.end());
  EXPECT_EQ(wr_ids, (std::vector<uint64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(owner_.outstanding(), 0u);
}

TEST_F(SrqTest, OwnerSeesALimitThatADeadSenderOverlooked) {
  for (uint64_t i = 0; i < 4; ++i) PostOne(i);
  owner_.Ring();
  EXPECT_FALSE(owner_.ArmLimit(3));
  EXPECT_FALSE(owner_.LookAtLimit());
  // Claimed by one that died before it looked at the limit.
  static_cast<internal::SrqHead*>(area_.data())->claim += 2;
  EXPECT_TRUE(owner_.LookAtLimit());
  EXPECT_EQ(owner_.armed_limit(), 0u);
  EXPECT_FALSE(owner_.LookAtLimit());
}

TEST_F(SrqTest, ClaimSaysBrokenOnAnIndexOutOfRange) {
  PostOne(1);
  owner_.Ring();
  static_cast<internal::SrqHead*>(area_.data())->slots[0].wqe.store(kCapacity);
  EXPECT_EQ(Claim(1).status, ClaimStatus::kBroken);
}

TEST_F(SrqTest, SpoiltWordsMakeNobodyLoopOrReachOut) {
  auto* head = static_cast<internal::SrqHead*>(area_.data());
  PostOne(1);
  owner_.Ring();
  for (const uint64_t claim : {uint64_t{1} << 40, uint64_t{3}}) {
    head->claim.store(claim);
    EXPECT_EQ(owner_.Unclaimed(), 0u);
    EXPECT_LE(owner_.LoadClaim(), 1u);
    EXPECT_EQ(Claim(4).count, 0u) << claim;
  }
  head->claim.store(0);
  head->posted.store(~uint64_t{0} >>
                     1);  // more than capacity: the sender takes at most what slots exist
  const ClaimResult result = Claim(16);
  EXPECT_LE(result.count, kCapacity);
  EXPECT_EQ(owner_.Unclaimed(), 0u);
}

// The invariant that lets the owner overwrite a slot and lets senders read slots before their CAS:
// when the slot of ticket t is written again, t is below `claim`, though perhaps neither published
// nor polled. Random orders of posting, claiming by two senders, and consuming out of order; every
// WQE handed out exactly once.
TEST_F(SrqTest, RandomOrdersNeverOverwriteAnUnclaimedSlotNorHandOutTwice) {
  std::minstd_rand random(1);
  auto second = *SrqClaimer::Attach(area_.data(), area_.size());
  auto second_journal =
      *ClaimJournal::Create(line_.bytes() + ClaimJournal::Bytes(), ClaimJournal::Bytes());
  std::map<uint32_t, uint64_t> held;  // wqe_index -> wr_id, in the hands of a sender
  uint64_t posted = 0, rung = 0, claimed = 0, consumed = 0;
  bool overtaken = false;
  for (int step = 0; step < 200'000; ++step) {
    switch (random() % 4) {
      case 0: {
        const Sge sge{.offset = posted, .key = 1, .length = 1};
        if (!owner_.Post({&sge, 1}, posted)) break;
        // The slot just written was ticket posted - kCapacity's.
        if (posted >= kCapacity) {
          ASSERT_GT(owner_.LoadClaim(), posted - kCapacity);
        }
        ++posted;
        for (const auto& [index, wr_id] : held) overtaken |= wr_id + kCapacity < posted;
        break;
      }
      case 1:
        owner_.Ring();
        rung = posted;
        break;
      case 2: {
        const bool first = random() % 2 == 0;
        const auto want = static_cast<uint32_t>(1 + random() % 5);
        const ClaimResult result = first ? claimer_.Claim(want, journal_, wqes_)
                                         : second.Claim(want, second_journal, wqes_);
        ASSERT_EQ(result.count, std::min<uint64_t>(want, rung - claimed));
        for (uint32_t i = 0; i < result.count; ++i) {
          const auto [it, fresh] = held.emplace(wqes_[i].wqe_index, wqes_[i].sge.offset);
          ASSERT_TRUE(fresh) << "WQE handed out twice";
          ASSERT_EQ(it->second, claimed + i) << "out of order";
        }
        claimed += result.count;
        break;
      }
      case 3: {
        if (held.empty()) break;
        auto it = held.begin();
        std::advance(it, random() % held.size());
        if (random() % 8 == 0) break;
        ASSERT_EQ(owner_.Complete(it->first), it->second);
        held.erase(it);
        ++consumed;
        break;
      }
    }
  }
  EXPECT_GT(consumed, 10'000u);
  EXPECT_TRUE(overtaken) << "no slot was reused under a WQE still held: the trap was not visited";
}

}  // namespace srq_test
}  // namespace sluice::softdc::shm
