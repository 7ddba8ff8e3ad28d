// SPDX-License-Identifier: Apache-2.0
//
// Large messages between endpoints in virtual time: memory is lent, fetched in pieces, given back; what is refused stops
// nothing else.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/transport/endpoint/large_world.h"

namespace sluice::endpoint {
namespace large_test {

using LargeTest = LargeWorld;

TEST_F(LargeTest, PeersKnowWhatTheOtherFetches) {
  Start();
  EXPECT_EQ(reader_saw_.ups[0].info.max_large_bytes, 8 * kMiB);
  EXPECT_EQ(lender_saw_.ups[0].info.max_large_bytes, 8 * kMiB);
}

TEST_F(LargeTest, MemoryIsFetchedInPieces) {
  Start();
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{65536}, uint64_t{65537}, 3 * kMiB + 17}) {
    const auto lent = Lend(bytes);
    ASSERT_TRUE(lent.has_value());
    const uint32_t fetch = Fetch(Where(*lent));
    EXPECT_TRUE(End(fetch).ok()) << End(fetch);
    ExpectSame(fetch, bytes);
    GiveBack(fetch);
    EndLoan(*lent);
  }
  EXPECT_EQ(reader_->endpoint().Counts().fetched_bytes, 1 + 65536 + 65537 + 3 * kMiB + 17);
}

TEST_F(LargeTest, ABufferIsUsedAgainForItsPeer) {
  Start();
  const auto first = Lend(kMiB);
  EndLoan(*first);
  const auto again = Lend(kMiB - 100);
  EXPECT_EQ(again->data, first->data);
  EXPECT_EQ(again->number, first->number);
  EndLoan(*again);
}

// One lender, two readers who read nothing; what was refused is asked for again when its peer is told.
class LendingTest : public LargeTest {
 protected:
  void StartThree() {
    Start();
    other_.emplace(*simulation_, 2, 1, LargeOptions());
    ASSERT_TRUE(other_->Connect(0).ok());
    ASSERT_TRUE(Run([&] { return lender_saw_.ups.size() == 2; }));
    to_other_ = lender_saw_.ups[1].id;
    lender_saw_.on_writable = [this](PeerId peer) {
      const auto wants = wants_.find(peer.index);
      if (wants != wants_.end() && Ask(peer, wants->second).ok()) wants_.erase(wants);
    };
  }
  absl::Status Ask(PeerId peer, uint64_t bytes, bool waits = true) {
    const Simulation::As as(*simulation_, 0);
    const auto buffer = lender_->endpoint().Lend(peer, bytes, waits);
    if (!buffer.ok()) return buffer.status();
    got_.push_back({peer, *buffer});
    return absl::OkStatus();
  }
  void Want(PeerId peer, uint64_t bytes) {
    EXPECT_EQ(Ask(peer, bytes).code(), absl::StatusCode::kResourceExhausted);
    wants_[peer.index] = bytes;
  }
  // Gives back the eldest of this peer.
  void Return(PeerId peer) {
    const auto eldest = std::find_if(got_.begin(), got_.end(),
                                     [peer](const auto& got) { return got.first == peer; });
    ASSERT_NE(eldest, got_.end());
    EndLoan(eldest->second);
    got_.erase(eldest);
  }
  bool Has(PeerId peer, uint64_t bytes) const {
    return std::any_of(got_.begin(), got_.end(), [&](const auto& got) {
      return got.first == peer && got.second.bytes == bytes;
    });
  }
  // Nobody is told any more.
  ~LendingTest() override { lender_saw_.on_writable = nullptr; }

  PeerId to_other_;
  std::map<uint32_t, uint64_t> wants_;  // by the peer's index
  std::vector<std::pair<PeerId, LargeBuffer>> got_;
};

TEST_F(LendingTest, OnePeerThatReadsNothingLeavesOthersTheirPart) {
  StartThree();
  EXPECT_TRUE(Ask(to_reader_, 7 * kMiB).ok());
  EXPECT_TRUE(Ask(to_reader_, kMiB).ok());
  const absl::Status refused = Ask(to_reader_, kMiB);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("no memory for a large message is free"), std::string::npos);
  EXPECT_TRUE(Ask(to_other_, 3 * kMiB).ok()) << "it waits for itself only";
  Want(to_reader_, 2 * kMiB);
  Return(to_reader_);
  EXPECT_TRUE(Run([&] { return Has(to_reader_, 2 * kMiB); }));
}

