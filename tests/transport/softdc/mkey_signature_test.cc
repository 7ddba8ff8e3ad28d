// SPDX-License-Identifier: Apache-2.0
//
// Facts 131, 136, 140 and 141: messages through keys with layouts and signatures, at either end, and the
// mismatches that mlx5dv_mkey_check reports.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/transport/softdc/mkey_node.h"
#include "transport/softdc/verbs_mkey.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace mkey_signature_test {

constexpr uint32_t kBlock = 512;
constexpr uint32_t kProtected = kBlock + 4;

bool Same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

class MkeySignatureTest : public MkeyPairTest {
 protected:
  void SetUp() override {
    MkeyPairTest::SetUp();
    std::generate(a.slab.begin(), a.slab.end(), [&] { return static_cast<std::byte>(random_()); });
  }
  // The slab of a holds `blocks` protected blocks from `offset` on, made from the bytes it had there.
  std::vector<std::byte> Protect(MkeyNode& node, size_t offset, uint32_t blocks) {
    const auto span = node.bytes(offset, blocks * kBlock);
    const std::vector<std::byte> data(span.begin(), span.end());
    std::ranges::copy(WithCrc(data), node.at(offset));
    return data;
  }

  std::mt19937 random_{137};
};

TEST_F(MkeySignatureTest, OldBuildersMakeTheSameLayouts) {
  mlx5dv_mkey* list = a.CreateKey(false);
  mlx5dv_mkey* strided = a.CreateKey(false);
  ibv_sge pieces[] = {a.Piece(0, 8), a.Piece(64, 8)};
  const uint64_t slab = reinterpret_cast<uint64_t>(a.at(0));
  mlx5dv_mr_interleaved data[] = {{slab, 8, 2, a.mr->lkey}, {slab + 64, 8, 2, a.mr->lkey}};
  Start();
  mlx5dv_wr_mr_list(a.dv, list, IBV_ACCESS_LOCAL_WRITE, 2, pieces);
  mlx5dv_wr_mr_interleaved(a.dv, strided, IBV_ACCESS_LOCAL_WRITE, 3, 2, data);
  ASSERT_EQ(Finish(), 0);
  EXPECT_EQ(a.Poll().opcode, IBV_WC_DRIVER1);
  EXPECT_EQ(a.Poll().opcode, IBV_WC_DRIVER1);
  const MkeyAddress to = b.Address();
  ASSERT_EQ(a.Write(Through(list, 4, 8), to.rkey, to.slab_address, 1), 0);
  ASSERT_EQ(a.Write(Through(strided, 16, 16), to.rkey, to.slab_address + 100, 2), 0);
  EXPECT_EQ(a.Poll().status, IBV_WC_SUCCESS);
  EXPECT_EQ(a.Poll().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(Same(b.bytes(0, 4), a.bytes(4, 4)));
  EXPECT_TRUE(Same(b.bytes(4, 4), a.bytes(64, 4)));
  EXPECT_TRUE(Same(b.bytes(100, 8), a.bytes(10, 8)));
  EXPECT_TRUE(Same(b.bytes(108, 8), a.bytes(74, 8)));
}

TEST_F(MkeySignatureTest, KeyAndPlainMemoryMixInOneMessage) {
  mlx5dv_mkey* key = a.CreateKey(false);
  ASSERT_EQ(a.Configure(key, {a.Piece(0, 8)}, {}), 0);
  const ibv_sge parts[] = {a.Piece(32, 4), Through(key, 2, 6), a.Piece(40, 4)};
  const MkeyAddress to = b.Address();
  ibv_wr_start(a.ex);
  a.ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(a.ex, to.rkey, to.slab_address);
  ibv_wr_set_sge_list(a.ex, 3, parts);
  ASSERT_EQ(ibv_wr_complete(a.ex), 0);
  EXPECT_EQ(a.Poll().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(Same(b.bytes(0, 4), a.bytes(32, 4)));
  EXPECT_TRUE(Same(b.bytes(4, 6), a.bytes(2, 6)));
  EXPECT_TRUE(Same(b.bytes(10, 4), a.bytes(40, 4)));
}

TEST_F(MkeySignatureTest, LocalUseThatTheKeyDoesNotCoverIsAProtectionError) {
  enum Case { kFree, kTooLong, kReadOnly, kInvalidated, kBadPiece };
  for (const Case which : {kFree, kTooLong, kReadOnly, kInvalidated, kBadPiece}) {
    SCOPED_TRACE(which);
    MkeyNode node, peer;
    MkeyNode::Connect(node, peer);
    mlx5dv_mkey* key = node.CreateKey(false);
    ibv_sge piece = node.Piece(0, 64);
    if (which == kBadPiece) piece.lkey ^= 0x100;
    if (which != kFree) {
      ASSERT_EQ(node.Configure(key, {piece}, {}, which == kReadOnly ? 0 : IBV_ACCESS_LOCAL_WRITE),
                0);
    }
    if (which == kInvalidated) {
      ibv_wr_start(node.ex);
      node.ex->wr_flags = IBV_SEND_SIGNALED;
      ibv_wr_local_inv(node.ex, key->rkey);
      ASSERT_EQ(ibv_wr_complete(node.ex), 0);
      const ibv_wc wc = node.Poll();
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      EXPECT_EQ(wc.opcode, IBV_WC_LOCAL_INV);
    }
    const MkeyAddress from = peer.Address();
    ASSERT_EQ(
        node.Read(Through(key, which == kTooLong ? 1 : 0, 64), from.rkey, from.slab_address, 1), 0);
    EXPECT_EQ(node.Poll().status, IBV_WC_LOC_PROT_ERR);
  }
}

// Examples 1.1, 2 and 2.1, at the far end.
TEST_F(MkeySignatureTest, FarKeyInsertsAndStripsForReadersAndWriters) {
  const CrcSignature in_memory(false), on_wire(true);
  mlx5dv_mkey* plain_on_wire = b.CreateKey();
  mlx5dv_mkey* protected_on_wire = b.CreateKey();
  ASSERT_EQ(b.Configure(plain_on_wire, {b.Piece(0, 2 * kProtected)}, in_memory.attr), 0);
  ASSERT_EQ(b.Configure(protected_on_wire, {b.Piece(8192, 2 * kBlock)}, on_wire.attr), 0);
  const std::vector<std::byte> data(a.at(0), a.at(2 * kBlock));
  const auto with_crc = WithCrc(data);

  ASSERT_EQ(a.Write(a.Piece(0, 2 * kBlock), plain_on_wire->rkey, 0, 1), 0);
  EXPECT_EQ(a.Poll().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(Same(b.bytes(0, 2 * kProtected), with_crc));

  std::ranges::copy(with_crc, a.at(4096));
  ASSERT_EQ(a.Write(a.Piece(4096, 2 * kProtected), protected_on_wire->rkey, 0, 2), 0);
  EXPECT_EQ(a.Poll().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(Same(b.bytes(8192, 2 * kBlock), data));

  ASSERT_EQ(a.Read(a.Piece(16384, 2 * kProtected), protected_on_wire->rkey, 0, 3), 0);
  EXPECT_EQ(a.Poll().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(Same(a.bytes(16384, 2 * kProtected), with_crc));
  EXPECT_TRUE(b.Quiet());
  EXPECT_EQ(b.Check(plain_on_wire).err_type, MLX5DV_MKEY_NO_ERR);
  EXPECT_EQ(b.Check(protected_on_wire).err_type, MLX5DV_MKEY_NO_ERR);
}

TEST_F(MkeySignatureTest, ReadIntoAKeyInsertsAndChecks) {
  const CrcSignature in_memory(false), on_wire(true);
  mlx5dv_mkey* inserting = a.CreateKey();
  mlx5dv_mkey* stripping = a.CreateKey();
  ASSERT_EQ(a.Configure(inserting, {a.Piece(0, kProtected)}, in_memory.attr), 0);
  ASSERT_EQ(a.Configure(stripping, {a.Piece(2048, kBlock)}, on_wire.attr), 0);
  std::ranges::copy(a.bytes(4096, kProtected), b.at(0));
  const auto data = Protect(b, 0, 1);
  const MkeyAddress from = b.Address();
  ASSERT_EQ(a.Read(Through(inserting, 0, kBlock), from.rkey, from.slab_address, 1), 0);
  ASSERT_EQ(a.Read(Through(stripping, 0, kProtected), from.rkey, from.slab_address, 2), 0);
  const ibv_wc wc = a.Poll();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, kBlock);
  EXPECT_EQ(a.Poll().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(Same(a.bytes(0, kProtected), b.bytes(0, kProtected)));
  EXPECT_TRUE(Same(a.bytes(2048, kBlock), data));
  EXPECT_EQ(a.Check(stripping).err_type, MLX5DV_MKEY_NO_ERR);
}

TEST_F(MkeySignatureTest, ReceiveBufferMayBeAKeyWithASignature) {
  const CrcSignature on_wire(true);
  mlx5dv_mkey* key = b.CreateKey();
  ASSERT_EQ(b.Configure(key, {b.Piece(0, 2 * kBlock)}, on_wire.attr), 0);
  const auto data = Protect(a, 0, 2);
  *a.at(kProtected + 5) ^= std::byte{4};
  b.Receive(Through(key, 0, 2 * kProtected), 1);
  ASSERT_EQ(a.Send(a.Piece(0, 2 * kProtected), 1), 0);
  EXPECT_EQ(a.Poll().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.PollReceive().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(Same(b.bytes(0, kBlock), std::span(data).first(kBlock)));
  const mlx5dv_mkey_err error = b.Check(key);
  EXPECT_EQ(error.err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD);
  EXPECT_EQ(error.err.sig.offset, kProtected);
}

TEST_F(MkeySignatureTest, SignatureStaysUntilItIsReset) {
  const CrcSignature on_wire(true);
  mlx5dv_mkey* key = a.CreateKey();
  ASSERT_EQ(a.Configure(key, {a.Piece(0, kBlock)}, on_wire.attr), 0);
  ASSERT_EQ(a.Configure(key, {a.Piece(1024, kBlock)}, {}), 0);
  const MkeyAddress to = b.Address();
  ASSERT_EQ(a.Write(Through(key, 0, kProtected), to.rkey, to.slab_address, 1), 0);
  EXPECT_EQ(a.Poll().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(Same(b.bytes(0, kProtected), WithCrc(a.bytes(1024, kBlock))));

  Start();
  Configure(key, 0, MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR);
  ASSERT_EQ(Finish(), 0);
  EXPECT_EQ(a.Poll().status, IBV_WC_SUCCESS);
  ASSERT_EQ(a.Write(Through(key, 0, kBlock), to.rkey, to.slab_address + 4096, 1), 0);
  EXPECT_EQ(a.Poll().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(Same(b.bytes(4096, kBlock), a.bytes(1024, kBlock)));
}

TEST_F(MkeySignatureTest, MismatchDoesNotFailTheTransferAndIsSeenAfterPolling) {
  const CrcSignature signature(false);
  mlx5dv_mkey* key = a.CreateKey();
  Protect(a, 0, 2);
  *a.at(kProtected + 100) ^= std::byte{1};
  ASSERT_EQ(a.Configure(key, {a.Piece(0, 2 * kProtected)}, signature.attr), 0);
  const MkeyAddress to = b.Address();
  // The way there is known once a first message has gone it.
  ASSERT_EQ(a.Write(a.Piece(0, 1), to.rkey, to.slab_address, 0), 0);
  EXPECT_EQ(a.Poll().status, IBV_WC_SUCCESS);
  // Unsignalled: nothing will come out of the CQ.
  ASSERT_EQ(a.Write(Through(key, 0, 2 * kBlock), to.rkey, to.slab_address, 1, 0), 0);
  EXPECT_EQ(a.Check(key).err_type, MLX5DV_MKEY_NO_ERR);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(a.receive_cq, 1, &wc), 0);
  EXPECT_EQ(a.Check(key).err_type, MLX5DV_MKEY_NO_ERR) << "another CQ was polled";
  EXPECT_EQ(ibv_poll_cq(a.send_cq, 1, &wc), 0);
  const mlx5dv_mkey_err error = a.Check(key);
  EXPECT_EQ(error.err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD);
  EXPECT_EQ(error.err.sig.offset, kProtected);
  EXPECT_NE(error.err.sig.actual_value, error.err.sig.expected_value);
  EXPECT_EQ(a.Check(key).err_type, MLX5DV_MKEY_NO_ERR) << "reading clears";
  EXPECT_EQ(a.State(), IBV_QPS_RTS);
  // What was sent is what stood there.
  EXPECT_TRUE(Same(b.bytes(kBlock, kBlock), a.bytes(kProtected, kBlock)));
}

TEST_F(MkeySignatureTest, FarMismatchIsSeenByTheOwnerWhoPollsTheReceiveCq) {
  const CrcSignature on_wire(true);
  mlx5dv_mkey* key = b.CreateKey();
  ASSERT_EQ(b.Configure(key, {b.Piece(0, kBlock)}, on_wire.attr), 0);
  ASSERT_EQ(a.Write(a.Piece(0, kProtected), key->rkey, 0, 1), 0);
  EXPECT_EQ(a.Poll().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.Check(key).err_type, MLX5DV_MKEY_NO_ERR);
  EXPECT_TRUE(b.Quiet());
  EXPECT_EQ(b.Check(key).err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD);
}

// One wrong bit anywhere in data or protection, either way through either end's key.
TEST_F(MkeySignatureTest, OneWrongBitAnywhereIsReportedForItsBlock) {
  constexpr uint32_t kBlocks = 5;
  const CrcSignature in_memory(false), on_wire(true);
  mlx5dv_mkey* near_key = a.CreateKey();
  mlx5dv_mkey* far_key = b.CreateKey();
  const MkeyAddress to = b.Address();
  for (int round = 0; round < 60; ++round) {
    std::ranges::generate(a.bytes(0, kBlocks * kProtected),
                          [&] { return static_cast<std::byte>(random_()); });
    Protect(a, 0, kBlocks);
    const size_t spoilt = random_() % (kBlocks * kProtected);
    *a.at(spoilt) ^= std::byte{1} << (random_() % 8);
    const uint64_t block_offset = spoilt / kProtected * kProtected;
    mlx5dv_mkey_err error{};
    if (round % 2 == 0) {
      ASSERT_EQ(a.Configure(near_key, {a.Piece(0, kBlocks * kProtected)}, in_memory.attr), 0);
      ASSERT_EQ(a.Write(Through(near_key, 0, kBlocks * kBlock), to.rkey, to.slab_address, 1), 0);
      EXPECT_EQ(a.Poll().status, IBV_WC_SUCCESS);
      error = a.Check(near_key);
    } else {
      ASSERT_EQ(b.Configure(far_key, {b.Piece(0, kBlocks * kBlock)}, on_wire.attr), 0);
      ASSERT_EQ(a.Write(a.Piece(0, kBlocks * kProtected), far_key->rkey, 0, 1), 0);
      EXPECT_EQ(a.Poll().status, IBV_WC_SUCCESS);
      EXPECT_TRUE(b.Quiet());
      error = b.Check(far_key);
    }
    EXPECT_EQ(error.err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD) << spoilt;
    EXPECT_EQ(error.err.sig.offset, block_offset) << spoilt;
  }
}

}  // namespace mkey_signature_test
}  // namespace sluice::softdc
