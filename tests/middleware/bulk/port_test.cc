// SPDX-License-Identifier: Apache-2.0
//
// Transfers as they should be, in every mode and on both fabrics.
#include "middleware/bulk/port.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/middleware/bulk/port_nodes.h"

namespace sluice::bulk {
namespace port_test {

using integrity::Guard;
using integrity::MismatchOf;
using integrity::Protection;
using testing::HasSubstr;
using Kind = integrity::Transfer::Kind;

constexpr Protection kDif{.memory = Guard::kT10DifCrc,
                          .wire = Guard::kT10DifCrc,
                          .block_bytes = 512,
                          .application_tag = 7,
                          .reference_tag = 1000};

struct Variant {
  const char* name;
  bool simulated, offload, pipelining;
};

PortNodesOptions OptionsOf(const Variant& variant) {
  PortNodesOptions options;
  options.simulated = variant.simulated;
  options.port.offload = variant.offload;
  options.port.pipelining = variant.pipelining;
  options.port.piece_bytes = 4096;
  return options;
}

class PortTest : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    nodes_ = std::make_unique<PortNodes>(OptionsOf(GetParam()));
    joined_ = nodes_->Join(0, 1);
    own_ = nodes_->Lend(0, 0).id;
    lent_ = nodes_->Lend(1, kMayRead | kMayWrite);
  }
  TransferRequest Request(Kind kind, uint64_t data_bytes, const Protection& protection = {}) {
    TransferRequest request;
    request.kind = kind;
    request.local = own_;
    request.remote = lent_.capability;
    request.data_bytes = data_bytes;
    request.protection = protection;
    return request;
  }
  absl::Status Move(const TransferRequest& request) {
    auto transfer = nodes_->Start(0, joined_.at_one, request);
    if (!transfer.ok()) return transfer.status();
    const size_t before = there().arrivals.size();
    EXPECT_TRUE(nodes_->Run(
        [&] { return here().ended.contains(*transfer) && there().arrivals.size() > before; }));
    return here().ended[*transfer];
  }
  // Data with their signatures.
  std::vector<std::byte> Blocks(const Protection& protection, size_t data_bytes) {
    std::vector<std::byte> data(data_bytes);
    Fill(nodes_->random, data);
    std::vector<std::byte> bytes(MemoryBytes(protection, data_bytes));
    Protect(protection, data, bytes);
    return bytes;
  }
  PortNode& here() { return (*nodes_)[0]; }
  PortNode& there() { return (*nodes_)[1]; }

  std::unique_ptr<PortNodes> nodes_;
  PortNodes::Joined joined_;
  LeaseId own_;
  PortNodes::Lent lent_;
};

