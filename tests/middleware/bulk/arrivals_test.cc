// SPDX-License-Identifier: Apache-2.0
//
// What a lender makes of notices, and what those of a hostile peer cost it.
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/middleware/bulk/hostile_port.h"
#include "tests/middleware/bulk/port_nodes.h"

namespace {
// On the heap, and not freed.
std::atomic<int64_t> live_bytes = 0;

void Free(void* at) {
  live_bytes -= static_cast<int64_t>(malloc_usable_size(at));
  std::free(at);
}
}  // namespace

// All of them, so that sanitizers, which have their own, agree about what is whose.
void* operator new(size_t size) {
  void* const at = std::malloc(size);
  if (at == nullptr) std::abort();
  live_bytes += static_cast<int64_t>(malloc_usable_size(at));
  return at;
}
void* operator new[](size_t size) { return operator new(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return operator new(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return operator new(size); }
void operator delete(void* at) noexcept { Free(at); }
void operator delete[](void* at) noexcept { Free(at); }
void operator delete(void* at, size_t) noexcept { Free(at); }
void operator delete[](void* at, size_t) noexcept { Free(at); }
void operator delete(void* at, const std::nothrow_t&) noexcept { Free(at); }
void operator delete[](void* at, const std::nothrow_t&) noexcept { Free(at); }

namespace sluice::bulk {
namespace {

using integrity::Guard;
using integrity::Protection;
using testing::HasSubstr;

constexpr Protection kCrc{.wire = Guard::kCrc32c, .block_bytes = 512};

// Host 1 lends, host 0 is hostile.
class ArrivalsTest : public testing::Test {
 protected:
  ArrivalsTest() {
    PortNodesOptions options;
    options.port.piece_bytes = 8192;
    nodes_ = std::make_unique<PortNodes>(options);
    lent_ = nodes_->Lend(1, kMayRead | kMayWrite);
    hostile_ = std::make_unique<HostilePort>(*nodes_, 0, 1);
  }
  Notice Piece(uint32_t piece, uint32_t pieces = 4) const {
    Notice notice;
    notice.piece = piece;
    notice.pieces = pieces;
    notice.lease = lent_.id.index;
    notice.epoch = lent_.id.epoch;
    notice.data_bytes = 512;
    return notice;
  }
  Notice Rest(uint32_t piece, uint32_t pieces = 4) const {
    Notice notice = Piece(piece, pieces);
    notice.outcome = Outcome::kCancelled;
    notice.data_bytes = 0;
    return notice;
  }
  // Of a transfer that is whole: the port has looked at what was said before.
  bool Settle(uint64_t number) {
    Notice last = Piece(0, 1);
    last.number = number;
    last.tag = 99;
    return hostile_->Say(last) && hostile_->Run([&] {
      return !there().arrivals.empty() && there().arrivals.back().tag == 99;
    });
  }
  std::string WhyGivenUp() {
    const int64_t end_ns = nodes_->simulation->NowNs() + 20'000'000;
    hostile_->Run([&] { return hostile_->down() || nodes_->simulation->NowNs() > end_ns; });
    return hostile_->why();
  }
  PortNode& there() { return (*nodes_)[1]; }

  std::unique_ptr<PortNodes> nodes_;
  PortNodes::Lent lent_;
  std::unique_ptr<HostilePort> hostile_;
};

TEST_F(ArrivalsTest, PiecesThatOvertakeOthersAreCountedOnce) {
  for (const uint32_t piece : {2u, 1u, 3u}) ASSERT_TRUE(hostile_->Say(Piece(piece)));
  ASSERT_TRUE(hostile_->Say(Piece(0)));
  ASSERT_TRUE(Settle(1));
  ASSERT_EQ(there().arrivals.size(), 2u);
  EXPECT_TRUE(there().arrivals[0].status.ok());
  EXPECT_EQ(there().arrivals[0].data_bytes, 4 * 512u);
  ASSERT_TRUE(hostile_->Say(Piece(0)));
  EXPECT_THAT(WhyGivenUp(), HasSubstr("has ended"));
}

TEST_F(ArrivalsTest, PieceThatOvertookOthersComesOnce) {
  ASSERT_TRUE(hostile_->Say(Piece(2)));
  ASSERT_TRUE(hostile_->Say(Piece(2)));
  EXPECT_THAT(WhyGivenUp(), HasSubstr("repeats a piece"));
}

TEST_F(ArrivalsTest, RestThatWillNotComeEndsTheTransferOnceThoseBeforeHaveCome) {
  ASSERT_TRUE(hostile_->Say(Piece(1)));
  ASSERT_TRUE(hostile_->Say(Rest(2)));
  ASSERT_TRUE(hostile_->Say(Piece(0)));
  ASSERT_TRUE(Settle(1));
  ASSERT_EQ(there().arrivals.size(), 2u);
  EXPECT_EQ(there().arrivals[0].status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(there().arrivals[0].data_bytes, 2 * 512u);
}

TEST_F(ArrivalsTest, RestThatWillNotComeIsBehindAllThatCame) {
  ASSERT_TRUE(hostile_->Say(Piece(2)));
  ASSERT_TRUE(hostile_->Say(Rest(1)));
  EXPECT_THAT(WhyGivenUp(), HasSubstr("repeats a piece"));
}

TEST_F(ArrivalsTest, NothingComesBehindTheRest) {
  ASSERT_TRUE(hostile_->Say(Rest(1)));
  ASSERT_TRUE(hostile_->Say(Piece(3)));
  EXPECT_THAT(WhyGivenUp(), HasSubstr("repeats a piece"));
}

// More than it may have under way: their order is no accident.
TEST_F(ArrivalsTest, PeerWhosePiecesAllOvertakeOthersIsGivenUp) {
  for (uint32_t piece = 1; piece <= 100 && hostile_->Say(Piece(piece, 1000)); ++piece) {
  }
  EXPECT_THAT(WhyGivenUp(), HasSubstr("ahead of earlier ones"));
}

// 0.6 MB of notices, each of another transfer of a million pieces: by a bit for each piece that would be 512 MiB.
TEST_F(ArrivalsTest, TransfersOfManyPiecesTakeMemoryForWhatHasComeOnly) {
  const int64_t before = live_bytes;
  for (uint64_t number = 0; number < 4096; ++number) {
    Notice notice = Piece(0, kMaxPieces);
    notice.number = number;
    ASSERT_TRUE(hostile_->Say(notice)) << hostile_->why();
  }
  Notice twice = Piece(0, kMaxPieces);
  twice.number = 4095;
  ASSERT_TRUE(hostile_->Say(twice));
  int64_t most = 0;
  ASSERT_TRUE(hostile_->Run([&] {
    most = std::max(most, live_bytes - before);
    return hostile_->down();
  }));
  EXPECT_THAT(hostile_->why(), HasSubstr("repeats a piece")) << "all of them were taken";
  EXPECT_LT(most, 8 << 20);
}

// What it moves, it moves over its queue pair; so the notice of such a piece is a lie, and what it names another peer's, say.
TEST_F(ArrivalsTest, ProtectedPieceBesideTheQueuePairIsNotLookedAt) {
  Notice notice = Piece(0, 1);
  notice.data_bytes = 512 << 10;
  notice.protection = kCrc;
  ASSERT_TRUE(hostile_->Say(notice));
  EXPECT_THAT(WhyGivenUp(), HasSubstr("did not arrive by the queue pair"));
  EXPECT_EQ(there().port->counters().found_here, 0u);
  EXPECT_TRUE(there().arrivals.empty());
}

// A protected transfer that was cancelled before it had a queue pair.
TEST_F(ArrivalsTest, ProtectedTransferMayBeCancelledBesideTheQueuePair) {
  Notice notice = Rest(0);
  notice.data_bytes = 512;
  notice.protection = kCrc;
  ASSERT_TRUE(hostile_->Say(notice));
  ASSERT_TRUE(Settle(1));
  EXPECT_EQ(there().arrivals[0].status.code(), absl::StatusCode::kCancelled);
}

TEST_F(ArrivalsTest, ProtectedPieceIsAsLargeAsThePortsAgreedOn) {
  hostile_->MakeQueue();
  Notice notice = Piece(0, 1);
  notice.data_bytes = 4096;
  notice.protection = kCrc;
  hostile_->Tell(notice);
  ASSERT_TRUE(hostile_->Run([&] { return there().arrivals.size() == 1; }));
  EXPECT_TRUE(integrity::MismatchOf(there().arrivals[0].status).has_value());
  notice.number = 1;
  notice.data_bytes = 4096 + 512;
  hostile_->Tell(notice);
  EXPECT_THAT(WhyGivenUp(), HasSubstr("larger than the agreed maximum"));
  EXPECT_EQ(there().port->counters().found_here, 1u);
}

// It names memory that was never lent: nothing is looked at, and the user hears why.
TEST_F(ArrivalsTest, LeaseOfNobodyIsNotLookedAt) {
  hostile_->MakeQueue();
  Notice notice = Piece(0, 1);
  notice.lease = 3;
  notice.epoch = 44;
  notice.offset = UINT64_MAX - 100;
  notice.protection = kCrc;
  hostile_->Tell(notice);
  ASSERT_TRUE(hostile_->Run([&] { return !there().arrivals.empty(); }));
  EXPECT_EQ(there().arrivals[0].status.code(), absl::StatusCode::kNotFound);
}

// Ports whose pieces differ agree on the smaller, whichever of them begins.
TEST(Pieces, OfPortsThatDifferAreTheSmaller) {
  PortNodesOptions options;
  options.piece_bytes = {4096, 16384};
  PortNodes nodes(options);
  const auto joined = nodes.Join(0, 1);
  constexpr uint64_t kData = 32 * 1024;
  constexpr Protection kBoth{.memory = Guard::kCrc32c, .wire = Guard::kCrc32c, .block_bytes = 512};
  for (const uint32_t from : {0u, 1u}) {
    const auto lent = nodes.Lend(1 - from, kMayWrite);
    std::vector<std::byte> data(kData);
    Fill(nodes.random, data);
    Protect(kBoth, data, nodes[from].at(0, MemoryBytes(kBoth, kData)));
    TransferRequest request;
    request.local = nodes.Lend(from, 0).id;
    request.remote = lent.capability;
    request.data_bytes = kData;
    request.protection = kBoth;
    const auto transfer = nodes.Start(from, from == 0 ? joined.at_one : joined.at_other, request);
    ASSERT_TRUE(transfer.ok()) << transfer.status();
    ASSERT_TRUE(nodes.Run([&] { return !nodes[1 - from].arrivals.empty(); }));
    ASSERT_TRUE(nodes.Run([&] { return nodes[from].ended.contains(*transfer); }));
    EXPECT_TRUE(nodes[from].ended[*transfer].ok()) << nodes[from].ended[*transfer];
    EXPECT_EQ(nodes[1 - from].arrivals[0].data_bytes, kData);
    EXPECT_EQ(nodes[from].port->counters().pieces, kData / 4096);
  }
}

}  // namespace
}  // namespace sluice::bulk
