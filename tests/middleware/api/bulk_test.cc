// SPDX-License-Identifier: Apache-2.0
//
// Two programs' bulk, in one process, each with its thread.
#include "middleware/api/bulk.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using integrity::Guard;
using integrity::MismatchOf;
using testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr integrity::Protection kDif{.memory = Guard::kT10DifCrc, .wire = Guard::kT10DifCrc};
constexpr size_t kData = 32 * 4096;
constexpr size_t kBytes = 32 * 4104;

class BulkTest : public testing::Test {
 protected:
  void SetUp() override {
    for (std::unique_ptr<Bulk>* bulk : {&one_, &other_}) {
      auto created = Bulk::Create({.device = "softdc0"});
      ASSERT_TRUE(created.ok()) << created.status();
      *bulk = *std::move(created);
    }
    std::string ticket, answer;
    at_one_ = *one_->Offer(&ticket);
    at_other_ = *other_->Accept(ticket, &answer);
    ASSERT_TRUE(one_->Complete(at_one_, answer).ok());
    std::vector<std::byte> data(kData);
    for (size_t i = 0; i < kData; ++i) data[i] = static_cast<std::byte>(i * 7 + i / 300);
    Protect(kDif, data, source_);
    own_ = one_->Lend(source_, 0)->id;
    lent_ = *other_->Lend(target_, bulk::kMayWrite);
  }
  bulk::TransferRequest Request(uint64_t tag) {
    bulk::TransferRequest request;
    request.local = own_;
    request.remote = *bulk::LoadCapability(lent_.capability);
    request.data_bytes = kData;
    request.protection = kDif;
    request.tag = tag;
    return request;
  }

  std::vector<std::byte> source_ = std::vector<std::byte>(kBytes);
  std::vector<std::byte> target_ = std::vector<std::byte>(kBytes);
  std::unique_ptr<Bulk> one_, other_;  // go first
  bulk::PeerId at_one_, at_other_;
  bulk::LeaseId own_;
  Bulk::Lent lent_;
};

TEST_F(BulkTest, MovesAndBothSidesHearOfIt) {
  EXPECT_TRUE(one_->Move(at_one_, Request(5)).ok());
  const auto arrival = other_->Await(at_other_, 5, kLong);
  ASSERT_TRUE(arrival.ok()) << arrival.status();
  EXPECT_TRUE(arrival->status.ok()) << arrival->status;
  EXPECT_EQ(arrival->data_bytes, kData);
  EXPECT_EQ(target_, source_);
  EXPECT_THAT(one_->device_choice(), HasSubstr("softdc0"));
}

TEST_F(BulkTest, BothSidesCount) {
  EXPECT_TRUE(one_->Move(at_one_, Request(5)).ok());
  ASSERT_TRUE(other_->Await(at_other_, 5, kLong).ok());
  // What a thread has counted shows after its pass.
  while (one_->counters().transfers == 0 || other_->counters().arrivals == 0) {
    std::this_thread::yield();
  }
  EXPECT_EQ(one_->counters().transfers, 1u);
  EXPECT_GE(one_->counters().pieces, 1u);
  EXPECT_EQ(one_->counters().mismatches, 0u);
  EXPECT_EQ(other_->counters().arrivals, 1u);
  EXPECT_EQ(other_->counters().transfers, 0u);
}

TEST_F(BulkTest, DamageIsNamedOnBothSides) {
  source_[11 * 4104 + 4100] ^= std::byte{2};  // a reference tag
  const absl::Status status = one_->Move(at_one_, Request(6));
  const auto arrival = other_->Await(at_other_, 6, kLong);
  ASSERT_TRUE(arrival.ok()) << arrival.status();
  ASSERT_TRUE(MismatchOf(status).has_value()) << status;
  EXPECT_EQ(MismatchOf(status)->block, 11u);
  EXPECT_EQ(MismatchOf(status)->field, integrity::Field::kReferenceTag);
  EXPECT_EQ(MismatchOf(arrival->status), MismatchOf(status));
}

TEST_F(BulkTest, ArrivalsAreFoundByTheirTag) {
  for (uint64_t tag = 0; tag < 8; ++tag) ASSERT_TRUE(one_->Move(at_one_, Request(tag)).ok());
  for (uint64_t tag = 8; tag-- > 0;) {
    const auto arrival = other_->Await(at_other_, tag, kLong);
    ASSERT_TRUE(arrival.ok()) << arrival.status();
    EXPECT_EQ(arrival->tag, tag);
  }
  EXPECT_EQ(other_->Await(at_other_, 3, absl::ZeroDuration()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(BulkTest, ReturnedMemoryIsOutOfReach) {
  ASSERT_TRUE(other_->Return(lent_.id).ok());
  EXPECT_EQ(other_->Return(lent_.id).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(one_->Move(at_one_, Request(1)).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(std::ranges::all_of(target_, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(BulkTest, LeaseEndsWithItsTime) {
  const auto brief = other_->Lend(target_, bulk::kMayWrite, absl::Milliseconds(1));
  ASSERT_TRUE(brief.ok()) << brief.status();
  // Over, or returned by this, if it is fast: out of reach in any case.
  while (other_->Return(brief->id).ok()) {
  }
  bulk::TransferRequest request = Request(1);
  request.remote = *bulk::LoadCapability(brief->capability);
  EXPECT_EQ(one_->Move(at_one_, request).code(), absl::StatusCode::kPermissionDenied);
}

// Longer than a clock can count.
TEST_F(BulkTest, LeaseMayBeForCenturies) {
  const auto lent = other_->Lend(target_, bulk::kMayWrite, absl::Hours(24 * 365 * 300));
  ASSERT_TRUE(lent.ok()) << lent.status();
  ASSERT_TRUE(other_->Lend(source_, 0).ok());  // a pass or two
  bulk::TransferRequest request = Request(1);
  request.remote = *bulk::LoadCapability(lent->capability);
  EXPECT_TRUE(one_->Move(at_one_, request).ok());
  EXPECT_TRUE(other_->Return(lent->id).ok());
}

TEST_F(BulkTest, ManyThreadsMoveAtOnce) {
  std::vector<std::thread> threads;
  std::vector<absl::Status> ended(8);
  for (uint64_t i = 0; i < ended.size(); ++i) {
    threads.emplace_back([&, i] { ended[i] = one_->Move(at_one_, Request(i)); });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint64_t i = 0; i < ended.size(); ++i) {
    EXPECT_TRUE(ended[i].ok()) << ended[i];
    EXPECT_TRUE(other_->Await(at_other_, i, kLong).ok());
  }
  EXPECT_EQ(target_, source_);
}

}  // namespace
}  // namespace sluice
