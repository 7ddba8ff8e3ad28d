// SPDX-License-Identifier: Apache-2.0
//
// What a port refuses, and what becomes of leases, transfers and peers when something ends early.
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "middleware/bulk/port.h"
#include "tests/middleware/bulk/port_nodes.h"

namespace sluice::bulk {
namespace port_errors_test {

using integrity::Guard;
using integrity::MismatchOf;
using integrity::Protection;
using testing::ElementsAre;
using testing::HasSubstr;
using Kind = integrity::Transfer::Kind;

constexpr int64_t kMs = 1'000'000;
constexpr Protection kDif{
    .memory = Guard::kT10DifCrc, .wire = Guard::kT10DifCrc, .block_bytes = 512};

class PortErrorsTest : public testing::Test {
 protected:
  explicit PortErrorsTest(uint32_t nodes = 3, uint32_t max_peers = 4) {
    PortNodesOptions options;
    options.nodes = nodes;
    options.port.piece_bytes = 4096;
    options.port.max_peers = max_peers;
    options.port.max_transfers = 8;
    options.port.max_leases = 4;
    options.port.patience_ns = 50 * kMs;
    options.port.dead_peer_ns = 100 * kMs;
    options.sim.rate_bits_per_second = 10'000'000'000;
    nodes_ = std::make_unique<PortNodes>(options);
  }
  void JoinTwo() {
    joined_ = nodes_->Join(0, 1);
    own_ = nodes_->Lend(0, 0).id;
    lent_ = nodes_->Lend(1, kMayRead | kMayWrite);
  }
  TransferRequest Request(uint64_t data_bytes, const Protection& protection = {}) {
    TransferRequest request;
    request.local = own_;
    request.remote = lent_.capability;
    request.data_bytes = data_bytes;
    request.protection = protection;
    return request;
  }
  absl::Status Refusal(const TransferRequest& request) {
    return nodes_->Start(0, joined_.at_one, request).status();
  }
  void ExpectRefused(const TransferRequest& request, absl::StatusCode code,
                     const std::string& text) {
    const absl::Status status = Refusal(request);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
  TransferId Begin(const TransferRequest& request) {
    auto transfer = nodes_->Start(0, joined_.at_one, request);
    EXPECT_TRUE(transfer.ok()) << transfer.status();
    return *transfer;
  }
  void Cancel(TransferId transfer) {
    const auto as = nodes_->As(0);
    EXPECT_TRUE(here().port->Cancel(transfer).ok());
  }
  absl::Status Return(uint32_t node, LeaseId lease) {
    const auto as = nodes_->As(node);
    return (*nodes_)[node].port->leases().Return(lease);
  }
  bool RunUntilEnded(TransferId transfer) {
    return nodes_->Run([&] { return here().ended.contains(transfer); });
  }
  void RunFor(int64_t ns) {
    const int64_t end_ns = nodes_->simulation->NowNs() + ns;
    nodes_->Run([&] { return nodes_->simulation->NowNs() >= end_ns; });
  }
  PortNode& here() { return (*nodes_)[0]; }
  PortNode& there() { return (*nodes_)[1]; }

  std::unique_ptr<PortNodes> nodes_;
  PortNodes::Joined joined_;
  LeaseId own_;
  PortNodes::Lent lent_;
};

TEST_F(PortErrorsTest, WrongRequestsAreRefusedWithTheirReason) {
  JoinTwo();
  using C = absl::StatusCode;
  ExpectRefused(Request(0), C::kInvalidArgument, "0 bytes are no transfer");
  ExpectRefused(Request(513, kDif), C::kInvalidArgument, "not whole blocks of 512");
  Protection wrong = kDif;
  wrong.block_bytes = 520;
  ExpectRefused(Request(512, wrong), C::kInvalidArgument, "blocks of 520 bytes");
  wrong = kDif;
  wrong.memory = static_cast<Guard>(77);
  ExpectRefused(Request(512, wrong), C::kInvalidArgument, "guard type 77");

  TransferRequest request = Request(512, kDif);
  request.local_offset = 512;
  ExpectRefused(request, C::kInvalidArgument, "the local offset is not the start of a block");
  request.local_offset = 520;
  request.remote_offset = 1;
  ExpectRefused(request, C::kInvalidArgument, "the remote offset is not the start of a block");

  request = Request(100);
  request.remote_offset = kMemoryBytes - 99;
  ExpectRefused(request, C::kOutOfRange, "not all in the 1048576 that were lent");
  request.remote_offset = UINT64_MAX;
  ExpectRefused(request, C::kOutOfRange, "that were lent");
  request = Request(100);
  request.local_offset = kMemoryBytes - 99;
  ExpectRefused(request, C::kOutOfRange, "not all in a lease of 1048576");
  request = Request(100);
  ++request.local.epoch;
  ExpectRefused(request, C::kNotFound, "no such lease");
  EXPECT_TRUE(here().port->Cancel(99).code() == C::kNotFound);
  EXPECT_TRUE(here().ended.empty());
}

TEST_F(PortErrorsTest, CapabilityHasItsRightsAndItsPeer) {
  JoinTwo();
  const auto read_only = nodes_->Lend(1, kMayRead);
  TransferRequest request = Request(100);
  request.remote = read_only.capability;
  ExpectRefused(request, absl::StatusCode::kPermissionDenied, "not for writing");
  request.kind = Kind::kRead;
  EXPECT_TRUE(RunUntilEnded(Begin(request)));
  const auto write_only = nodes_->Lend(1, kMayWrite);
  request.remote = write_only.capability;
  ExpectRefused(request, absl::StatusCode::kPermissionDenied, "not for reading");
  const auto another = nodes_->Lend(2, kMayRead | kMayWrite);
  request.remote = another.capability;
  ExpectRefused(request, absl::StatusCode::kPermissionDenied, "of another peer");
}

// Who changes the bytes of a capability gets no further than the device of the lender.
TEST_F(PortErrorsTest, DeviceOfTheLenderRefusesWhatWasNotLent) {
  JoinTwo();
  const auto part = nodes_->Lend(1, kMayWrite, 4096, 4096);
  TransferRequest request = Request(4096);
  request.remote = part.capability;
  request.remote.address -= 4096;
  Fill(nodes_->random, here().at(0, 4096));
  const TransferId transfer = Begin(request);
  ASSERT_TRUE(RunUntilEnded(transfer));
  EXPECT_EQ(here().ended[transfer].code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(here().ended[transfer].message()), HasSubstr("no longer valid"));
  EXPECT_EQ(there().memory[0], std::byte{0});
  // The lender hears that it ended; and the next one is as if nothing had been.
  ASSERT_TRUE(nodes_->Run([&] { return !there().arrivals.empty(); }));
  EXPECT_EQ(there().arrivals[0].status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(there().arrivals[0].data_bytes, 0u);
  const TransferId next = Begin(Request(4096));
  ASSERT_TRUE(RunUntilEnded(next));
  EXPECT_TRUE(here().ended[next].ok()) << here().ended[next];
  EXPECT_TRUE(here().downs.empty());
}

TEST_F(PortErrorsTest, ReturnedLeaseIsOutOfReach) {
  JoinTwo();
  ASSERT_TRUE(Return(1, lent_.id).ok());
  EXPECT_EQ(Return(1, lent_.id).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(nodes_->Run([&] { return !there().returned.empty(); }));
  EXPECT_THAT(there().returned, ElementsAre(lent_.id));
  Fill(nodes_->random, here().at(0, 4096));
  const TransferId transfer = Begin(Request(4096));
  ASSERT_TRUE(RunUntilEnded(transfer));
  EXPECT_EQ(here().ended[transfer].code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(there().memory[0], std::byte{0});
}

// In the middle of a transfer: what lands before is whole pieces, and nothing lands after OnReturned.
TEST_F(PortErrorsTest, LeaseReturnedDuringATransferIsOutOfReachAfterwards) {
  JoinTwo();
  Fill(nodes_->random, here().memory);
  const TransferId transfer = Begin(Request(kMemoryBytes));
  ASSERT_TRUE(nodes_->Run([&] { return here().port->Progress(transfer) > 100'000; }));
  ASSERT_TRUE(Return(1, lent_.id).ok());
  ASSERT_TRUE(nodes_->Run([&] { return !there().returned.empty(); }));
  const std::vector<std::byte> then = there().memory;
  ASSERT_TRUE(RunUntilEnded(transfer));
  RunFor(10 * kMs);
  EXPECT_EQ(there().memory, then);
  EXPECT_EQ(here().ended[transfer].code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(PortErrorsTest, LeaseEndsByItself) {
  JoinTwo();
  const int64_t end_ns = nodes_->simulation->NowNs() + kMs;
  const auto brief = nodes_->Lend(1, kMayRead, 0, 4096, end_ns);
  ASSERT_TRUE(nodes_->Run([&] { return !there().returned.empty(); }));
  EXPECT_GE(nodes_->simulation->NowNs(), end_ns);
  TransferRequest request = Request(10);
  request.kind = Kind::kRead;
  request.remote = brief.capability;
  const TransferId transfer = Begin(request);
  ASSERT_TRUE(RunUntilEnded(transfer));
  EXPECT_EQ(here().ended[transfer].code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(PortErrorsTest, OwnMemoryComesBackOnlyAfterItsTransfers) {
  JoinTwo();
  bool returned_too_early = false;
  here().on_transferred = [&](TransferId) { returned_too_early = !here().returned.empty(); };
  const TransferId transfer = Begin(Request(kMemoryBytes));
  ASSERT_TRUE(nodes_->Run([&] { return here().port->Progress(transfer) > 0; }));
  ASSERT_TRUE(Return(0, own_).ok());
  ExpectRefused(Request(10), absl::StatusCode::kNotFound, "no such lease");
  ASSERT_TRUE(nodes_->Run([&] { return !here().returned.empty(); }));
  EXPECT_TRUE(here().ended.contains(transfer));
  EXPECT_TRUE(here().ended[transfer].ok());
  EXPECT_FALSE(returned_too_early);
}

TEST_F(PortErrorsTest, CancelledTransferEndsAtBothEnds) {
  JoinTwo();
  TransferRequest request = Request(kMemoryBytes);
  request.tag = 5;
  const TransferId transfer = Begin(request);
  ASSERT_TRUE(nodes_->Run([&] { return here().port->Progress(transfer) > 50'000; }));
  Cancel(transfer);
  ASSERT_TRUE(
      nodes_->Run([&] { return here().ended.contains(transfer) && !there().arrivals.empty(); }));
  EXPECT_EQ(here().ended[transfer].code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(there().arrivals[0].status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(there().arrivals[0].tag, 5u);
  EXPECT_GT(there().arrivals[0].data_bytes, 50'000u);
  EXPECT_LT(there().arrivals[0].data_bytes, kMemoryBytes);
  // Before anything was posted, and the next one as if nothing had been.
  const TransferId second = Begin(Request(4096));
  Cancel(second);
  const TransferId third = Begin(Request(4096));
  ASSERT_TRUE(
      nodes_->Run([&] { return there().arrivals.size() == 3 && here().ended.contains(second); }));
  EXPECT_EQ(here().ended[second].code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(there().arrivals[1].data_bytes, 0u);
  EXPECT_TRUE(there().arrivals[2].status.ok());
  EXPECT_TRUE(nodes_->Run([&] { return here().ended.contains(third); }));
  EXPECT_TRUE(here().downs.empty());
}

TEST_F(PortErrorsTest, DeadlineEndsATransfer) {
  JoinTwo();
  TransferRequest request = Request(kMemoryBytes);
  request.deadline_ns = nodes_->simulation->NowNs() + kMs / 10;
  const TransferId transfer = Begin(request);
  ASSERT_TRUE(RunUntilEnded(transfer));
  EXPECT_EQ(here().ended[transfer].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(here().downs.empty());
}

// A peer that hangs costs a deadline and the patience, and the memory is the user's again.
TEST_F(PortErrorsTest, PeerThatHangsIsGivenUp) {
  JoinTwo();
  nodes_->simulation->CutLink(0, 1);
  TransferRequest request = Request(8192);
  request.deadline_ns = nodes_->simulation->NowNs() + kMs;
  const TransferId transfer = Begin(request);
  ASSERT_TRUE(RunUntilEnded(transfer));
  EXPECT_EQ(here().ended[transfer].code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(nodes_->Run([&] { return !here().downs.empty(); }));
  // Long before the device would have given up: half a second.
  EXPECT_LT(nodes_->simulation->NowNs(), request.deadline_ns + 150 * kMs);
  ASSERT_TRUE(Return(0, own_).ok());
  EXPECT_TRUE(nodes_->Run([&] { return !here().returned.empty(); }));
  EXPECT_EQ(Refusal(Request(10)).code(), absl::StatusCode::kNotFound);
}

TEST_F(PortErrorsTest, LenderThatDiesGivesTheInitiatorItsMemoryBack) {
  JoinTwo();
  const TransferId transfer = Begin(Request(kMemoryBytes));
  ASSERT_TRUE(nodes_->Run([&] { return here().port->Progress(transfer) > 0; }));
  nodes_->simulation->Kill(1);
  nodes_->dead = {false, true};
  ASSERT_TRUE(Return(0, own_).ok());
  ASSERT_TRUE(nodes_->Run([&] { return !here().returned.empty(); }));
  EXPECT_EQ(here().ended[transfer].code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(here().downs.size(), 1u);
}

TEST_F(PortErrorsTest, LenderHasItsMemoryBackWhenTheInitiatorHasDied) {
  JoinTwo();
  Fill(nodes_->random, here().memory);
  const TransferId transfer = Begin(Request(kMemoryBytes));
  ASSERT_TRUE(nodes_->Run([&] { return here().port->Progress(transfer) > 0; }));
  nodes_->simulation->Kill(0);
  nodes_->dead = {true};
  ASSERT_TRUE(Return(1, lent_.id).ok());
  ASSERT_TRUE(nodes_->Run([&] { return !there().returned.empty(); }));
  const std::vector<std::byte> then = there().memory;
  RunFor(10 * kMs);
  EXPECT_EQ(there().memory, then);
}

TEST_F(PortErrorsTest, DisconnectEndsTheTransfersOfThatPeer) {
  JoinTwo();
  const TransferId transfer = Begin(Request(kMemoryBytes));
  ASSERT_TRUE(nodes_->Run([&] { return here().port->Progress(transfer) > 0; }));
  {
    const auto as = nodes_->As(0);
    EXPECT_TRUE(here().port->Disconnect(joined_.at_one).ok());
  }
  ASSERT_TRUE(nodes_->Run([&] { return !here().downs.empty(); }));
  EXPECT_EQ(here().ended[transfer].code(), absl::StatusCode::kUnavailable);
  // The ports may be joined again.
  joined_ = nodes_->Join(0, 1);
  const TransferId next = Begin(Request(4096));
  ASSERT_TRUE(RunUntilEnded(next));
  EXPECT_TRUE(here().ended[next].ok()) << here().ended[next];
}

// On the way, or in the memory where they landed: found before their user hears of them, by the target.
TEST_F(PortErrorsTest, WhatIsDamagedAfterTheInitiatorsCheckIsFoundByTheTarget) {
  JoinTwo();
  for (const size_t bit : {0, 513 * 8 + 1, 519 * 8, 25 * 520 * 8 + 77, 39 * 520 * 8 + 514 * 8}) {
    std::vector<std::byte> data(40 * 512), blocks(40 * 520);
    Fill(nodes_->random, data);
    Protect(kDif, data, blocks);
    std::ranges::copy(blocks, here().memory.begin());
    std::ranges::transform(blocks, there().memory.begin(), [](std::byte b) { return ~b; });
    const size_t before = there().arrivals.size();
    const TransferId transfer = Begin(Request(40 * 512, kDif));
    // As soon as that byte has landed.
    const size_t byte = bit / 8;
    ASSERT_TRUE(nodes_->Run([&] {
      return std::ranges::equal(there().at(byte, 2), std::span(blocks).subspan(byte, 2));
    }));
    ASSERT_EQ(there().arrivals.size(), before);
    there().memory[byte] ^= static_cast<std::byte>(1 << bit % 8);
    ASSERT_TRUE(nodes_->Run(
        [&] { return here().ended.contains(transfer) && there().arrivals.size() > before; }));
    EXPECT_TRUE(here().ended[transfer].ok()) << "nothing was wrong when it left";
    const auto mismatch = MismatchOf(there().arrivals.back().status);
    ASSERT_TRUE(mismatch.has_value()) << there().arrivals.back().status;
    EXPECT_EQ(mismatch->end, integrity::End::kTarget);
    EXPECT_EQ(mismatch->block, byte / 520);
  }
  EXPECT_EQ(there().port->counters().found_here, 5u);
}

TEST_F(PortErrorsTest, TicketsThatAreNoneAndSecondCompletionsAreRefused) {
  const auto as = nodes_->As(0);
  std::string ticket, answer;
  EXPECT_EQ(here().port->Accept("garbage", &answer).status().code(),
            absl::StatusCode::kInvalidArgument);
  auto peer = here().port->Offer(&ticket);
  ASSERT_TRUE(peer.ok());
  EXPECT_EQ(here().port->Complete(*peer, ticket.substr(1)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(here().port->Complete({peer->index, peer->generation + 1}, ticket).code(),
            absl::StatusCode::kNotFound);
  ASSERT_TRUE(here().port->Complete(*peer, ticket).ok()) << "to itself";
  EXPECT_EQ(here().port->Complete(*peer, ticket).code(), absl::StatusCode::kFailedPrecondition);
  TransferRequest request;
  EXPECT_EQ(here().port->Start({9, 9}, request).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(PortErrorsTest, BoundsAreKept) {
  JoinTwo();
  for (int i = 0; i < 8; ++i) Begin(Request(4096));
  ExpectRefused(Request(4096), absl::StatusCode::kResourceExhausted, "8 transfers are open");
  ASSERT_TRUE(nodes_->Run([&] { return here().ended.size() == 8; }));
  EXPECT_TRUE(Refusal(Request(4096)).ok());
  for (int i = 0; i < 3; ++i) nodes_->Lend(0, 0);
  const auto as = nodes_->As(0);
  EXPECT_EQ(here().port->leases().Lend(here().at(0, 10), 0, 0).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(here().port->leases().Lend({}, 0, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(here().port->leases().Lend(here().at(0, 10), 4, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PortOptions, WrongOnesAreRefused) {
  PortNodes nodes;
  const auto as = nodes.As(0);
  for (const auto& wrong :
       {PortOptions{.max_peers = 0}, PortOptions{.max_leases = 0},
        PortOptions{.max_pieces_in_flight = 0}, PortOptions{.max_pieces_in_flight = 1 << 15},
        PortOptions{.piece_bytes = 0}, PortOptions{.piece_bytes = 5000},
        PortOptions{.watch_ns = 0}}) {
    EXPECT_EQ(Port::Create(*nodes[0].device, *nodes[0].clock, nodes.random, *nodes[0].commands,
                           nodes[0], wrong)
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// The ways to peers are few: the one that was not used for the longest time goes.
class RoomForTwoTest : public PortErrorsTest {
 protected:
  RoomForTwoTest() : PortErrorsTest(4, 2) {}
};

TEST_F(RoomForTwoTest, EldestIdlePeerMakesRoom) {
  JoinTwo();
  nodes_->Join(0, 2);
  ASSERT_TRUE(RunUntilEnded(Begin(Request(100))));  // so the way to 2 is older
  std::string ticket;
  {
    const auto as = nodes_->As(0);
    EXPECT_EQ(here().port->Offer(&ticket).status().code(), absl::StatusCode::kResourceExhausted);
  }
  ASSERT_TRUE(nodes_->Run([&] { return !here().downs.empty(); }));
  EXPECT_NE(here().downs[0].first, joined_.at_one);
  RunFor(kMs);
  nodes_->Join(0, 3);
  EXPECT_EQ(here().port->counters().evicted, 1u);
  const TransferId transfer = Begin(Request(100));
  ASSERT_TRUE(RunUntilEnded(transfer));
  EXPECT_TRUE(here().ended[transfer].ok());
}

// A peer that says what no port says is given up; its bytes reach nothing.
class BadNotices : public PortErrorsTest {
 protected:
  struct Sender : onesided::MoverUser {
    void OnPiece(uint32_t, uint64_t, onesided::PieceEnd) override {}
    void OnWord(uint32_t, std::span<const std::byte>) override {}
    void OnDown(uint32_t, const absl::Status&) override {}
  };
  void Say(const std::vector<std::vector<std::byte>>& words) {
    Sender sender;
    std::unique_ptr<onesided::Mover> mover;
    std::string offer;
    PeerId peer;
    {
      const auto as = nodes_->As(1);
      peer = *there().port->Offer(&offer);
    }
    Ticket from{.port = 1, .piece_bytes = 4096};
    {
      const auto as = nodes_->As(0);
      mover =
          *onesided::Mover::Create(*here().device, *here().commands, nodes_->random, sender, {});
      from.way = *mover->Open(0);
      ASSERT_TRUE(mover->Connect(0, LoadTicket(offer)->way, /*last=*/false).ok());
    }
    {
      const auto as = nodes_->As(1);
      ASSERT_TRUE(there().port->Complete(peer, ToBytes(from)).ok());
    }
    {
      const auto as = nodes_->As(0);
      for (const auto& word : words) mover->Say(0, word);
    }
    const size_t before = there().downs.size();
    EXPECT_TRUE(nodes_->Run([&] {
      const auto as = nodes_->As(0);
      mover->Poll();
      return there().downs.size() > before;
    }));
    why_ = there().downs.empty() ? "" : std::string(there().downs.back().second.message());
    const auto as = nodes_->As(0);
    here().commands->Finish();
    mover.reset();
  }
  static std::vector<std::byte> Bytes(const Notice& notice) {
    return ToBytes(PortWord{.kind = PortWord::Kind::kNotice, .notice = notice});
  }
  static Notice Good() {
    Notice notice;
    notice.pieces = 2;
    notice.data_bytes = 512;
    return notice;
  }
  std::string why_;
};

TEST_F(BadNotices, BytesThatAreNone) {
  Say({std::vector<std::byte>(5)});
  EXPECT_THAT(why_, HasSubstr("it is none"));
}
TEST_F(BadNotices, PieceTwice) {
  Say({Bytes(Good()), Bytes(Good())});
  EXPECT_THAT(why_, HasSubstr("repeats a piece"));
}
TEST_F(BadNotices, TransferFarAhead) {
  Notice notice = Good();
  notice.number = 1'000'000;
  Say({Bytes(notice)});
  EXPECT_THAT(why_, HasSubstr("far ahead"));
}
TEST_F(BadNotices, Contradiction) {
  Notice other = Good();
  other.piece = 1;
  other.tag = 9;
  Say({Bytes(Good()), Bytes(other)});
  EXPECT_THAT(why_, HasSubstr("contradicts"));
  EXPECT_TRUE(there().arrivals.empty());
}
TEST_F(BadNotices, TwoQueuePairs) {
  const auto queue =
      ToBytes(PortWord{.kind = PortWord::Kind::kQueue, .qp_number = 5, .notices = 16, .reads = 1});
  Say({queue, queue});
  EXPECT_THAT(why_, HasSubstr("second queue pair"));
}
// Words about a queue pair that was never made.
TEST_F(BadNotices, WordsOutOfTurn) {
  std::vector<std::vector<std::byte>> words;
  for (const auto kind :
       {PortWord::Kind::kReady, PortWord::Kind::kClose, PortWord::Kind::kClosed}) {
    words.push_back(ToBytes(PortWord{.kind = kind}));
  }
  words.push_back(std::vector<std::byte>(5));
  Say(words);
  EXPECT_THAT(why_, HasSubstr("it is none"));
}

}  // namespace port_errors_test
}  // namespace sluice::bulk
