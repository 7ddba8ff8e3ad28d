// SPDX-License-Identifier: Apache-2.0
//
// Memory that is lent for one peer: no other reaches it, whatever it knows.
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "middleware/bulk/notice.h"
#include "middleware/bulk/port_word.h"
#include "middleware/bulk/ticket.h"
#include "tests/middleware/bulk/port_nodes.h"
#include "transport/onesided/mover.h"

namespace sluice::bulk {
namespace reach_test {

using integrity::Guard;
using Kind = integrity::Transfer::Kind;

constexpr uint64_t kBytes = 8192;
constexpr uint32_t kLender = 0, kAnn = 1, kBob = 2;
constexpr size_t kForAnn = 0, kForBob = kBytes, kForAll = 2 * kBytes;  // in the lender's memory

class ReachTest : public testing::Test {
 protected:
  void SetUp() override {
    PortNodesOptions options;
    options.nodes = 3;
    nodes_ = std::make_unique<PortNodes>(options);
    for (const uint32_t node : {kLender, kAnn, kBob}) {
      Fill(nodes_->random, (*nodes_)[node].memory);
      own_.push_back(nodes_->Lend(node, 0).id);
    }
  }
  // Ann and Bob at the lender, and the lender at them.
  void Join(Reach ann, Reach bob) {
    ann_ = JoinTo(kAnn, ann);
    bob_ = JoinTo(kBob, bob);
  }
  PortNodes::Joined JoinTo(uint32_t node, Reach reach) {
    std::string ticket, answer;
    PortNodes::Joined joined;
    {
      const auto as = nodes_->As(kLender);
      joined.at_one = lender().Offer(&ticket, reach).value();
    }
    {
      const auto as = nodes_->As(node);
      joined.at_other = (*nodes_)[node].port->Accept(ticket, &answer).value();
    }
    const auto as = nodes_->As(kLender);
    EXPECT_TRUE(lender().Complete(joined.at_one, answer).ok());
    return joined;
  }
  Capability LendFor(PeerId peer, size_t offset) {
    PortNode& node = (*nodes_)[kLender];
    const size_t before = node.lent.size();
    {
      const auto as = nodes_->As(kLender);
      const auto id = lender().Lend(node.at(offset, kBytes), kMayRead | kMayWrite, 0, peer);
      EXPECT_TRUE(id.ok()) << id.status();
    }
    EXPECT_TRUE(nodes_->Run([&] { return node.lent.size() > before; }));
    EXPECT_TRUE(node.lent.back().second.ok()) << node.lent.back().second.status();
    return node.lent.back().second.value();
  }
  // How a transfer of `node` ends.
  absl::Status Move(uint32_t node, PeerId peer, const Capability& remote, Kind kind,
                    const integrity::Protection& protection = {}) {
    return Move(node, peer, own_[node], remote, kind, protection);
  }
  absl::Status Move(uint32_t node, PeerId peer, LeaseId local, const Capability& remote, Kind kind,
                    const integrity::Protection& protection) {
    TransferRequest request;
    request.kind = kind;
    request.local = local;
    request.remote = remote;
    request.data_bytes = kBytes / 2;
    request.protection = protection;
    const auto transfer = nodes_->Start(node, peer, request);
    if (!transfer.ok()) return transfer.status();
    PortNode& at = (*nodes_)[node];
    EXPECT_TRUE(nodes_->Run([&] { return at.ended.contains(*transfer); }));
    return at.ended[*transfer];
  }
  void Part(uint32_t node, const PortNodes::Joined& joined) {
    (*nodes_)[kLender].downs.clear();
    (*nodes_)[node].downs.clear();
    {
      const auto as = nodes_->As(kLender);
      EXPECT_TRUE(lender().Disconnect(joined.at_one).ok());
    }
    EXPECT_TRUE(nodes_->Run(
        [&] { return !(*nodes_)[kLender].downs.empty() && !(*nodes_)[node].downs.empty(); }));
  }
  static integrity::Protection Checksummed() {
    return {.memory = Guard::kNone, .wire = Guard::kCrc32c, .block_bytes = 512};
  }
  std::vector<std::byte> Bytes(uint32_t node, size_t offset) {
    const auto bytes = (*nodes_)[node].at(offset, kBytes);
    return {bytes.begin(), bytes.end()};
  }
  Port& lender() { return *(*nodes_)[kLender].port; }