// What came later would fit, and has to wait all the same; what can't wait, passes.
TEST_F(LendingTest, WhoWaitsLongerHasMemoryFirst) {
  StartThree();
  EXPECT_TRUE(Ask(to_other_, 4 * kMiB).ok());
  EXPECT_TRUE(Ask(to_other_, 3 * kMiB).ok());
  Want(to_reader_, 13 * kMiB);
  Want(to_other_, kMiB / 2);
  RunFor(1'000'000'000);
  EXPECT_EQ(wants_.size(), 2u);
  EXPECT_TRUE(Ask(to_other_, kMiB / 4, /*waits=*/false).ok());
  Return(to_other_);
  RunFor(1'000'000'000);
  EXPECT_EQ(wants_.size(), 2u) << "there is not enough for the first";
  Return(to_other_);
  EXPECT_TRUE(Run([&] { return wants_.empty(); }));
  ASSERT_EQ(got_.size(), 3u);  // that of who did not wait is the first
  EXPECT_TRUE(got_[1].first == to_reader_) << "the first had its turn first";
}

TEST_F(LendingTest, WhoDoesNotWantItAnyMoreStopsNobody) {
  StartThree();
  EXPECT_TRUE(Ask(to_other_, 7 * kMiB).ok());
  Want(to_reader_, 13 * kMiB);
  wants_.clear();
  Want(to_other_, kMiB / 2);
  EXPECT_TRUE(Run([&] { return Has(to_other_, kMiB / 2); }));
}

TEST_F(LendingTest, WhoGoesStopsNobody) {
  StartThree();
  EXPECT_TRUE(Ask(to_other_, 7 * kMiB).ok());
  Want(to_reader_, 13 * kMiB);
  Want(to_other_, kMiB / 2);
  lender_->endpoint().Disconnect(to_reader_);
  EXPECT_TRUE(Run([&] { return Has(to_other_, kMiB / 2); }));
}

TEST_F(LargeTest, FetchesWaitForMemory) {
  Start();
  StartSecondLender();
  const auto lent = Lend(7 * kMiB);
  const uint32_t a = Fetch(Where(*lent));
  const uint32_t b = Fetch(to_second_, LendFromSecond(7 * kMiB));
  ASSERT_TRUE(End(a).ok() && End(b).ok());
  ExpectSame(a, 7 * kMiB);
  // Held, it does not count for the first lender any more.
  HeldMemory held = reader_->endpoint().HoldFetched(a);
  ASSERT_TRUE(held);
  const uint32_t c = Fetch(Where(*lent));
  const uint32_t little = Fetch({Where(*lent).address, 1000, Where(*lent).key});
  RunFor(1'000'000'000);
  EXPECT_FALSE(reader_saw_.fetched.contains(c));
  EXPECT_FALSE(reader_saw_.fetched.contains(little)) << "it came after one that waits";
  GiveBack(b);
  EXPECT_TRUE(End(c).ok());
  ExpectSame(c, 7 * kMiB);
  GiveBack(c);
  EXPECT_TRUE(End(little).ok());
  GiveBack(little);
  EndLoan(*lent);
}

// A message that stands behind another one keeps its memory until it can be delivered: so much is its sender's, and no more.
TEST_F(LargeTest, WhatNobodyHasConsumedCountsForItsPeer) {
  Start();
  StartSecondLender();
  const auto lent = Lend(2 * kMiB);
  std::vector<uint32_t> fetches;
  for (int i = 0; i < 6; ++i) fetches.push_back(Fetch(Where(*lent)));
  RunFor(1'000'000'000);
  EXPECT_EQ(reader_saw_.fetched.size(), 4u) << "half of the memory";
  const uint32_t good = Fetch(to_second_, LendFromSecond(6 * kMiB));
  ASSERT_TRUE(Run([&] { return reader_saw_.fetched.contains(good); }, 1'000'000'000))
      << "another peer's messages have taken it all";
  GiveBack(good);
  // What was consumed makes room for what waited.
  for (const uint32_t fetch : fetches) {
    ASSERT_TRUE(End(fetch).ok());
    GiveBack(fetch);
  }
  EndLoan(*lent);
}

// Its peer is down, and another one has its place.
TEST_F(LargeTest, WhatIsConsumedAfterItsPeerWentCountsForNobodyElse) {
  Start();
  const auto lent = Lend(2 * kMiB);
  std::vector<uint32_t> fetches;
  for (int i = 0; i < 4; ++i) fetches.push_back(Fetch(Where(*lent)));
  for (const uint32_t fetch : fetches) ASSERT_TRUE(End(fetch).ok());
  {
    const Simulation::As as(*simulation_, 1);
    reader_->endpoint().Disconnect(to_lender_);
  }
  ASSERT_TRUE(Run([&] { return !lender_saw_.downs.empty() && !reader_saw_.downs.empty(); }));
  RunFor(1'000'000'000);
  EndLoan(*lent);
  ASSERT_TRUE(reader_->Connect(0).ok());
  ASSERT_TRUE(Run([&] { return lender_saw_.ups.size() + reader_saw_.ups.size() == 4; }));
  to_reader_ = lender_saw_.ups[1].id;
  to_lender_ = reader_saw_.ups[1].id;
  ASSERT_EQ(to_lender_.index, reader_saw_.ups[0].id.index);
  lender_saw_.downs.clear();
  reader_saw_.downs.clear();
  const auto again = Lend(2 * kMiB);
  const uint32_t first = Fetch(Where(*again));
  RunFor(1'000'000'000);
  const uint64_t before = reader_->endpoint().Counts().fetched_bytes;
  EXPECT_EQ(before, 10 * kMiB);
  for (const uint32_t fetch : fetches) GiveBack(fetch);
  // Three more are its share: what was given back was not its own.
  std::vector<uint32_t> more = {first};
  for (int i = 0; i < 4; ++i) more.push_back(Fetch(Where(*again)));
  RunFor(1'000'000'000);
  EXPECT_EQ(reader_->endpoint().Counts().fetched_bytes, before + 6 * kMiB);
  for (const uint32_t fetch : more) {
    ASSERT_TRUE(End(fetch).ok());
    GiveBack(fetch);
  }
  EndLoan(*again);
}

// One that gives nothing has its share of the memory until it is declared dead; others fetch meanwhile.
TEST_F(LargeTest, APeerWhoseReadsAreStuckLeavesOthersTheirPart) {
  Start();
  StartSecondLender();
  const RemoteMemory nowhere = Where(*Lend(7 * kMiB));
  const RemoteMemory there = LendFromSecond(6 * kMiB);
  simulation_->CutLink(0, 1);
  const uint32_t first = Fetch(nowhere);
  const uint32_t second = Fetch(nowhere);
  const uint32_t good = Fetch(to_second_, there);
  ASSERT_TRUE(Run([&] { return reader_saw_.fetched.contains(good); }));
  EXPECT_TRUE(reader_saw_.fetched.at(good).ok());
  EXPECT_TRUE(reader_saw_.downs.empty()) << "it had to wait for the end of the other peer";
  EXPECT_FALSE(reader_saw_.fetched.contains(first));
  EXPECT_FALSE(reader_saw_.fetched.contains(second));
  GiveBack(good);
  ASSERT_TRUE(Run([&] { return !reader_saw_.downs.empty(); }));
  simulation_->HealLink(0, 1);
}

// Then nothing is under way that would move it.
TEST_F(LargeTest, AFetchThatWaitsForMemoryCanBeCancelled) {
  Start();
  const auto lent = Lend(7 * kMiB);
  const uint32_t a = Fetch(Where(*lent));
  const uint32_t b = Fetch(Where(*lent));
  EXPECT_TRUE(End(a).ok());
  RunFor(1'000'000'000);
  EXPECT_FALSE(reader_saw_.fetched.contains(b));
  {
    const Simulation::As as(*simulation_, 1);
    reader_->endpoint().CancelFetch(b);
  }
  EXPECT_EQ(End(b).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(reader_->endpoint().Counts().fetches_failed, 1u);
  GiveBack(a);
  EndLoan(*lent);
}

TEST_F(LargeTest, EightPiecesOfAPeerAreUnderWayAtMost) {
  Start();
  const auto lent = Lend(4 * kMiB);
  const RemoteMemory where = Where(*lent);
  const uint32_t a = Fetch(where);
  const uint32_t b = Fetch(where);
  uint32_t most = 0;
  EXPECT_TRUE(Run([&] {
    uint32_t posted = 0;
    for (const QueueReport& queue : reader_->endpoint().Queues()) posted += queue.posted;
    most = std::max(most, posted);
    return reader_saw_.fetched.contains(a) && reader_saw_.fetched.contains(b);
  }));
  EXPECT_EQ(most, 8u);
  GiveBack(a);
  GiveBack(b);
  EndLoan(*lent);
}

TEST_F(LargeTest, NoMorePiecesAreUnderWayThanThePeersDeviceAnswers) {
  softdc::sim::Options sim;
  sim.dials_by_node[0] = sim.dials;
  sim.dials_by_node[0].limits.max_rd_atomic = 3;
  Start(LargeOptions(), &Simulation::Verbs(), sim);
  const auto lent = Lend(4 * kMiB);
  const uint32_t fetch = Fetch(Where(*lent));
  uint32_t most = 0;
  EXPECT_TRUE(Run([&] {
    uint32_t posted = 0;
    for (const QueueReport& queue : reader_->endpoint().Queues()) posted += queue.posted;
    most = std::max(most, posted);
    return reader_saw_.fetched.contains(fetch);
  }));
  EXPECT_EQ(most, 3u);
  ExpectSame(fetch, 4 * kMiB);
  GiveBack(fetch);
  EndLoan(*lent);
}

TEST_F(LargeTest, NumbersOfFetchesAreUsedAgain) {
  Start();
  const auto lent = Lend(kMiB);
  const uint32_t first = Fetch(Where(*lent));
  EXPECT_TRUE(End(first).ok());
  GiveBack(first);
  const uint32_t again = Fetch(Where(*lent));
  EXPECT_EQ(again, first);
  EXPECT_TRUE(End(again).ok());
  GiveBack(again);
  EndLoan(*lent);
}

TEST_F(LargeTest, OverTheLimitIsRefused) {
  Start();
  const Simulation::As as(*simulation_, 1);
  const auto fetch = reader_->endpoint().Fetch(to_lender_, {.address = 1, .bytes = 8 * kMiB + 1});
  EXPECT_EQ(fetch.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(reader_->endpoint().Lend(to_lender_, 16 * kMiB + 1, true).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(reader_->endpoint().Lend({77, 1}, 1, true).status().code(),
            absl::StatusCode::kUnavailable);
}

// No more files: the system gives no memory.
struct NoFiles {
  NoFiles() {
    getrlimit(RLIMIT_NOFILE, &before);
    rlimit none = before;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoFiles() { setrlimit(RLIMIT_NOFILE, &before); }
  rlimit before;
};

TEST_F(LargeTest, NoMemoryOfTheSystemIsSaidAtOnce) {
  Start();
  const auto lent = Lend(kMiB);
  uint32_t fetch = 0;
  {
    const NoFiles none;
    const Simulation::As as(*simulation_, 0);
    const auto refused = lender_->endpoint().Lend(to_reader_, 2 * kMiB, true);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kAborted) << refused.status();
    EXPECT_NE(refused.status().message().find("memfd_create"), std::string::npos);
    fetch = Fetch(Where(*lent));
    EXPECT_EQ(End(fetch).code(), absl::StatusCode::kResourceExhausted) << End(fetch);
    reader_saw_.fetched.clear();
  }
  fetch = Fetch(Where(*lent));
  EXPECT_TRUE(End(fetch).ok()) << End(fetch);
  GiveBack(fetch);
  EndLoan(*lent);
}

bool refuse_to_register = false;
std::vector<int> asked_access;  // of large memory

TEST_F(LargeTest, MemoryThatTheDeviceRefusesEndsTheFetchAndTheLendingOnly) {
  verbs::VerbsApi table = Simulation::Verbs();
  refuse_to_register = false;
  table.reg_mr = [](ibv_pd* pd, void* address, size_t bytes, int access) -> ibv_mr* {
    errno = ENOMEM;
    if (bytes == kMiB) asked_access.push_back(access);
    return refuse_to_register ? nullptr : Simulation::Verbs().reg_mr(pd, address, bytes, access);
  };
  Start(LargeOptions(), &table);
  const auto lent = Lend(kMiB);
  refuse_to_register = true;
  EXPECT_EQ(End(Fetch(Where(*lent))).code(), absl::StatusCode::kResourceExhausted);
  reader_saw_.fetched.clear();
  const auto refused = lender_->endpoint().Lend(to_reader_, 2 * kMiB, true);
  ASSERT_TRUE(refused.ok());
  EXPECT_TRUE(Run([&] { return lender_saw_.lent.contains(refused->number); }));
  EXPECT_EQ(lender_saw_.lent.at(refused->number).code(), absl::StatusCode::kResourceExhausted);
  EndLoan(*refused);
  refuse_to_register = false;
  const uint32_t fetch = Fetch(Where(*lent));
  EXPECT_TRUE(End(fetch).ok()) << End(fetch);
  GiveBack(fetch);
  EndLoan(*lent);
  // Nobody else writes into either.
  EXPECT_EQ(asked_access, (std::vector<int>{IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
                                            IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE}));
  lender_->endpoint().Disconnect(to_reader_);  // while the table is there
  EXPECT_TRUE(Run([&] { return !reader_saw_.downs.empty(); }));
  reader_.reset();
  lender_.reset();
}

// The sum of address and length does not fit into 64 bits.
TEST_F(LargeTest, PlacesAtTheEndOfTheAddressSpaceAreRefused) {
  Start();
  const auto lent = Lend(kMiB);
  RemoteMemory wrong = Where(*lent);
  for (const uint64_t address : {UINT64_MAX, UINT64_MAX - kMiB + 1, uint64_t{0}}) {
    wrong.address = address;
    const uint32_t fetch = Fetch(wrong);
    EXPECT_EQ(End(fetch).code(), absl::StatusCode::kPermissionDenied) << address;
    reader_saw_.fetched.clear();
  }
  wrong = Where(*lent);
  wrong.bytes = 3 * kMiB;  // begins where something was lent, and goes on
  EXPECT_EQ(End(Fetch(wrong)).code(), absl::StatusCode::kPermissionDenied);
  wrong.bytes = 0;
  const Simulation::As as(*simulation_, 1);
  EXPECT_EQ(reader_->endpoint().Fetch(to_lender_, wrong).status().code(),
            absl::StatusCode::kInvalidArgument);
  EndLoan(*lent);
}

// The stream of reads stops, that of messages does not: not one is sent again.
TEST_F(LargeTest, ARefusedFetchHarmsNoMessagesAndNoOtherFetch) {
  Start();
  const auto lent = Lend(4 * kMiB);
  RemoteMemory wrong = Where(*lent);
  wrong.key ^= 0x5a5a00;
  const uint32_t good = Fetch(Where(*lent));
  const uint32_t bad = Fetch(wrong);
  RemoteMemory behind = Where(*lent);
  behind.address += 8 * kMiB;  // where nothing was lent
  const uint32_t outside = Fetch(behind);
  int sent = 0;
  EXPECT_TRUE(Run([&] {
    const Simulation::As as(*simulation_, 1);
    while (sent < 100 && reader_->Send(to_lender_, "message").ok()) ++sent;
    return sent == 100 && lender_saw_.messages.size() == 100 &&
           reader_saw_.fetched.contains(good) && reader_saw_.fetched.contains(bad) &&
           reader_saw_.fetched.contains(outside);
  }));
  EXPECT_EQ(End(bad).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(End(outside).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(End(good).ok()) << End(good);
  ExpectSame(good, 4 * kMiB);
  const Counters counts = reader_->endpoint().Counts();
  EXPECT_GT(counts.stream_resets, 0u);
  EXPECT_EQ(counts.queue_recoveries, 0u);
  EXPECT_EQ(counts.resends, 0u) << "messages had to be sent again";
  EXPECT_TRUE(reader_saw_.downs.empty());
  GiveBack(good);
  EndLoan(*lent);
}

// More refusals in a row than failures end a peer.
TEST_F(LargeTest, RefusalsAreNoSignOfDeath) {
  Start();
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(End(Fetch({.address = 4096, .bytes = 100, .key = 1})).code(),
              absl::StatusCode::kPermissionDenied);
    reader_saw_.fetched.clear();
  }
  EXPECT_TRUE(reader_saw_.downs.empty());
}

TEST_F(LargeTest, FailedReadsAreMadeAgain) {
  Start();
  const auto lent = Lend(4 * kMiB);
  simulation_->FailNext({.node = 1, .skip = 9, .status = IBV_WC_RETRY_EXC_ERR});
  const uint32_t fetch = Fetch(Where(*lent));
  EXPECT_TRUE(End(fetch).ok()) << End(fetch);
  ExpectSame(fetch, 4 * kMiB);
  EXPECT_EQ(reader_->endpoint().Counts().requests_failed, 1u);
  GiveBack(fetch);
  EndLoan(*lent);
}

TEST_F(LargeTest, WithoutStreamsTheWholeQueueIsRecovered) {
  Options options = LargeOptions();
  options.use_streams = false;
  Start(options);
  const auto lent = Lend(4 * kMiB);
  RemoteMemory wrong = Where(*lent);
  wrong.key ^= 0x5a5a00;
  const uint32_t bad = Fetch(wrong);
  const uint32_t good = Fetch(Where(*lent));
  EXPECT_EQ(End(bad).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(End(good).ok()) << End(good);
  ExpectSame(good, 4 * kMiB);
  EXPECT_TRUE(reader_saw_.downs.empty());
  GiveBack(good);
  EndLoan(*lent);
}

TEST_F(LargeTest, ACancelledFetchEndsOnceAndGivesItsMemoryBack) {
  Start();
  const auto lent = Lend(7 * kMiB);
  for (int i = 0; i < 4; ++i) {  // more than there is memory for
    const uint32_t fetch = Fetch(Where(*lent));
    RunFor(20'000 * i);
    const Simulation::As as(*simulation_, 1);
    reader_->endpoint().CancelFetch(fetch);
    EXPECT_EQ(End(fetch).code(), absl::StatusCode::kCancelled);
    const uint64_t read = reader_->endpoint().Counts().fetched_bytes;
    RunFor(1'000'000);
    EXPECT_EQ(reader_->endpoint().Counts().fetched_bytes, read) << "its memory was written later";
    reader_saw_.fetched.clear();
  }
  const uint32_t fetch = Fetch(Where(*lent));
  EXPECT_TRUE(End(fetch).ok());
  GiveBack(fetch);
  EndLoan(*lent);
}

// What was lent is revoked with the peer: who comes next finds other keys, and the old one is of no use.
TEST_F(LargeTest, KeysDieWithTheConnection) {
  Start();
  const auto kept = Lend(2 * kMiB);
  const RemoteMemory kept_where = Where(*kept);
  const auto lent = Lend(kMiB);
  const RemoteMemory where = Where(*lent);
  EndLoan(*kept);
  lender_->endpoint().Disconnect(to_reader_);
  EXPECT_EQ(lender_->endpoint().Lend(to_reader_, 1, true).status().code(),
            absl::StatusCode::kUnavailable);
  ASSERT_TRUE(Run([&] { return !lender_saw_.downs.empty() && !reader_saw_.downs.empty(); }));
  RunFor(1'000'000'000);  // nothing is left of the peer
  EndLoan(*lent);
  ASSERT_TRUE(reader_->Connect(0).ok());
  ASSERT_TRUE(Run([&] { return lender_saw_.ups.size() + reader_saw_.ups.size() == 4; }));
  to_reader_ = lender_saw_.ups[1].id;
  to_lender_ = reader_saw_.ups[1].id;
  lender_saw_.downs.clear();
  reader_saw_.downs.clear();
  EXPECT_EQ(End(Fetch(where)).code(), absl::StatusCode::kPermissionDenied);
  reader_saw_.fetched.clear();
  EXPECT_EQ(End(Fetch(kept_where)).code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(LargeTest, FetchesEndWithTheirPeerAndNobodyIsTold) {
  Start();
  const auto lent = Lend(7 * kMiB);
  const uint32_t fetch = Fetch(Where(*lent));
  RunFor(50'000);
  ASSERT_FALSE(reader_saw_.fetched.contains(fetch));
  {
    const Simulation::As as(*simulation_, 1);
    reader_->endpoint().Disconnect(to_lender_);
  }
  ASSERT_TRUE(Run([&] { return !lender_saw_.downs.empty() && !reader_saw_.downs.empty(); }));
  RunFor(1'000'000'000);
  EXPECT_FALSE(reader_saw_.fetched.contains(fetch));
  EndLoan(*lent);
}

}  // namespace large_test
}  // namespace sluice::endpoint
