// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/cqe_ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/transport/softdc/shm/shared_area.h"

namespace sluice::softdc::shm {
namespace cqe_ring_test {

class CqeRingTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kCapacity = 16;

  CqeRingTest()
      : area_(CqeConsumer::Bytes(kCapacity)),
        consumer_(*CqeConsumer::Create(area_.data(), area_.size(), kCapacity)),
        producer_(*CqeProducer::Attach(area_.data(), area_.size())) {}

  static Cqe Numbered(uint32_t n) { return {.wqe_index = n, .byte_len = n * 3}; }

  SharedArea area_;
  CqeConsumer consumer_;
  CqeProducer producer_;
};

TEST_F(CqeRingTest, CreateAndAttachRefuseBadShapes) {
  EXPECT_FALSE(CqeConsumer::Create(area_.data(), area_.size(), 12));
  EXPECT_FALSE(CqeConsumer::Create(area_.data(), area_.size(), 2));
  EXPECT_FALSE(CqeConsumer::Create(area_.data(), area_.size() - 1, kCapacity));
  EXPECT_FALSE(CqeConsumer::Create(area_.bytes() + 64, area_.size() - 64, 4));
  EXPECT_FALSE(CqeProducer::Attach(area_.data(), area_.size() - 1));
  static_cast<internal::CqeRingHead*>(area_.data())->capacity = 32;
  EXPECT_FALSE(CqeProducer::Attach(area_.data(), area_.size()));
  const SharedArea zeros(4096);
  EXPECT_FALSE(CqeProducer::Attach(zeros.data(), zeros.size()));
}

TEST_F(CqeRingTest, DroppedCqesLeaveTheirRoomAndTheOthersTheirOrder) {
  uint32_t published = 0;
  std::vector<uint32_t> expected;
  const auto fill = [&] {
    for (; producer_.CanPublish(1); ++published) {
      producer_.Publish({.wqe_index = published, .srq_id = 7, .qp_num = published % 3});
      expected.push_back(published);
    }
  };
  for (int round = 0; round < 10; ++round) {
    fill();
    consumer_.DropUnread([](const Cqe& cqe) { return cqe.qp_num == 1; });
    std::erase_if(expected, [](uint32_t n) { return n % 3 == 1; });
    std::vector<uint32_t> unread;
    consumer_.ForEachUnread([&](const Cqe& cqe) { unread.push_back(cqe.wqe_index); });
    EXPECT_EQ(unread, expected) << "round " << round;
    ASSERT_TRUE(producer_.CanPublish(1)) << "round " << round;
    fill();
    std::vector<uint32_t> polled;
    Cqe cqe;
    while (consumer_.Poll(&cqe)) polled.push_back(cqe.wqe_index);
    EXPECT_EQ(polled, expected) << "round " << round;
    expected.clear();
  }
}

TEST_F(CqeRingTest, DroppingAllEmptiesTheRing) {
  while (producer_.CanPublish(1)) producer_.Publish({.wqe_index = 1});
  consumer_.DropUnread([](const Cqe&) { return true; });
  EXPECT_TRUE(consumer_.Empty());
  EXPECT_TRUE(producer_.CanPublish(producer_.max_batch()));
}

TEST_F(CqeRingTest, PollReturnsEveryFieldAsPublished) {
  const Cqe in = {.wqe_index = 1,
                  .srq_id = 2,
                  .status = 8,
                  .opcode = 128,
                  .vendor_err = 11,
                  .byte_len = 3,
                  .imm_data = 0x04050607,
                  .qp_num = 5,
                  .src_qp = 6,
                  .wc_flags = 2,
                  .pkey_index = 13,
                  .slid = 12,
                  .sl = 14,
                  .dlid_path_bits = 15,
                  .flags = kCqeSolicited,
                  .reserved = 16,
                  .timestamp_ns = INT64_MIN};
  ASSERT_TRUE(producer_.CanPublish(1));
  producer_.Publish(in);
  Cqe out;
  ASSERT_TRUE(consumer_.Poll(&out));
  EXPECT_EQ(std::memcmp(&in, &out, sizeof in), 0);
  EXPECT_FALSE(consumer_.Poll(&out));
}

TEST_F(CqeRingTest, PollKeepsOrderOverManyLapsAndBackpressureHolds) {
  uint32_t published = 0, polled = 0;
  Cqe cqe;
  while (polled < 1000) {
    while (producer_.CanPublish(1)) producer_.Publish(Numbered(published++));
    ASSERT_LE(published - polled, kCapacity);
    ASSERT_GE(published - polled, producer_.max_batch());
    for (int i = 0; i < 7 && consumer_.Poll(&cqe); ++i) ASSERT_EQ(cqe.wqe_index, polled++);
  }
}

TEST_F(CqeRingTest, CanPublishOfAWholeBatchIsTrueOnceAllIsPolled) {
  Cqe cqe;
  for (uint32_t skew = 0; skew < 2 * kCapacity; ++skew) {
    ASSERT_TRUE(producer_.CanPublish(producer_.max_batch()));
    producer_.Publish(Numbered(skew));
    ASSERT_TRUE(consumer_.Poll(&cqe));
  }
  EXPECT_FALSE(producer_.CanPublish(producer_.max_batch() + 1)) << "even if it would fit just now";
}

TEST_F(CqeRingTest, PollIgnoresAnEntryWithoutItsStamp) {
  // All of an entry but the stamp, as a killed producer leaves it; with any stamp but the right
  // one.
  auto* head = static_cast<internal::CqeRingHead*>(area_.data());
  for (auto& word : head->entries[0].words) word.store(~uint64_t{0});
  Cqe cqe;
  for (const uint64_t stamp : {uint64_t{0}, uint64_t{2}, ~uint64_t{0}, uint64_t{kCapacity + 1}}) {
    head->entries[0].stamp.store(stamp);
    EXPECT_TRUE(consumer_.Empty());
    EXPECT_FALSE(consumer_.Poll(&cqe));
  }
  producer_.Publish(Numbered(5));
  EXPECT_FALSE(consumer_.Empty());
  ASSERT_TRUE(consumer_.Poll(&cqe));
  EXPECT_EQ(cqe.wqe_index, 5u);
}

TEST_F(CqeRingTest, ForEachUnreadShowsWhatPollWillReturnAndTakesNone) {
  Cqe cqe;
  for (uint32_t i = 0; i < 10; ++i) producer_.Publish(Numbered(i));
  for (uint32_t i = 0; i < 10; ++i) ASSERT_TRUE(consumer_.Poll(&cqe));
  ASSERT_TRUE(producer_.CanPublish(12));
  for (uint32_t i = 10; i < 22; ++i) producer_.Publish(Numbered(i));  // over the end of the ring
  std::vector<uint32_t> seen;
  consumer_.ForEachUnread([&](const Cqe& unread) { seen.push_back(unread.wqe_index); });
  ASSERT_EQ(seen.size(), 12u);
  for (uint32_t i = 0; i < 12; ++i) {
    ASSERT_EQ(seen[i], 10 + i);
    ASSERT_TRUE(consumer_.Poll(&cqe));
    ASSERT_EQ(cqe.wqe_index, 10 + i);
  }
  EXPECT_TRUE(consumer_.Empty());
}

// Each peer gets a ring as large as the CQ, and most peers complete little.
TEST(CqeRingMemoryTest, ARingTakesPagesAsItIsUsed) {
  constexpr uint32_t kLarge = 4096;
  const SparseArea area(CqeConsumer::Bytes(kLarge));
  CqeConsumer consumer = *CqeConsumer::Create(area.data(), area.size(), kLarge);
  EXPECT_TRUE(consumer.Empty());
  EXPECT_LE(area.TouchedBytes(), 4096u);
  CqeProducer producer = *CqeProducer::Attach(area.data(), area.size());
  for (uint32_t i = 0; i < kLarge; ++i) producer.Publish({.wqe_index = i});
  Cqe cqe;
  for (uint32_t i = 0; i < kLarge; ++i) {
    ASSERT_TRUE(consumer.Poll(&cqe));
    ASSERT_EQ(cqe.wqe_index, i);
  }
  EXPECT_TRUE(consumer.Empty());
}

TEST_F(CqeRingTest, CanPublishIsFalseWhenTheOwnerClaimsTheImpossible) {
  static_cast<internal::CqeRingHead*>(area_.data())->consumed.store(1000);
  for (uint32_t i = 0; i < kCapacity; ++i) producer_.Publish(Numbered(i));
  EXPECT_FALSE(producer_.CanPublish(1));
}

}  // namespace cqe_ring_test
}  // namespace sluice::softdc::shm
