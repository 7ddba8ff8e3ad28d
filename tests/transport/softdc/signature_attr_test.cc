// SPDX-License-Identifier: Apache-2.0
//
// Facts 132 and 139: what the driver accepts of a signature's attributes, and what becomes of it.
#include "transport/softdc/model/signature_attr.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>

namespace sluice::softdc {
namespace signature_attr_test {

using signature::BlockSignature;
using signature::Escape;
using signature::Kind;

// A T10-DIF domain in memory, a CRC on the wire; each test spoils one member.
struct Attr {
  mlx5dv_sig_t10dif dif{.bg_type = MLX5DV_SIG_T10DIF_CRC,
                        .bg = 0xffff,
                        .app_tag = 0xabcd,
                        .ref_tag = 7,
                        .flags = MLX5DV_SIG_T10DIF_FLAG_REF_REMAP};
  mlx5dv_sig_crc crc{.type = MLX5DV_SIG_CRC_TYPE_CRC32C, .seed = UINT32_MAX};
  mlx5dv_sig_block_domain memory{.sig_type = MLX5DV_SIG_TYPE_T10DIF,
                                 .sig = {.dif = &dif},
                                 .block_size = MLX5DV_BLOCK_SIZE_520,
                                 .comp_mask = 0};
  mlx5dv_sig_block_domain wire{.sig_type = MLX5DV_SIG_TYPE_CRC,
                               .sig = {.crc = &crc},
                               .block_size = MLX5DV_BLOCK_SIZE_4096,
                               .comp_mask = 0};
  mlx5dv_sig_block_attr attr{.mem = &memory,
                             .wire = &wire,
                             .flags = 0,
                             .check_mask = 0x3f,
                             .copy_mask = 0,
                             .comp_mask = 0};
};

TEST(ReadSignatureAttr, TakesBothDomains) {
  const Attr attr;
  BlockSignature signature;
  ASSERT_EQ(ReadSignatureAttr(attr.attr, &signature), 0);
  EXPECT_EQ(signature.memory.kind, Kind::kT10DifCrc);
  EXPECT_EQ(signature::BlockBytes(signature.memory), 520u);
  EXPECT_EQ(signature.memory.seed, 0xffffu);
  EXPECT_EQ(signature.memory.application_tag, 0xabcd);
  EXPECT_EQ(signature.memory.reference_tag, 7u);
  EXPECT_EQ(signature.memory.increments_reference_tag, 1);
  EXPECT_EQ(signature.wire.kind, Kind::kCrc32c);
  EXPECT_EQ(signature::BlockBytes(signature.wire), 4096u);
  EXPECT_EQ(signature.check_mask, 0x3f);
  EXPECT_EQ(signature.copy_mask, 0);
  EXPECT_EQ(DomainCount(signature), 2u);
}

TEST(ReadSignatureAttr, OneDomainIsEnough) {
  Attr attr;
  attr.attr.wire = nullptr;
  BlockSignature signature;
  ASSERT_EQ(ReadSignatureAttr(attr.attr, &signature), 0);
  EXPECT_EQ(signature.wire.kind, Kind::kNone);
  EXPECT_EQ(DomainCount(signature), 1u);
}

TEST(ReadSignatureAttr, BothEscapesTogetherAreTheNarrowerOne) {
  Attr attr;
  attr.dif.flags = MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE;
  BlockSignature signature;
  ASSERT_EQ(ReadSignatureAttr(attr.attr, &signature), 0);
  EXPECT_EQ(signature.memory.escape, Escape::kApplicationTag);
  attr.dif.flags |= MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE;
  ASSERT_EQ(ReadSignatureAttr(attr.attr, &signature), 0);
  EXPECT_EQ(signature.memory.escape, Escape::kApplicationAndReferenceTags);
}

TEST(ReadSignatureAttr, CopyMaskNeedsTheSameStructure) {
  Attr attr;
  attr.attr.flags = MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK;
  attr.attr.copy_mask = 0x30;
  BlockSignature signature;
  EXPECT_EQ(ReadSignatureAttr(attr.attr, &signature), EINVAL);
  attr.wire = attr.memory;
  ASSERT_EQ(ReadSignatureAttr(attr.attr, &signature), 0);
  EXPECT_EQ(signature.copy_mask, 0x30);
  attr.attr.flags = 0;
  ASSERT_EQ(ReadSignatureAttr(attr.attr, &signature), 0);
  EXPECT_EQ(signature.copy_mask, 0xff);
}

struct Spoiler {
  const char* what;
  std::function<void(Attr&)> spoil;
};

class Refused : public testing::TestWithParam<Spoiler> {};

TEST_P(Refused, IsEinval) {
  Attr attr;
  GetParam().spoil(attr);
  BlockSignature signature;
  EXPECT_EQ(ReadSignatureAttr(attr.attr, &signature), EINVAL) << GetParam().what;
}

INSTANTIATE_TEST_SUITE_P(
    All, Refused,
    testing::Values(
        Spoiler{"no domain", [](Attr& a) { a.attr.mem = a.attr.wire = nullptr; }},
        Spoiler{"unknown flag", [](Attr& a) { a.attr.flags = 2; }},
        Spoiler{"comp_mask", [](Attr& a) { a.attr.comp_mask = 1; }},
        Spoiler{"comp_mask of a domain", [](Attr& a) { a.wire.comp_mask = 1; }},
        Spoiler{"block size",
                [](Attr& a) { a.memory.block_size = static_cast<mlx5dv_block_size>(5); }},
        Spoiler{"signature type",
                [](Attr& a) { a.memory.sig_type = static_cast<mlx5dv_sig_type>(2); }},
        Spoiler{"guard seed", [](Attr& a) { a.dif.bg = 1; }},
        Spoiler{"guard type",
                [](Attr& a) { a.dif.bg_type = static_cast<mlx5dv_sig_t10dif_bg_type>(2); }},
        Spoiler{"flags of T10-DIF", [](Attr& a) { a.dif.flags = 8; }},
        Spoiler{"CRC seed", [](Attr& a) { a.crc.seed = 1; }},
        Spoiler{"CRC seed of more than 32 bits", [](Attr& a) { a.crc.seed = UINT64_MAX; }},
        Spoiler{"CRC that the device lacks",
                [](Attr& a) {
                  a.crc = {MLX5DV_SIG_CRC_TYPE_CRC64_XP10, 0};
                }},
        Spoiler{"CRC type", [](Attr& a) { a.crc.type = static_cast<mlx5dv_sig_crc_type>(3); }}));

TEST(ToMkeyError, NamesEachFault) {
  const signature::Mismatch mismatch{signature::Fault::kReferenceTag, 1, 2, 3};
  const mlx5dv_mkey_err error = ToMkeyError(mismatch);
  EXPECT_EQ(error.err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG);
  EXPECT_EQ(error.err.sig.actual_value, 1u);
  EXPECT_EQ(error.err.sig.expected_value, 2u);
  EXPECT_EQ(error.err.sig.offset, 3u);
  EXPECT_EQ(ToMkeyError({signature::Fault::kGuard}).err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD);
  EXPECT_EQ(ToMkeyError({signature::Fault::kApplicationTag}).err_type,
            MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG);
}

}  // namespace signature_attr_test
}  // namespace sluice::softdc
