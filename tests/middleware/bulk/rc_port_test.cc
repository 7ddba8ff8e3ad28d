// SPDX-License-Identifier: Apache-2.0
//
// Ports on devices without DC and without mlx5dv, as those of other vendors.
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/middleware/bulk/port_nodes.h"

namespace sluice::bulk {
namespace rc_port_test {

using integrity::Guard;
using integrity::Protection;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Kind = integrity::Transfer::Kind;

constexpr int64_t kMs = 1'000'000;
constexpr uint64_t kBytes = 40'000;
constexpr Protection kDif{
    .memory = Guard::kT10DifCrc, .wire = Guard::kT10DifCrc, .block_bytes = 512};

const verbs::VerbsApi& WithoutMlx5() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = PortNodes::Simulation::Verbs();
    api.dv_is_supported = [](ibv_device*) { return false; };
    api.dv_create_qp = [](ibv_context*, ibv_qp_init_attr_ex*, mlx5dv_qp_init_attr*) -> ibv_qp* {
      ADD_FAILURE() << "mlx5dv_create_qp";
      return nullptr;
    };
    return api;
  }();
  return table;
}

// Attributes with which the last queue pair went to RTR and RTS.
ibv_qp_attr g_rtr, g_rts;

const verbs::VerbsApi& Noting() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = WithoutMlx5();
    api.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
      if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) g_rtr = *attr;
      if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) g_rts = *attr;
      return WithoutMlx5().modify_qp(qp, attr, mask);
    };
    return api;
  }();
  return table;
}

class RcPortTest : public testing::Test {
 protected:
  void Make(uint32_t nodes, int64_t join_ns = 10'000 * kMs) {
    PortNodesOptions options;
    options.port.join_ns = join_ns;
    options.port.patience_ns = 20 * kMs;
    options.nodes = nodes;
    options.port.piece_bytes = 4096;
    options.table = &WithoutMlx5();
    nodes_ = std::make_unique<PortNodes>(options);
    for (uint32_t i = 0; i < nodes; ++i) {
      own_.push_back(nodes_->Lend(i, 0).id);
      lent_.push_back(nodes_->Lend(i, kMayRead | kMayWrite));
    }
    Fill(nodes_->random, (*nodes_)[0].memory);
  }
  TransferId Begin(uint32_t from, PeerId peer, uint32_t to, uint64_t tag, Kind kind) {
    TransferRequest request;
    request.kind = kind;
    request.local = own_[from];
    request.local_offset = request.remote_offset = tag * kBytes;
    request.remote = lent_[to].capability;
    request.data_bytes = kBytes;
    request.tag = tag;
    return Begin(from, peer, request);
  }
  TransferId Begin(uint32_t from, PeerId peer, const TransferRequest& request) {
    auto transfer = nodes_->Start(from, peer, request);
    EXPECT_TRUE(transfer.ok()) << transfer.status();
    return transfer.value_or(0);
  }
  absl::Status EndOf(uint32_t node, TransferId transfer) {
    auto& ended = (*nodes_)[node].ended;
    if (!nodes_->Run([&] { return ended.contains(transfer); })) {
      return absl::DeadlineExceededError("it does not end");
    }
    return ended[transfer];
  }
  bool SameBytes(uint32_t one, uint32_t other, uint64_t tag) {
    return std::ranges::equal((*nodes_)[one].at(tag * kBytes, kBytes),
                              (*nodes_)[other].at(tag * kBytes, kBytes));
  }

  std::unique_ptr<PortNodes> nodes_;
  std::vector<LeaseId> own_;
  std::vector<PortNodes::Lent> lent_;
};

