// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/repair.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/transport/softdc/shm/shared_area.h"
#include "transport/softdc/shm/srq_claimer.h"

namespace sluice::softdc::shm {
namespace repair_test {

constexpr uint32_t kSrqId = 5;
constexpr uint32_t kCapacity = 8;

// One Link into the owner: its journal line, its CQE ring, its claimer.
struct Sender {
  Sender(void* srq, size_t srq_bytes)
      : line(ClaimJournal::Bytes()),
        ring_area(CqeConsumer::Bytes(16)),
        journal(*ClaimJournal::Create(line.data(), line.size())),
        consumer(*CqeConsumer::Create(ring_area.data(), ring_area.size(), 16)),
        producer(*CqeProducer::Attach(ring_area.data(), ring_area.size())),
        claimer(*SrqClaimer::Attach(srq, srq_bytes)) {}

  uint32_t Claim(uint32_t want) { return claimer.Claim(want, journal, wqes).count; }
  void Publish(uint32_t i) { producer.Publish({.wqe_index = wqes[i].wqe_index, .srq_id = kSrqId}); }

  SharedArea line;
  SharedArea ring_area;
  ClaimJournal journal;
  CqeConsumer consumer;
  CqeProducer producer;
  SrqClaimer claimer;
  std::array<ClaimedWqe, kCapacity> wqes;
};

class RepairTest : public ::testing::Test {
 protected:
  RepairTest()
      : area_(SrqOwner::Bytes(kCapacity, 1)),
        owner_(*SrqOwner::Create(area_.data(), area_.size(), kSrqId, kCapacity, 1)),
        dead_(area_.data(), area_.size()),
        living_(area_.data(), area_.size()) {
    for (uint32_t i = 0; i < kCapacity; ++i) EXPECT_TRUE(owner_.Post({}, 100 + i));
    owner_.Ring();
  }

  RepairResult RepairNow() {
    const ClaimJournal journals[] = {living_.journal};
    const CqeConsumer* rings[] = {&dead_.consumer, &living_.consumer};
    return Repair(dead_.journal.Read(), journals, rings, &owner_);
  }
  uint32_t PollAll(CqeConsumer* ring) {
    Cqe cqe;
    uint32_t count = 0;
    for (; ring->Poll(&cqe); ++count) EXPECT_TRUE(owner_.Complete(cqe.wqe_index));
    return count;
  }

  SharedArea area_;
  SrqOwner owner_;
  Sender dead_;
  Sender living_;
};

TEST_F(RepairTest, RepostsWhatTheDeadHadClaimedAndNotPublished) {
  ASSERT_EQ(dead_.Claim(3), 3u);
  dead_.Publish(0);
  EXPECT_EQ(owner_.Unclaimed(), kCapacity - 3);
  const RepairResult result = RepairNow();
  EXPECT_EQ(result.reposted, 2u);
  EXPECT_EQ(result.deferred, 0u);
  EXPECT_EQ(owner_.Unclaimed(), kCapacity - 1);
  EXPECT_EQ(PollAll(&dead_.consumer), 1u);
  EXPECT_EQ(owner_.outstanding(), kCapacity - 1);
  EXPECT_EQ(RepairNow().reposted, 0u) << "nothing left";
}

TEST_F(RepairTest, LeavesPublishedAndPolledAlone) {
  ASSERT_EQ(dead_.Claim(2), 2u);
  dead_.Publish(0);
  ASSERT_EQ(PollAll(&dead_.consumer), 1u);
  dead_.Publish(1);
  EXPECT_EQ(RepairNow().reposted, 0u);
  EXPECT_EQ(PollAll(&dead_.consumer), 1u);
}

TEST_F(RepairTest, TouchesNothingOfTheLivingAndOfOtherQueues) {
  ASSERT_EQ(living_.Claim(3), 3u);
  ASSERT_EQ(dead_.Claim(1), 1u);
  dead_.Publish(0);
  EXPECT_EQ(RepairNow().reposted, 0u);
  dead_.journal.Write(kSrqId + 1, 0, 8);
  EXPECT_EQ(RepairNow().reposted, 0u);
  EXPECT_EQ(RepairNow().deferred, 0u);
  EXPECT_EQ(owner_.Unclaimed(), kCapacity - 4);
}

TEST_F(RepairTest, IntentWithoutClaimFreesNothing) {
  dead_.journal.Write(kSrqId, 0, 4);  // died before its CAS
  EXPECT_EQ(RepairNow().reposted, 0u);
  EXPECT_EQ(owner_.Unclaimed(), kCapacity);
  ASSERT_EQ(living_.Claim(4), 4u);  // takes the very tickets
  EXPECT_EQ(RepairNow().reposted, 0u);
  for (uint32_t i = 0; i < 4; ++i) living_.Publish(i);
  EXPECT_EQ(RepairNow().reposted, 0u);
  EXPECT_EQ(RepairNow().deferred, 0u);
}

TEST_F(RepairTest, DefersWhatALivingOneMayHoldUntilItsJournalSaysOtherwise) {
  // The living one wrote its intent for the tickets that the dead one then won, and is stopped
  // there.
  ASSERT_EQ(dead_.Claim(2), 2u);
  living_.journal.Write(kSrqId, 0, 2);
  RepairResult result = RepairNow();
  EXPECT_EQ(result.reposted, 0u);
  EXPECT_EQ(result.deferred, 2u);
  // It goes on, loses the CAS and claims the next ones: the journal moves away.
  ASSERT_EQ(living_.Claim(2), 2u);
  result = RepairNow();
  EXPECT_EQ(result.reposted, 2u);
  EXPECT_EQ(result.deferred, 0u);
}

TEST_F(RepairTest, TwoDeadWithTheSameTicketsRepostEachOnce) {
  ASSERT_EQ(dead_.Claim(2), 2u);
  living_.journal.Write(kSrqId, 0, 2);  // this one died too, before its CAS
  const CqeConsumer* rings[] = {&dead_.consumer, &living_.consumer};
  EXPECT_EQ(Repair(dead_.journal.Read(), {}, rings, &owner_).reposted, 2u);
  EXPECT_EQ(Repair(living_.journal.Read(), {}, rings, &owner_).reposted, 0u);
  EXPECT_EQ(owner_.Unclaimed(), kCapacity);
}

TEST_F(RepairTest, GarbageInTheRingsIsNoEvidenceAndNoHarm) {
  ASSERT_EQ(dead_.Claim(1), 1u);
  dead_.producer.Publish({.wqe_index = ~0u, .srq_id = kSrqId});
  dead_.producer.Publish({.wqe_index = dead_.wqes[0].wqe_index, .srq_id = kSrqId + 1});
  EXPECT_EQ(RepairNow().reposted, 1u);
}

}  // namespace repair_test
}  // namespace sluice::softdc::shm
