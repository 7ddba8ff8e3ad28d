// SPDX-License-Identifier: Apache-2.0
//
// Large messages of a peer that this side leaves, in virtual time: OnPeerDown() is the last call for it, also while the goodbye is
// still under way. The peer either reads a message that was lent to it, or hears the goodbye.
#include <gtest/gtest.h>

#include <cstdint>

#include "tests/transport/endpoint/large_world.h"

namespace sluice::endpoint {
namespace large_leave_test {

class LargeLeaveTest : public LargeWorld {
 protected:
  static constexpr uint64_t kOnePiece = 64 << 10;

  // Each message that starts from now on takes 10 ms, so a goodbye takes longer than what is under way.
  void Leave(uint32_t node) {
    simulation_->message_faults() = {.delay_ppm = 1'000'000, .delay_ns = 10'000'000};
    const LargeRecorder& saw = node == 0 ? lender_saw_ : reader_saw_;
    const LargeRecorder& other = node == 0 ? reader_saw_ : lender_saw_;
    {
      const Simulation::As as(*simulation_, node);
      if (node == 0) {
        lender_->endpoint().Disconnect(to_reader_);
      } else {
        reader_->endpoint().Disconnect(to_lender_);
      }
    }
    ASSERT_TRUE(Run([&] { return !saw.downs.empty(); }));
    const size_t told = saw.fetched.size() + saw.lent.size();
    ASSERT_EQ(told, 0u) << "it ended before";
    RunFor(8'000'000);
    ASSERT_TRUE(other.downs.empty()) << "the goodbye has arrived: nothing is shown";
    EXPECT_EQ(saw.fetched.size() + saw.lent.size(), 0u) << "told after OnPeerDown()";
    simulation_->message_faults() = {};
    ASSERT_TRUE(Run([&] { return !other.downs.empty(); }));
    RunFor(1'000'000'000);
    EXPECT_EQ(saw.fetched.size() + saw.lent.size(), 0u) << "told after OnPeerDown()";
  }
  // Its user gives the memory back when it is told, as Sessions does. The reader does not run meanwhile.
  void DisconnectLender(const LargeBuffer& lent) {
    {
      const Simulation::As as(*simulation_, 0);
      lender_->endpoint().Disconnect(to_reader_);
    }
    ASSERT_TRUE(RunUntil(*simulation_, {&*lender_}, [&] { return !lender_saw_.downs.empty(); }));
    EndLoan(lent);
  }
  // Until the read of the first piece is on its way.
  bool RunUntilRead() {
    const auto posted = [&] {
      uint32_t count = 0;
      for (const QueueReport& queue : reader_->endpoint().Queues()) count += queue.posted;
      return count != 0;
    };
    if (!Run([&] { return !posted(); }) || !Run(posted)) return false;
    simulation_->RunFor(500);
    return true;
  }
  // As much as there is in all can be fetched from somebody else.
  void ExpectMemoryIsFree() {
    StartSecondLender();
    const uint32_t fetch = Fetch(to_second_, LendFromSecond(8 * kMiB));
    EXPECT_TRUE(End(fetch).ok()) << End(fetch);
    GiveBack(fetch);
  }
};

TEST_F(LargeLeaveTest, FetchThatSucceedsMeanwhile_IsNotTold) {
  Start();
  const auto lent = Lend(kOnePiece);
  Fetch(Where(*lent));
  ASSERT_TRUE(RunUntilRead());
  ASSERT_NO_FATAL_FAILURE(Leave(1));
  EXPECT_EQ(reader_->endpoint().Counts().fetched_bytes, kOnePiece);
  ExpectMemoryIsFree();
}

TEST_F(LargeLeaveTest, FetchThatIsCancelledMeanwhile_IsNotTold) {
  Start();
  const auto lent = Lend(kOnePiece);
  const uint32_t fetch = Fetch(Where(*lent));
  ASSERT_TRUE(RunUntilRead());
  {
    const Simulation::As as(*simulation_, 1);
    reader_->endpoint().CancelFetch(fetch);
  }
  ASSERT_NO_FATAL_FAILURE(Leave(1));
  EXPECT_EQ(reader_->endpoint().Counts().fetches_failed, 1u);
  ExpectMemoryIsFree();
}

TEST_F(LargeLeaveTest, FetchThatIsRefusedMeanwhile_IsNotTold) {
  Start();
  const auto lent = Lend(kOnePiece);
  RemoteMemory where = Where(*lent);
  where.key ^= 0x5a00;
  Fetch(where);
  ASSERT_TRUE(RunUntilRead());
  ASSERT_NO_FATAL_FAILURE(Leave(1));
  EXPECT_EQ(reader_->endpoint().Counts().fetches_failed, 1u);
  ExpectMemoryIsFree();
}

TEST_F(LargeLeaveTest, MemoryThatTheDeviceKnowsMeanwhile_IsNotTold) {
  Start();
  LargeBuffer lent;
  {
    const Simulation::As as(*simulation_, 0);
    const auto buffer = lender_->endpoint().Lend(to_reader_, 4 * kMiB, /*waits=*/false);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    lent = *buffer;
  }
  ASSERT_FALSE(lender_->endpoint().WhereLent(lent.number).has_value()) << "nothing is shown";
  ASSERT_NO_FATAL_FAILURE(Leave(0));
  EndLoan(lent);
}

// The lender's send queue is stuck, so the goodbye takes longer than the reads. The lender's user gives the memory back as soon as
// it is told.
TEST_F(LargeLeaveTest, MessageThatIsReadWhileItsSenderLeaves_IsReadToItsEnd) {
  Start();
  const auto lent = Lend(4 * kMiB);
  ASSERT_TRUE(lent.has_value());
  const uint32_t fetch = Fetch(Where(*lent));
  RunFor(100'000);
  ASSERT_GT(reader_->endpoint().Counts().fetched_bytes, 0u);
  ASSERT_FALSE(reader_saw_.fetched.contains(fetch));
  for (uint32_t dci = 0; simulation_->MakeDciDeadInRts(0, dci); ++dci) {
  }
  DisconnectLender(*lent);
  ASSERT_FALSE(reader_saw_.fetched.contains(fetch)) << "it ended before: nothing is shown";
  EXPECT_TRUE(End(fetch).ok()) << End(fetch);
  ExpectSame(fetch, 4 * kMiB);
  EXPECT_TRUE(reader_saw_.downs.empty()) << "the goodbye was not delayed: nothing is shown";
  ASSERT_TRUE(Run([&] { return !reader_saw_.downs.empty(); }));
  EXPECT_EQ(reader_saw_.downs[0].why.code(), absl::StatusCode::kUnavailable);
  GiveBack(fetch);
}

// The memory goes when the goodbye has been acknowledged, and the key with it.
TEST_F(LargeLeaveTest, KeyOfMessageThatNobodyReadsGoesWithTheGoodbye) {
  Start();
  const auto lent = Lend(kOnePiece);
  ASSERT_TRUE(lent.has_value());
  const RemoteMemory where = Where(*lent);
  DisconnectLender(*lent);
  ASSERT_TRUE(Run([&] { return !reader_saw_.downs.empty(); }));
  RunFor(1'000'000'000);
  lender_saw_.downs.clear();
  reader_saw_.downs.clear();
  ASSERT_TRUE(reader_->Connect(0).ok());
  ASSERT_TRUE(Run([&] { return lender_saw_.ups.size() + reader_saw_.ups.size() == 4; }));
  to_reader_ = lender_saw_.ups[1].id;
  to_lender_ = reader_saw_.ups[1].id;
  EXPECT_EQ(End(Fetch(where)).code(), absl::StatusCode::kPermissionDenied);
}

// The reader was away. Its read was refused, and more messages than it takes at a time have arrived before the goodbye.
TEST_F(LargeLeaveTest, ReadThatIsRefusedSinceItsSenderLeft_EndsWithThePeer) {
  constexpr size_t kMessages = 40;
  Options options = LargeOptions();
  options.credits_per_peer = 48;
  options.srq_size = 1024;  // a peer gets an eighth
  Start(options);
  const auto lent = Lend(kOnePiece);
  ASSERT_TRUE(lent.has_value());
  simulation_->message_faults() = {.delay_ppm = 1'000'000, .delay_ns = 10'000'000};
  const uint32_t fetch = Fetch(Where(*lent));
  ASSERT_TRUE(RunUntilRead());
  simulation_->message_faults() = {};
  simulation_->cm_faults() = {.delay_ppm = 1'000'000, .delay_ns = 1'000'000'000};
  {
    const Simulation::As as(*simulation_, 0);
    for (size_t i = 0; i < kMessages; ++i) ASSERT_TRUE(lender_->Send(to_reader_, "message").ok());
  }
  DisconnectLender(*lent);
  RunUntil(
      *simulation_, {&*lender_}, [] { return false; }, 5'000'000);
  simulation_->RunFor(10'000'000);
  ASSERT_TRUE(reader_saw_.downs.empty()) << "it has looked: nothing is shown";
  ASSERT_TRUE(Run([&] { return !reader_saw_.downs.empty(); }));
  EXPECT_FALSE(reader_saw_.fetched.contains(fetch)) << End(fetch);
  EXPECT_EQ(reader_saw_.downs[0].why.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(reader_saw_.messages.size(), kMessages);
  EXPECT_EQ(reader_->endpoint().Counts().fetches_failed, 1u) << "nothing is shown";
  EXPECT_EQ(reader_->endpoint().Counts().fetched_bytes, 0u);
  simulation_->cm_faults() = {};
}

}  // namespace large_leave_test
}  // namespace sluice::endpoint