TEST_F(RcPortTest, TransfersGoBothWays) {
  Make(3);
  const auto joined = nodes_->Join(0, 1);
  const auto second = nodes_->Join(0, 2);
  EXPECT_TRUE(EndOf(0, Begin(0, joined.at_one, 1, 0, Kind::kWrite)).ok());
  EXPECT_TRUE(SameBytes(0, 1, 0));
  EXPECT_TRUE(EndOf(1, Begin(1, joined.at_other, 0, 1, Kind::kRead)).ok());
  EXPECT_TRUE(SameBytes(0, 1, 1));
  EXPECT_TRUE(EndOf(0, Begin(0, second.at_one, 2, 2, Kind::kWrite)).ok());
  EXPECT_TRUE(SameBytes(0, 2, 2));
  EXPECT_FALSE(SameBytes(1, 2, 2));
  ASSERT_TRUE(nodes_->Run([&] { return !(*nodes_)[1].arrivals.empty(); }));
  EXPECT_EQ((*nodes_)[1].arrivals[0].data_bytes, kBytes);
  EXPECT_THAT((*nodes_)[0].downs, IsEmpty());
}

TEST_F(RcPortTest, BothSidesStartAtOnceAfterTheyJoined) {
  Make(2);
  const auto joined = nodes_->Join(0, 1);
  std::vector<TransferId> up, down;
  for (uint64_t tag = 0; tag < 10; ++tag) {
    up.push_back(Begin(0, joined.at_one, 1, tag, Kind::kWrite));
    down.push_back(Begin(1, joined.at_other, 0, 10 + tag, Kind::kRead));
  }
  for (const TransferId id : up) EXPECT_TRUE(EndOf(0, id).ok());
  for (const TransferId id : down) EXPECT_TRUE(EndOf(1, id).ok());
  for (uint64_t tag = 0; tag < 20; ++tag) EXPECT_TRUE(SameBytes(0, 1, tag)) << tag;
}

TEST_F(RcPortTest, TransferWaitsUntilTheOtherSideHasCompleted) {
  Make(2);
  std::string ticket, answer;
  PeerId at_one, at_other;
  {
    const auto as = nodes_->As(0);
    at_one = *(*nodes_)[0].port->Offer(&ticket);
  }
  {
    const auto as = nodes_->As(1);
    at_other = *(*nodes_)[1].port->Accept(ticket, &answer);
  }
  const TransferId waiting = Begin(1, at_other, 0, 3, Kind::kRead);
  const int64_t until_ns = nodes_->simulation->NowNs() + 50 * kMs;
  nodes_->Run([&] { return nodes_->simulation->NowNs() >= until_ns; });
  EXPECT_THAT((*nodes_)[1].ended, IsEmpty());
  {
    const auto as = nodes_->As(0);
    ASSERT_TRUE((*nodes_)[0].port->Complete(at_one, answer).ok());
  }
  EXPECT_TRUE(EndOf(1, waiting).ok());
  EXPECT_TRUE(SameBytes(0, 1, 3));
}

