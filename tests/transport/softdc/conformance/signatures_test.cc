// SPDX-License-Identifier: Apache-2.0
//
// Indirect keys: layouts, signatures at either end, and mismatches.
#include <string>
#include <vector>

#include "tests/transport/softdc/conformance/signature_test.h"

namespace sluice::conformance {
namespace {

class Signatures : public SignatureTest {};
ON_EVERY_DEVICE(Signatures);

TEST_P(Signatures, KeyIsWhatTheManualSays) {
  PROVES(136);
  NEEDS_SIGNATURES();
  Connect();
  mlx5dv_mkey_init_attr init{
      .pd = a().pd, .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, .max_entries = 5};
  mlx5dv_mkey* key = api().dv_create_mkey(&init);
  ASSERT_NE(key, nullptr);
  EXPECT_EQ(init.max_entries, 8);
  EXPECT_EQ(key->lkey, key->rkey);
  EXPECT_EQ(key->lkey & 0xff, 0u);
  EXPECT_EQ(api().dv_destroy_mkey(key), 0);
  constexpr uint32_t kUnknown = uint32_t{1} << 20;
  for (const uint32_t flags : {uint32_t{0}, kUnknown, kUnknown | init.create_flags}) {
    init.create_flags = flags;
    errno = 0;
    EXPECT_EQ(api().dv_create_mkey(&init), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  // It is free: nobody can use it.
  ASSERT_EQ(Post(a(), IBV_WR_SEND, Through(Key(a()), 0, 8), 1), 0);
  EXPECT_EQ(a().AwaitSend().status, IBV_WC_LOC_PROT_ERR);
}

TEST_P(Signatures, ListIsGatheredAtOneEndAndScatteredAtTheOther) {
  PROVES(136);
  NEEDS_SIGNATURES();
  Connect();
  mlx5dv_mkey* from = Key(a(), false);
  mlx5dv_mkey* to = Key(b(), false);
  ASSERT_EQ(Configure(a(), from, {a().Piece(kData, 8), a().Piece(kData + 64, 8)}), 0);
  ASSERT_EQ(Configure(b(), to, {b().Piece(kData, 10), b().Piece(kData + 100, 6)}), 0);
  Receive(b(), Through(to, 0, 16), 7);
  ASSERT_EQ(Post(a(), IBV_WR_SEND, Through(from, 0, 16), 1), 0);
  EXPECT_EQ(a().AwaitSend().status, IBV_WC_SUCCESS);
  const ibv_wc wc = b().AwaitReceive();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, 16u);
  const std::string sent = a().Text(kData, 8) + a().Text(kData + 64, 8);
  EXPECT_EQ(b().Text(kData, 10) + b().Text(kData + 100, 6), sent);
}

TEST_P(Signatures, RemoteKeyIsWrittenAndReadInItsOwnOrder) {
  PROVES(136);
  NEEDS_SIGNATURES();
  Connect();
  mlx5dv_mkey* far = Key(b(), false);
  ASSERT_EQ(Configure(b(), far, {b().Piece(kData + 64, 8), b().Piece(kData, 8)}), 0);
  ASSERT_EQ(Post(a(), IBV_WR_RDMA_WRITE, a().Piece(kData, 16), 1, far->rkey, 0), 0);
  EXPECT_EQ(a().AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b().Text(kData + 64, 8) + b().Text(kData, 8), a().Text(kData, 16));
  ASSERT_EQ(Post(a(), IBV_WR_RDMA_READ, a().Piece(kElsewhere, 8), 2, far->rkey, 4), 0);
  EXPECT_EQ(a().AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(a().Text(kElsewhere, 8), a().Text(kData + 4, 8));
}

TEST_P(Signatures, RemoteUseNeedsTheRightAndTheRange) {
  PROVES(14, 136);
  NEEDS_SIGNATURES();
  for (const bool right_is_missing : {true, false}) {
    Connect();
    mlx5dv_mkey* far = Key(b(), false);
    ASSERT_EQ(Configure(b(), far, {b().Piece(kData, 32)}, nullptr,
                        right_is_missing ? uint32_t{IBV_ACCESS_REMOTE_READ} : kReadWrite),
              0);
    ASSERT_EQ(
        Post(a(), IBV_WR_RDMA_WRITE, a().Piece(kData, 32), 1, far->rkey, right_is_missing ? 0 : 1),
        0);
    EXPECT_EQ(a().AwaitSend().status, IBV_WC_REM_ACCESS_ERR);
  }
}

TEST_P(Signatures, ProtectedMemoryIsCheckedAndStrippedOnTheWayOut) {
  PROVES(130, 131, 133);
  NEEDS_SIGNATURES();
  Connect();
  const CrcSignature in_memory(/*on_wire=*/false);
  mlx5dv_mkey* key = Key(a());
  const std::string data = Protect(a(), kData, 4);
  ASSERT_EQ(Configure(a(), key, {a().Piece(kData, 4 * kProtected)}, &in_memory.attr), 0);
  Receive(b(), b().Piece(kData, 4 * kBlock), 1);
  ASSERT_EQ(Post(a(), IBV_WR_SEND, Through(key, 0, 4 * kBlock), 1), 0);
  EXPECT_EQ(a().AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b().AwaitReceive().byte_len, 4 * kBlock);
  EXPECT_EQ(b().Text(kData, 4 * kBlock), data);
  EXPECT_EQ(Check(key).err_type, MLX5DV_MKEY_NO_ERR);
}

TEST_P(Signatures, FarKeyInsertsForWritersAndStripsForReaders) {
  PROVES(130, 131, 133);
  NEEDS_SIGNATURES();
  Connect();
  const CrcSignature in_memory(false);
  mlx5dv_mkey* far = Key(b());
  ASSERT_EQ(Configure(b(), far, {b().Piece(kData, 2 * kProtected)}, &in_memory.attr), 0);
  ASSERT_EQ(Post(a(), IBV_WR_RDMA_WRITE, a().Piece(kData, 2 * kBlock), 1, far->rkey, 0), 0);
  EXPECT_EQ(a().AwaitSend().status, IBV_WC_SUCCESS);
  ASSERT_EQ(Post(a(), IBV_WR_RDMA_READ, a().Piece(kElsewhere, 2 * kBlock), 2, far->rkey, 0), 0);
  EXPECT_EQ(a().AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(a().Text(kElsewhere, 2 * kBlock), a().Text(kData, 2 * kBlock));
  Protect(a(), kData, 2);
  EXPECT_EQ(b().Text(kData, 2 * kProtected), a().Text(kData, 2 * kProtected));
}

TEST_P(Signatures, MismatchFailsNoTransferAndIsSeenOnceAfterPolling) {
  PROVES(140, 141);
  NEEDS_SIGNATURES();
  Connect();
  const CrcSignature in_memory(false);
  mlx5dv_mkey* key = Key(a());
  Protect(a(), kData, 4);
  a().slab[kData + 2 * kProtected + 5] ^= std::byte{1};  // in the third block
  ASSERT_EQ(Configure(a(), key, {a().Piece(kData, 4 * kProtected)}, &in_memory.attr), 0);
  ASSERT_EQ(Post(a(), IBV_WR_RDMA_WRITE, Through(key, 0, 4 * kBlock), 1, b().mr->rkey,
                 b().Address(kData)),
            0);
  EXPECT_EQ(a().AwaitSend().status, IBV_WC_SUCCESS);
  a().NoCompletion(a().send_cq);
  const mlx5dv_mkey_err error = Check(key);
  EXPECT_EQ(error.err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD);
  EXPECT_EQ(error.err.sig.offset, 2u * kProtected);  // the block's
  EXPECT_NE(error.err.sig.actual_value, error.err.sig.expected_value);
  EXPECT_EQ(Check(key).err_type, MLX5DV_MKEY_NO_ERR);
}

TEST_P(Signatures, NextMismatchNeedsAConfiguration) {
  PROVES(140);
  NEEDS_SIGNATURES();
  Connect();
  const CrcSignature in_memory(false);
  mlx5dv_mkey* key = Key(a());
  const auto transfer = [&] {
    EXPECT_EQ(
        Post(a(), IBV_WR_RDMA_WRITE, Through(key, 0, kBlock), 1, b().mr->rkey, b().Address(kData)),
        0);
    EXPECT_EQ(a().AwaitSend().status, IBV_WC_SUCCESS);
    a().NoCompletion(a().send_cq);
    return Check(key).err_type;
  };
  const auto configure = [&] {
    return Configure(a(), key, {a().Piece(kData, kProtected)}, &in_memory.attr);
  };
  // What stands there is no signature.
  ASSERT_EQ(configure(), 0);
  EXPECT_EQ(transfer(), MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD);
  EXPECT_EQ(transfer(), MLX5DV_MKEY_NO_ERR);
  ASSERT_EQ(configure(), 0);
  EXPECT_EQ(transfer(), MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD);
}

TEST_P(Signatures, CheckIsForKeysWithSignatures) {
  PROVES(140);
  NEEDS_SIGNATURES();
  Connect();
  mlx5dv_mkey_err error{};
  EXPECT_EQ(api().dv_mkey_check(Key(a(), /*signature=*/false), &error), EINVAL);
}

TEST_P(Signatures, ConfigurationIsInlineAndBounded) {
  PROVES(138, 139);
  NEEDS_SIGNATURES();
  Connect();
  EXPECT_EQ(Configure(a(), Key(a(), false), {a().Piece(kData, 8)}, nullptr, kReadWrite,
                      IBV_SEND_SIGNALED),
            EOPNOTSUPP);
  const std::vector<ibv_sge> five(5, a().Piece(kData, 8));
  EXPECT_EQ(Configure(a(), Key(a(), false, 4), five), ENOMEM);
  EXPECT_EQ(Configure(a(), Key(a(), false, 8), five), 0);
  // A signature for a key without one.
  const CrcSignature on_wire(true);
  EXPECT_EQ(Configure(a(), Key(a(), false), {a().Piece(kData, kBlock)}, &on_wire.attr), EINVAL);
  // Setters: twice the same, or fewer than announced.
  for (const int times : {2, 0}) {
    ibv_wr_start(a().ex);
    a().ex->wr_flags = IBV_SEND_INLINE;
    mlx5dv_mkey_conf_attr conf{};
    mlx5dv_wr_mkey_configure(a().dv, Key(a(), false), times == 2 ? 2 : 1, &conf);
    for (int i = 0; i < times; ++i) mlx5dv_wr_set_mkey_access_flags(a().dv, kReadWrite);
    EXPECT_EQ(ibv_wr_complete(a().ex), EINVAL);
  }
}

TEST_P(Signatures, ConfigurationTakesASlotMoreForEachSignature) {
  PROVES(137);
  NEEDS_SIGNATURES();
  PlainOptions options = kWithKeys;
  options.send_wr = 4;
  Connect(options);
  if (!bed().IsSoftware()) GTEST_SKIP() << "how many slots a queue has beyond what was asked for";
  CrcSignature both(true);
  both.attr.mem = &both.domain;
  mlx5dv_mkey* key = Key(a());
  // Unsignalled: nothing comes back. 3 slots, then one for a SEND, then none.
  const auto configure = [&] {
    ibv_wr_start(a().ex);
    a().ex->wr_flags = IBV_SEND_INLINE;
    mlx5dv_mkey_conf_attr conf{};
    mlx5dv_wr_mkey_configure(a().dv, key, 1, &conf);
    mlx5dv_wr_set_mkey_sig_block(a().dv, &both.attr);
    return ibv_wr_complete(a().ex);
  };
  EXPECT_EQ(configure(), 0);
  EXPECT_EQ(configure(), ENOMEM);
  Receive(b(), b().Piece(kData, 8), 1);
  EXPECT_EQ(Post(a(), IBV_WR_SEND, a().Piece(kData, 8), 1, 0, 0, /*flags=*/0), 0);
  EXPECT_EQ(Post(a(), IBV_WR_SEND, a().Piece(kData, 8), 2), ENOMEM);
  b().AwaitReceive();
  EXPECT_TRUE(a().NoCompletion(a().send_cq));
}

TEST_P(Signatures, LocalInvalidationFreesTheKey) {
  PROVES(136, 163);
  NEEDS_SIGNATURES();
  Connect();
  mlx5dv_mkey* key = Key(a(), false);
  ASSERT_EQ(Configure(a(), key, {a().Piece(kData, 64)}), 0);
  ibv_wr_start(a().ex);
  a().ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_local_inv(a().ex, key->rkey);
  ASSERT_EQ(ibv_wr_complete(a().ex), 0);
  EXPECT_EQ(a().AwaitSend().opcode, IBV_WC_LOCAL_INV);
  ASSERT_EQ(Post(a(), IBV_WR_SEND, Through(key, 0, 64), 1), 0);
  EXPECT_EQ(a().AwaitSend().status, IBV_WC_LOC_PROT_ERR);
}

}  // namespace
}  // namespace sluice::conformance
