// SPDX-License-Identifier: Apache-2.0
//
// Two programs' bulk, in one process, each with its thread.
#include "middleware/api/bulk.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/middleware/api/bulk_pair.h"

namespace sluice {
namespace bulk_test {

using integrity::MismatchOf;
using testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(60);
class BulkTest : public testing_support::BulkPair {
 protected:
  BulkTest() : BulkPair(/*blocks=*/32) {}
};

TEST_F(BulkTest, MovesAndBothSidesHearOfIt) {
  EXPECT_TRUE(one_->Move(at_one_, Request(5)).ok());
  const auto arrival = other_->Await(at_other_, 5, kLong);
  ASSERT_TRUE(arrival.ok()) << arrival.status();
  EXPECT_TRUE(arrival->status.ok()) << arrival->status;
  EXPECT_EQ(arrival->data_bytes, data_bytes_);
  EXPECT_EQ(target_, source_);
  EXPECT_THAT(one_->device_choice(), HasSubstr("softdc0"));
  EXPECT_TRUE(one_->Health().ok()) << one_->Health();
}

// What Move() of much says between two programs of these path MTUs.
absl::Status MoveBetween(uint32_t one_mtu, uint32_t other_mtu) {
  std::vector<std::byte> from(1 << 16), to(1 << 16);  // outlive what they are lent to
  auto one = Bulk::Create({.device = "softdc0", .path_mtu = one_mtu}).value();
  auto other = Bulk::Create({.device = "softdc0", .path_mtu = other_mtu}).value();
  std::string ticket, answer;
  const auto at_one = one->Offer(&ticket).value();
  EXPECT_TRUE(other->Accept(ticket, &answer).ok());
  EXPECT_TRUE(one->Complete(at_one, answer).ok());
  const auto own = one->Lend(from, 0).value();
  const auto lent = other->Lend(to, bulk::kMayWrite).value();
  bulk::TransferRequest request;
  request.local = own.id;
  request.remote = *bulk::LoadCapability(lent.capability);
  request.data_bytes = from.size();
  return one->Move(at_one, request);
}

TEST(BulkPath, PathMtuIsTheOptions) {
  EXPECT_TRUE(MoveBetween(1024, 1024).ok());
  EXPECT_TRUE(MoveBetween(512, 512).ok());
  EXPECT_FALSE(MoveBetween(1024, 512).ok());
}

TEST(BulkPath, OptionsAreChecked) {
  const absl::Status mtu = Bulk::Create({.device = "softdc0", .path_mtu = 1500}).status();
  EXPECT_EQ(mtu.code(), absl::StatusCode::kInvalidArgument) << mtu;
  EXPECT_THAT(std::string(mtu.message()), HasSubstr("option path_mtu is 1500"));
  const absl::Status pkey = Bulk::Create({.device = "softdc0", .path = {.pkey = 0x8001}}).status();
  EXPECT_EQ(pkey.code(), absl::StatusCode::kFailedPrecondition) << pkey;
  EXPECT_THAT(std::string(pkey.message()), HasSubstr("option path.pkey is 0x8001"));
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

TEST_F(BulkTest, MemoryLentForAPeerIsOutOfReachOfOthers) {
  std::string ticket, answer;
  const auto own_there = other_->Offer(&ticket, bulk::Reach::kOwn);
  ASSERT_TRUE(own_there.ok()) << own_there.status();
  const auto own_here = one_->Accept(ticket, &answer);
  ASSERT_TRUE(own_here.ok()) << own_here.status();
  ASSERT_TRUE(other_->Complete(*own_there, answer).ok());
  const auto lent = other_->Lend(target_, bulk::kMayWrite, absl::InfiniteDuration(), *own_there);
  ASSERT_TRUE(lent.ok()) << lent.status();
  bulk::TransferRequest request = Request(1);
  request.protection = {};
  request.remote = *bulk::LoadCapability(lent->capability);
  EXPECT_EQ(one_->Move(at_one_, request).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(one_->Move(*own_here, request).ok());
  EXPECT_EQ(
      other_->Lend(target_, bulk::kMayWrite, absl::InfiniteDuration(), at_other_).status().code(),
      absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(other_->Return(lent->id).ok());
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

// Each of them would wait for the thread that `done` runs on.
TEST_F(BulkTest, CallsInDoneAreRefused) {
  // What was answered, as code and text: a status stays on its thread (own_copy.h).
  using Answer = std::pair<absl::StatusCode, std::string>;
  std::promise<std::vector<Answer>> told;
  auto answers = told.get_future();
  const auto started = one_->Start(at_one_, Request(1), [&](const absl::Status& status) {
    std::string text;
    std::vector<Answer> all;
    for (const absl::Status& one : {
             status,
             one_->Offer(&text).status(),
             one_->Accept("", &text).status(),
             one_->Complete(at_one_, ""),
             one_->Lend(source_, 0).status(),
             one_->Return(own_),
             one_->Start(at_one_, Request(2), [](const absl::Status&) {}).status(),
             one_->Cancel({}),
             one_->Move(at_one_, Request(2)),
             one_->Await(at_one_, 1, absl::InfiniteDuration()).status(),
         }) {
      all.emplace_back(one.code(), std::string(one.message()));
    }
    told.set_value(std::move(all));
  });
  ASSERT_TRUE(started.ok()) << started.status();
  const std::vector<Answer> all = answers.get();
  ASSERT_EQ(all.size(), 10u);
  EXPECT_EQ(all[0].first, absl::StatusCode::kOk) << all[0].second;
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_EQ(all[i].first, absl::StatusCode::kFailedPrecondition) << i << ": " << all[i].second;
    EXPECT_THAT(all[i].second, HasSubstr("bulk call refused"));
  }
}

using BulkDeathTest = BulkTest;

TEST_F(BulkDeathTest, BulkThatIsDestroyedInDoneSaysSo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end_it = [&] {
    (void)one_->Start(at_one_, Request(1), [&](const absl::Status&) { one_.reset(); });
    for (;;) pause();
  };
  EXPECT_DEATH(end_it(), "Bulk destroyed in a `done` of its own");
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

// A third program, joined to the other one as well.
class ThreeBulksTest : public BulkTest {
 protected:
  void SetUp() override {
    BulkTest::SetUp();
    third_ = *Bulk::Create({.device = "softdc0"});
    std::string ticket, answer;
    at_third_ = *third_->Offer(&ticket);
    third_at_other_ = *other_->Accept(ticket, &answer);
    ASSERT_TRUE(third_->Complete(at_third_, answer).ok());
  }
  bulk::TransferRequest Small(Bulk& from, uint64_t tag) {
    bulk::TransferRequest request = Request(tag);
    request.local = from.Lend(byte_, 0)->id;
    request.data_bytes = 1;
    request.protection = {};
    return request;
  }

  // From one_, with tags from `first` on; the last of them is there when this returns.
  void Flood(uint64_t first, size_t count) {
    std::atomic<size_t> open = 0;
    bulk::TransferRequest request = Small(*one_, first);
    for (; request.tag < first + count; ++request.tag) {
      while (open >= 100) std::this_thread::yield();
      ++open;
      ASSERT_TRUE(one_->Start(at_one_, request,
                              [&open](const absl::Status& status) {
                                EXPECT_TRUE(status.ok()) << status;
                                --open;
                              })
                      .ok());
    }
    while (open != 0) std::this_thread::yield();
    ASSERT_TRUE(other_->Await(at_other_, first + count - 1, kLong).ok());
  }
  // The other one finds out when it moves something there.
  void End(std::unique_ptr<Bulk>& bulk, bulk::PeerId at_other) {
    bulk::TransferRequest request = Small(*other_, 0);
    request.remote = *bulk::LoadCapability(bulk->Lend(byte_, bulk::kMayWrite)->capability);
    bulk.reset();
    EXPECT_EQ(other_->Move(at_other, request).code(), absl::StatusCode::kUnavailable);
  }

  std::vector<std::byte> byte_ = std::vector<std::byte>(1);
  std::unique_ptr<Bulk> third_;  // goes first
  bulk::PeerId at_third_, third_at_other_;
};

TEST_F(ThreeBulksTest, ArrivalsOfOnePeerPushOutNoneOfAnother) {
  for (const uint64_t tag : {6, 7, 8, 9}) {
    ASSERT_TRUE(third_->Move(at_third_, Small(*third_, tag)).ok());
  }
  ASSERT_TRUE(other_->Await(third_at_other_, 9, kLong).ok()) << "so are those before";
  Flood(0, Bulk::kMaxKeptArrivals + 1);
  const auto now = absl::ZeroDuration();
  const auto arrival = other_->Await(third_at_other_, 6, now);
  ASSERT_TRUE(arrival.ok()) << arrival.status();
  EXPECT_TRUE(arrival->status.ok());
  EXPECT_EQ(other_->Await(at_other_, 0, now).status().code(), absl::StatusCode::kDeadlineExceeded)
      << "its own oldest went";

  // Two of the third program's, and one less than may be kept: together one too many of peers that are down.
  End(third_, third_at_other_);
  End(one_, at_other_);
  EXPECT_EQ(other_->Await(at_other_, 0, kLong).status().code(), absl::StatusCode::kUnavailable)
      << "the other one knows that it has gone";
  for (const uint64_t tag : {7, 8}) EXPECT_TRUE(other_->Await(third_at_other_, tag, now).ok());
  EXPECT_EQ(other_->Await(third_at_other_, 8, kLong).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(other_->Await(at_other_, 1, now).status().code(), absl::StatusCode::kUnavailable)
      << "the oldest of the one with most went";
  EXPECT_TRUE(other_->Await(at_other_, 2, now).ok());
}

}  // namespace bulk_test
}  // namespace sluice
