// SPDX-License-Identifier: Apache-2.0
//
// Facts 136 to 139: keys, and configuration WRs with each documented error.
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <vector>

#include "tests/transport/softdc/mkey_node.h"
#include "transport/softdc/device_attributes.h"
#include "transport/softdc/verbs_mkey.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace mkey_configure_test {

constexpr uint64_t kIndirect = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT;

using MkeyConfigureTest = MkeyPairTest;

TEST_F(MkeyConfigureTest, CapabilitiesSayWhatIsThere) {
  mlx5dv_context attr{};
  attr.comp_mask = MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD;
  ASSERT_EQ(QueryDv(a.context, &attr), 0);
  EXPECT_EQ(attr.comp_mask, uint64_t{MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD});
  EXPECT_EQ(attr.sig_caps.block_prot,
            uint32_t{MLX5DV_SIG_PROT_CAP_T10DIF | MLX5DV_SIG_PROT_CAP_CRC});
  EXPECT_EQ(attr.sig_caps.block_size, 0x1fu);
  EXPECT_EQ(attr.sig_caps.crc_type, 3);
  EXPECT_EQ(attr.sig_caps.t10dif_bg, 3);
}

TEST_F(MkeyConfigureTest, UnknownFlagsOfAConfigurationAreNotSupported) {
  Start();
  Configure(a.CreateKey(), 0, /*flags=*/2);
  EXPECT_EQ(Finish(), EOPNOTSUPP);
  Start();
  Configure(a.CreateKey(), 0, 0, /*comp_mask=*/1);
  EXPECT_EQ(Finish(), EOPNOTSUPP);
}

TEST_F(MkeyConfigureTest, SettersNeedABuilderAndComeOnceEach) {
  mlx5dv_mkey* key = a.CreateKey();
  const CrcSignature signature(true);
  ibv_sge piece = a.Piece(0, 64);
  mlx5dv_mr_interleaved data{};
  const auto access = [&] { mlx5dv_wr_set_mkey_access_flags(a.dv, IBV_ACCESS_LOCAL_WRITE); };
  const auto list = [&] { mlx5dv_wr_set_mkey_layout_list(a.dv, 1, &piece); };
  const auto interleaved = [&] { mlx5dv_wr_set_mkey_layout_interleaved(a.dv, 1, 1, &data); };
  const auto sign = [&] { mlx5dv_wr_set_mkey_sig_block(a.dv, &signature.attr); };
  const std::vector<std::function<void()>> setters = {access, list, interleaved, sign};
  for (const auto& setter : setters) {
    Start();
    setter();
    EXPECT_EQ(Finish(), EINVAL) << "without a builder";
    Start();
    Configure(key, 3);
    setter();
    setter();
    EXPECT_EQ(Finish(), EINVAL) << "twice";
    Start();
    Configure(key, 1);
    setter();
    setter();
    EXPECT_EQ(Finish(), EINVAL) << "more than announced";
    Start();
    Configure(key, 2);
    setter();
    EXPECT_EQ(Finish(), EINVAL) << "fewer than announced";
  }
  Start();
  Configure(key, 3);
  list();
  interleaved();
  EXPECT_EQ(Finish(), EINVAL) << "both layouts";
}

TEST_F(MkeyConfigureTest, AccessIsLocalOrRemoteReadWriteAtomic) {
  Start();
  Configure(a.CreateKey(), 1);
  mlx5dv_wr_set_mkey_access_flags(a.dv, IBV_ACCESS_MW_BIND);
  EXPECT_EQ(Finish(), EINVAL);
}