INSTANTIATE_TEST_SUITE_P(Modes, PortTest,
                         testing::Values(Variant{"PipelinedSim", true, true, true},
                                         Variant{"SerialSim", true, true, false},
                                         Variant{"SoftwareSim", true, false, false},
                                         Variant{"PipelinedShm", false, true, true},
                                         Variant{"SerialShm", false, true, false},
                                         Variant{"SoftwareShm", false, false, false}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(PortTest, PlainBytesOfAnyLengthAndPlaceGoBothWays) {
  uint64_t tag = 0;
  for (const uint64_t size : {1, 100, 4096, 4097, 50'001}) {
    Fill(nodes_->random, here().at(0, kMemoryBytes));
    TransferRequest request = Request(Kind::kWrite, size);
    request.local_offset = 33;
    request.remote_offset = 77;
    request.tag = ++tag;
    ASSERT_TRUE(Move(request).ok());
    EXPECT_TRUE(std::ranges::equal(here().at(33, size), there().at(77, size)));
    EXPECT_EQ(there().arrivals.back().tag, tag);
    EXPECT_EQ(there().arrivals.back().data_bytes, size);
    EXPECT_TRUE(there().arrivals.back().status.ok());
    EXPECT_EQ(there().arrivals.back().lease, lent_.id);

    request.kind = Kind::kRead;
    request.local_offset = 200'000;
    request.tag = ++tag;
    ASSERT_TRUE(Move(request).ok());
    EXPECT_TRUE(std::ranges::equal(here().at(200'000, size), there().at(77, size)));
    EXPECT_EQ(there().arrivals.back().kind, Kind::kRead);
  }
}

TEST_P(PortTest, ProtectedBlocksOfManyPiecesArriveWithTheirSignatures) {
  const auto blocks = Blocks(kDif, 100 * 512);
  std::ranges::copy(blocks, here().memory.begin());
  ASSERT_TRUE(Move(Request(Kind::kWrite, 100 * 512, kDif)).ok());
  EXPECT_TRUE(std::ranges::equal(there().at(0, blocks.size()), blocks));
  EXPECT_EQ(there().arrivals.back().data_bytes, 100 * 512u);
  // Back, stripped; from the fortieth block on.
  Protection strip = kDif;
  strip.memory = Guard::kNone;
  strip.reference_tag += 40;
  TransferRequest request = Request(Kind::kRead, 60 * 512, strip);
  request.remote_offset = 40 * 520;
  request.local_offset = 100 * 512;
  ASSERT_TRUE(Move(request).ok());
  for (size_t block = 0; block < 60; ++block) {
    ASSERT_TRUE(std::ranges::equal(here().at((100 + block) * 512, 512),
                                   std::span(blocks).subspan((40 + block) * 520, 512)));
  }
}

// Whichever piece it is in, both ends name the block of the whole transfer.
TEST_P(PortTest, WrongBlockIsNamedAtBothEnds) {
  for (const uint32_t wrong : {0u, 7u, 8u, 41u, 99u}) {
    for (const Kind kind : {Kind::kWrite, Kind::kRead}) {
      const auto blocks = Blocks(kDif, 100 * 512);
      auto& from = kind == Kind::kWrite ? here() : there();
      std::ranges::copy(blocks, from.memory.begin());
      from.memory[wrong * 520 + 514] ^= std::byte{0x40};  // the application tag
      const absl::Status status = Move(Request(kind, 100 * 512, kDif));
      const auto mismatch = MismatchOf(status);
      ASSERT_TRUE(mismatch.has_value()) << status;
      EXPECT_EQ(*mismatch, (integrity::Mismatch{.field = integrity::Field::kApplicationTag,
                                                .end = integrity::End::kInitiator,
                                                .block = wrong,
                                                .expected = 0x4007,
                                                .actual = 7}));
      EXPECT_EQ(MismatchOf(there().arrivals.back().status), mismatch);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    }
  }
  // The way is as good as before.
  std::ranges::copy(Blocks(kDif, 512), here().memory.begin());
  EXPECT_TRUE(Move(Request(Kind::kWrite, 512, kDif)).ok());
  EXPECT_EQ(there().downs.size(), 0u);
}

// Many at once, some of them wrong: the lender hears of each, in the order in which they began.
TEST_P(PortTest, ManyTransfersArriveInTheirOrderWhicheverAreWrong) {
  constexpr uint64_t kTransfers = 40;
  constexpr size_t kStride = 20 * 520;
  std::vector<TransferId> ids;
  for (uint64_t i = 0; i < kTransfers; ++i) {
    const auto blocks = Blocks(kDif, 20 * 512);
    std::ranges::copy(blocks, here().at(i * kStride, kStride).begin());
    if (i % 3 == 1) here().memory[i * kStride + 600 * (i % 5)] ^= std::byte{1};
    TransferRequest request = Request(Kind::kWrite, 20 * 512, kDif);
    request.local_offset = request.remote_offset = i * kStride;
    request.tag = i;
    auto transfer = nodes_->Start(0, joined_.at_one, request);
    ASSERT_TRUE(transfer.ok()) << transfer.status();
    ids.push_back(*transfer);
  }
  ASSERT_TRUE(nodes_->Run(
      [&] { return here().ended.size() == kTransfers && there().arrivals.size() == kTransfers; }));
  for (uint64_t i = 0; i < kTransfers; ++i) {
    EXPECT_EQ(here().ended[ids[i]].ok(), i % 3 != 1) << here().ended[ids[i]];
    EXPECT_EQ(there().arrivals[i].tag, i);
    EXPECT_EQ(there().arrivals[i].status.code(),
              i % 3 == 1 ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk);
  }
}

// Each piece takes one of the lender's reply buffers, of which there are fewer than that.
TEST_P(PortTest, LenderThatIsKeptFromItsCpuIsNotTakenForDead) {
  if (!GetParam().simulated) GTEST_SKIP() << "needs a virtual clock";
  constexpr uint64_t kTransfers = 60;
  nodes_->dead = {false, true};
  for (uint64_t i = 0; i < kTransfers; ++i) {
    ASSERT_TRUE(nodes_->Start(0, joined_.at_one, Request(Kind::kWrite, 20 * 4096)).ok());
  }
  const int64_t until_ns = nodes_->simulation->NowNs() + 50'000'000;
  ASSERT_TRUE(nodes_->Run([&] { return nodes_->simulation->NowNs() > until_ns; }));
  EXPECT_LT(here().ended.size(), kTransfers);
  nodes_->dead.clear();
  ASSERT_TRUE(nodes_->Run(
      [&] { return here().ended.size() == kTransfers && there().arrivals.size() == kTransfers; }));
  for (const auto& [id, status] : here().ended) EXPECT_TRUE(status.ok()) << status;
}

TEST_P(PortTest, PiecesOfAWriteDoNotCostARoundTripEach) {
  if (!GetParam().simulated) GTEST_SKIP() << "needs a virtual clock";
  constexpr int64_t kPieces = 200;
  constexpr int64_t kRoundTripNs = 2'000;
  for (const Protection& protection : {Protection(), kDif}) {
    std::ranges::copy(Blocks(protection, kPieces * 4096), here().memory.begin());
    const int64_t start_ns = nodes_->simulation->NowNs();
    ASSERT_TRUE(Move(Request(Kind::kWrite, kPieces * 4096, protection)).ok());
    EXPECT_LT(nodes_->simulation->NowNs() - start_ns, kPieces * kRoundTripNs)
        << ToString(protection);
  }
}

TEST_P(PortTest, ProgressCountsWhatHasMoved) {
  TransferRequest request = Request(Kind::kWrite, 600'000);
  auto transfer = nodes_->Start(0, joined_.at_one, request);
  ASSERT_TRUE(transfer.ok());
  std::vector<uint64_t> seen = {here().port->Progress(*transfer)};
  ASSERT_TRUE(nodes_->Run([&] {
    const uint64_t now = here().port->Progress(*transfer);
    if (now != seen.back() && now != 0) seen.push_back(now);
    return here().ended.contains(*transfer);
  }));
  EXPECT_GT(seen.size(), 2u);
  EXPECT_TRUE(std::ranges::is_sorted(seen));
  EXPECT_EQ(here().port->Progress(*transfer), 0u);
}

}  // namespace port_test
}  // namespace sluice::bulk