  std::unique_ptr<PortNodes> nodes_;
  std::vector<LeaseId> own_;  // of all memory of each node, for its own transfers
  PortNodes::Joined ann_, bob_;
};

TEST_F(ReachTest, MemoryLentForOnePeerIsOutOfReachOfAnother) {
  Join(Reach::kOwn, Reach::kOwn);
  const Capability for_ann = LendFor(ann_.at_one, kForAnn);
  const auto before = Bytes(kLender, kForAnn), bobs = Bytes(kBob, 0);
  // Bob has the same capability as Ann.
  for (const Kind kind : {Kind::kRead, Kind::kWrite}) {
    EXPECT_EQ(Move(kBob, bob_.at_other, for_ann, kind).code(), absl::StatusCode::kPermissionDenied);
  }
  EXPECT_EQ(Bytes(kLender, kForAnn), before);
  EXPECT_EQ(Bytes(kBob, 0), bobs);
  EXPECT_TRUE((*nodes_)[kLender].downs.empty());
  // Ann reaches it, and Bob what is his.
  EXPECT_TRUE(Move(kAnn, ann_.at_other, for_ann, Kind::kWrite).ok());
  EXPECT_TRUE(std::ranges::equal((*nodes_)[kLender].at(kForAnn, kBytes / 2),
                                 (*nodes_)[kAnn].at(0, kBytes / 2)));
  EXPECT_TRUE(Move(kBob, bob_.at_other, LendFor(bob_.at_one, kForBob), Kind::kRead).ok());
  EXPECT_TRUE(std::ranges::equal((*nodes_)[kLender].at(kForBob, kBytes / 2),
                                 (*nodes_)[kBob].at(0, kBytes / 2)));
}

TEST_F(ReachTest, SharedAndOwnReachDoNotMeet) {
  Join(Reach::kOwn, Reach::kShared);
  const Capability for_ann = LendFor(ann_.at_one, kForAnn);
  const Capability for_all =
      nodes_->Lend(kLender, kMayRead | kMayWrite, kForAll, kBytes).capability;
  EXPECT_EQ(Move(kBob, bob_.at_other, for_ann, Kind::kRead).code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Move(kAnn, ann_.at_other, for_all, Kind::kRead).code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(Move(kAnn, ann_.at_other, for_ann, Kind::kRead).ok());
  EXPECT_TRUE(Move(kBob, bob_.at_other, for_all, Kind::kRead).ok());
}

TEST_F(ReachTest, ProtectedTransfersReachWhatIsLentForTheirPeer) {
  Join(Reach::kOwn, Reach::kOwn);
  const Capability for_ann = LendFor(ann_.at_one, kForAnn);
  EXPECT_TRUE(Move(kAnn, ann_.at_other, for_ann, Kind::kWrite, Checksummed()).ok());
  const auto before = Bytes(kLender, kForAnn);
  EXPECT_FALSE(Move(kBob, bob_.at_other, for_ann, Kind::kWrite, Checksummed()).ok());
  EXPECT_EQ(Bytes(kLender, kForAnn), before);
  EXPECT_TRUE(Move(kAnn, ann_.at_other, for_ann, Kind::kRead, Checksummed()).ok());
}

// Transfers of the lender's own: plain ones take any memory of its; protected ones have a queue in the peer's domain.
TEST_F(ReachTest, OwnTransfersTakeMemoryThatIsLentForThePeer) {
  Join(Reach::kOwn, Reach::kOwn);
  LendFor(ann_.at_one, kForAnn);
  const LeaseId local = (*nodes_)[kLender].lent.back().first;
  const Capability at_ann = nodes_->Lend(kAnn, kMayRead | kMayWrite, 0, kBytes).capability;
  const Capability at_bob = nodes_->Lend(kBob, kMayRead | kMayWrite, 0, kBytes).capability;
  EXPECT_TRUE(Move(kLender, ann_.at_one, local, at_ann, Kind::kWrite, {}).ok());
  EXPECT_TRUE(std::ranges::equal((*nodes_)[kLender].at(kForAnn, kBytes / 2),
                                 (*nodes_)[kAnn].at(0, kBytes / 2)));
  EXPECT_TRUE(Move(kLender, bob_.at_one, local, at_bob, Kind::kRead, {}).ok());
  EXPECT_TRUE(Move(kLender, ann_.at_one, local, at_ann, Kind::kWrite, Checksummed()).ok());
  for (const LeaseId wrong : {own_[kLender], local}) {
    const PeerId peer = wrong == local ? bob_.at_one : ann_.at_one;
    const Capability& remote = wrong == local ? at_bob : at_ann;
    const absl::Status refused = Move(kLender, peer, wrong, remote, Kind::kWrite, Checksummed());
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(refused.message().find("the local memory is not lent for this peer"),
              absl::string_view::npos)
        << refused;
  }
}

TEST_F(ReachTest, MemoryIsLentForPeersOfTheirOwnReachOnly) {
  Join(Reach::kOwn, Reach::kShared);
  const auto as = nodes_->As(kLender);
  const auto memory = (*nodes_)[kLender].at(0, kBytes);
  const absl::Status shared = lender().Lend(memory, kMayRead, 0, bob_.at_one).status();
  EXPECT_EQ(shared.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(shared.message().find("memory can't be lent for this peer alone"),
            absl::string_view::npos)
      << shared;
  const PeerId nobody = {ann_.at_one.index, ann_.at_one.generation + 1};
  EXPECT_EQ(lender().Lend(memory, kMayRead, 0, nobody).status().code(),
            absl::StatusCode::kNotFound);
}

// Its place is used by the next peer; what was lent for it stays out of reach until it is returned.
TEST_F(ReachTest, APeerThatLeavesTakesItsReachWithIt) {
  for (int turn = 0; turn < 3; ++turn) {
    const auto first = JoinTo(kAnn, Reach::kOwn);
    const Capability lent = LendFor(first.at_one, kForAnn);
    const LeaseId lease = (*nodes_)[kLender].lent.back().first;
    EXPECT_TRUE(Move(kAnn, first.at_other, lent, Kind::kWrite).ok());
    Part(kAnn, first);
    const auto next = JoinTo(kBob, Reach::kOwn);
    EXPECT_EQ(Move(kBob, next.at_other, lent, Kind::kRead).code(),
              absl::StatusCode::kPermissionDenied);
    Part(kBob, next);
    (*nodes_)[kLender].returned.clear();
    {
      const auto as = nodes_->As(kLender);
      EXPECT_TRUE(lender().leases().Return(lease).ok());
    }
    EXPECT_TRUE(nodes_->Run([&] { return !(*nodes_)[kLender].returned.empty(); }));
  }
}

// A peer that says what it likes.
struct Liar final : onesided::MoverUser {
  void OnPiece(uint32_t, uint64_t, onesided::PieceEnd) override {}
  void OnWord(uint32_t, std::span<const std::byte>) override {}
  void OnDown(uint32_t, const absl::Status&) override {}
};

TEST_F(ReachTest, ANoticeAboutMemoryOutOfReachEndsItsPeer) {
  ann_ = JoinTo(kAnn, Reach::kOwn);
  LendFor(ann_.at_one, kForAnn);
  const LeaseId lease = (*nodes_)[kLender].lent.back().first;
  std::string ticket;
  PeerId liars_id;
  {
    const auto as = nodes_->As(kLender);
    liars_id = lender().Offer(&ticket, Reach::kOwn).value();
  }
  Liar liar;
  PortNode& node = (*nodes_)[kBob];
  std::unique_ptr<onesided::Mover> mover;
  Ticket answer = LoadTicket(ticket).value();
  {
    const auto as = nodes_->As(kBob);
    mover = onesided::Mover::Create(*node.device, *node.commands, nodes_->random, liar,
                                    {.max_peers = 1})
                .value();
    const onesided::Address to = std::exchange(answer.way, *mover->Open(0));
    ASSERT_TRUE(mover->Connect(0, to, /*last=*/false).ok());
  }
  answer.port = 77;
  {
    const auto as = nodes_->As(kLender);
    ASSERT_TRUE(lender().Complete(liars_id, ToBytes(answer)).ok());
  }
  Notice notice;
  notice.lease = lease.index;
  notice.epoch = lease.epoch;
  notice.data_bytes = 100;
  {
    const auto as = nodes_->As(kBob);
    mover->Say(0, ToBytes(PortWord{.kind = PortWord::Kind::kNotice, .notice = notice}));
  }
  PortNode& at = (*nodes_)[kLender];
  EXPECT_TRUE(nodes_->Run([&] {
    const auto as = nodes_->As(kBob);
    mover->Poll();
    return !at.downs.empty();
  }));
  ASSERT_EQ(at.downs.size(), 1u);
  EXPECT_EQ(at.downs[0].first, liars_id);
  EXPECT_TRUE(at.arrivals.empty());
  const auto as = nodes_->As(kBob);
  node.commands->Finish();
  mover.reset();
}

}  // namespace reach_test
}  // namespace sluice::bulk