TEST_F(MkeyConfigureTest, LayoutIsBoundedByTheKeyAndByTheInlineRoom) {
  const std::vector<ibv_sge> pieces(40, a.Piece(0, 8));
  const std::vector<mlx5dv_mr_interleaved> data(40);
  const auto list = [&](MkeyNode& node, uint16_t entries, uint16_t count) {
    ibv_wr_start(node.ex);
    node.ex->wr_flags = IBV_SEND_INLINE;
    mlx5dv_mkey_conf_attr conf{};
    mlx5dv_wr_mkey_configure(node.dv, node.CreateKey(false, entries), 1, &conf);
    mlx5dv_wr_set_mkey_layout_list(node.dv, count, pieces.data());
    return ibv_wr_complete(node.ex);
  };
  const auto interleaved = [&](MkeyNode& node, uint16_t count) {
    ibv_wr_start(node.ex);
    node.ex->wr_flags = IBV_SEND_INLINE;
    mlx5dv_mkey_conf_attr conf{};
    mlx5dv_wr_mkey_configure(node.dv, node.CreateKey(false, 64), 1, &conf);
    mlx5dv_wr_set_mkey_layout_interleaved(node.dv, 1, count, data.data());
    return ibv_wr_complete(node.ex);
  };
  EXPECT_EQ(list(a, 4, 4), 0);
  EXPECT_EQ(list(a, 4, 5), ENOMEM);
  EXPECT_EQ(list(a, 64, 32), 0);
  EXPECT_EQ(list(a, 64, 33), ENOMEM);
  EXPECT_EQ(interleaved(a, 31), 0);
  EXPECT_EQ(interleaved(a, 32), ENOMEM);
  MkeyNode narrow({.max_inline_bytes = 0});
  narrow.Connect(b.qp->qp_num);
  EXPECT_EQ(list(narrow, 64, 4), 0);
  EXPECT_EQ(list(narrow, 64, 5), ENOMEM);
  EXPECT_EQ(interleaved(narrow, 3), 0);
  EXPECT_EQ(interleaved(narrow, 4), ENOMEM);
}

TEST_F(MkeyConfigureTest, SignatureNeedsRoomAndAKeyForIt) {
  const CrcSignature signature(true);
  MkeyNode narrow({.max_inline_bytes = 64});
  narrow.Connect(b.qp->qp_num);
  EXPECT_EQ(narrow.Configure(narrow.CreateKey(), {narrow.Piece(0, 512)}, signature.attr), ENOMEM);
  EXPECT_EQ(a.Configure(a.CreateKey(/*signature=*/false), {a.Piece(0, 512)}, signature.attr),
            EINVAL);
  mlx5dv_sig_block_attr none{};
  EXPECT_EQ(a.Configure(a.CreateKey(), {a.Piece(0, 512)}, none), EINVAL);
}

TEST_F(MkeyConfigureTest, SignatureOverMoreThan32BitsIsRefused) {
  const CrcSignature signature(true);
  mlx5dv_mr_interleaved data{.addr = 0, .bytes_count = 1u << 31, .bytes_skip = 0, .lkey = 1};
  Start();
  Configure(a.CreateKey(), 2);
  mlx5dv_wr_set_mkey_layout_interleaved(a.dv, 2, 1, &data);
  mlx5dv_wr_set_mkey_sig_block(a.dv, &signature.attr);
  EXPECT_EQ(Finish(), EINVAL);
}

TEST_F(MkeyConfigureTest, CryptoIsForKeysMadeForIt) {
  Start();
  Configure(a.CreateKey(), 1);
  mlx5dv_crypto_attr crypto{};
  mlx5dv_wr_set_mkey_crypto(a.dv, &crypto);
  EXPECT_EQ(Finish(), EINVAL);
  mlx5dv_mkey_init_attr init{
      .pd = a.pd, .create_flags = kIndirect | MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO, .max_entries = 4};
  errno = 0;
  EXPECT_EQ(DvCreateMkey(&init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(MkeyConfigureTest, AbortedConfigurationChangesNothing) {
  mlx5dv_mkey* key = a.CreateKey(false);
  ibv_sge piece = a.Piece(0, 64);
  Start();
  Configure(key, 1);
  mlx5dv_wr_set_mkey_layout_list(a.dv, 1, &piece);
  ibv_wr_abort(a.ex);
  b.Receive(b.Piece(0, 64), 1);
  ASSERT_EQ(a.Send(Through(key, 0, 64), 2), 0);
  EXPECT_EQ(a.Poll().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(MkeyConfigureTest, OnlyTheLastOfItsSlotsCompletes) {
  CrcSignature signature(true);
  signature.attr.mem = &signature.domain;
  MkeyNode node({.signal_all = true});
  node.Connect(b.qp->qp_num);
  EXPECT_EQ(node.Configure(node.CreateKey(), {node.Piece(0, 1024)}, signature.attr), 0);
  EXPECT_TRUE(node.Quiet());
}

TEST_F(MkeyConfigureTest, KeyOfAnotherProtectionDomainIsNotConfigured) {
  ibv_pd* other = AllocPd(a.context);
  mlx5dv_mkey_init_attr init{.pd = other, .create_flags = kIndirect, .max_entries = 4};
  mlx5dv_mkey* key = DvCreateMkey(&init);
  Start();
  Configure(key, 0);
  EXPECT_EQ(Finish(), 0);
  EXPECT_EQ(a.Poll().status, IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(DvDestroyMkey(key), 0);
  EXPECT_EQ(DeallocPd(other), 0);
}

}  // namespace mkey_configure_test
}  // namespace sluice::softdc