// No request is posted that could fail.
TEST_F(RcPortTest, SideThatNeverJoinsIsGivenUp) {
  for (const bool has_deadline : {false, true}) {
    own_.clear();
    lent_.clear();
    Make(2, /*join_ns=*/has_deadline ? 10'000 * kMs : 50 * kMs);
    std::string ticket, answer;
    {
      const auto as = nodes_->As(0);
      ASSERT_TRUE((*nodes_)[0].port->Offer(&ticket).ok());
    }
    PeerId peer;
    {
      const auto as = nodes_->As(1);
      peer = *(*nodes_)[1].port->Accept(ticket, &answer);
    }
    const int64_t start_ns = nodes_->simulation->NowNs();
    TransferRequest request;
    request.local = own_[1];
    request.remote = lent_[0].capability;
    request.data_bytes = kBytes;
    if (has_deadline) request.deadline_ns = start_ns + 30 * kMs;
    const absl::Status end = EndOf(1, Begin(1, peer, request));
    EXPECT_EQ(end.code(),
              has_deadline ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kUnavailable);
    EXPECT_GE(nodes_->simulation->NowNs() - start_ns, 50 * kMs);
    ASSERT_THAT((*nodes_)[1].downs, SizeIs(1));
    EXPECT_THAT(std::string((*nodes_)[1].downs[0].second.message()),
                HasSubstr("the other side has not joined"));
  }
}

// With checksums by the CPU, over a queue pair of ibv_create_qp_ex.
TEST_F(RcPortTest, ProtectedTransfersAreChecked) {
  Make(2);
  const auto joined = nodes_->Join(0, 1);
  std::vector<std::byte> data(4096);
  Fill(nodes_->random, data);
  Protect(kDif, data, (*nodes_)[1].at(0, 8 * 520));
  TransferRequest request;
  request.kind = Kind::kRead;
  request.local = own_[0];
  request.remote = lent_[1].capability;
  request.data_bytes = 4096;
  request.protection = kDif;
  EXPECT_TRUE(EndOf(0, Begin(0, joined.at_one, request)).ok());
  EXPECT_TRUE(std::ranges::equal((*nodes_)[0].at(0, 8 * 520), (*nodes_)[1].at(0, 8 * 520)));
  (*nodes_)[1].memory[600] ^= std::byte{1};
  EXPECT_EQ(EndOf(0, Begin(0, joined.at_one, request)).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT((*nodes_)[0].downs, IsEmpty());
}

// The key is no longer valid at the lender. The queue pair ends with the transfer; joined again, the ports go on.
TEST_F(RcPortTest, RefusedTransferEndsThePeer) {
  Make(3);
  const auto joined = nodes_->Join(0, 1);
  const auto second = nodes_->Join(0, 2);
  TransferRequest request;
  request.local = own_[0];
  request.remote = lent_[1].capability;
  request.remote.key ^= 0x7700;
  request.data_bytes = kBytes;
  EXPECT_EQ(EndOf(0, Begin(0, joined.at_one, request)).code(), absl::StatusCode::kPermissionDenied);
  ASSERT_TRUE(nodes_->Run(
      [&] { return (*nodes_)[0].downs.size() == 1 && (*nodes_)[1].downs.size() == 1; }));
  EXPECT_THAT(std::string((*nodes_)[1].downs[0].second.message()),
              HasSubstr("a request of the peer was refused"));
  EXPECT_TRUE(EndOf(0, Begin(0, second.at_one, 2, 2, Kind::kWrite)).ok());
  const auto again = nodes_->Join(1, 0);
  EXPECT_TRUE(EndOf(0, Begin(0, again.at_other, 1, 4, Kind::kWrite)).ok());
  EXPECT_THAT((*nodes_)[0].downs, SizeIs(1));
}

// In each direction, no more than the side answers that answers fewer.
TEST_F(RcPortTest, ReadsInFlightAreThoseOfBothSides) {
  PortNodesOptions options;
  options.table = &Noting();
  nodes_ = std::make_unique<PortNodes>(options);
  for (const uint8_t reads : {uint8_t{2}, uint8_t{255}}) {
    std::string offer, answer;
    {
      const auto as = nodes_->As(0);
      ASSERT_TRUE((*nodes_)[0].port->Offer(&offer).ok());
    }
    Ticket ticket = *LoadTicket(offer);
    const uint8_t own = ticket.way.reads;
    ASSERT_GT(own, 2);
    ticket.way.reads = reads;
    const auto as = nodes_->As(1);
    ASSERT_TRUE((*nodes_)[1].port->Accept(ToBytes(ticket), &answer).ok());
    EXPECT_EQ(g_rtr.max_dest_rd_atomic, std::min(reads, own));
    EXPECT_EQ(g_rts.max_rd_atomic, std::min(reads, own));
  }
}

TEST_F(RcPortTest, MemoryOfOnePeerAloneIsRefused) {
  Make(1);
  std::string ticket;
  const auto as = nodes_->As(0);
  const auto peer = (*nodes_)[0].port->Offer(&ticket, Reach::kOwn);
  EXPECT_EQ(peer.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(peer.status().message()), HasSubstr("Reach::kShared"));
  EXPECT_TRUE((*nodes_)[0].port->Offer(&ticket).ok());
}

}  // namespace rc_port_test
}  // namespace sluice::bulk
