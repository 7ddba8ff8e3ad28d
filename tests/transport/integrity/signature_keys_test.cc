// SPDX-License-Identifier: Apache-2.0
//
// Devices that know some signatures only: what they do not know is refused by name, before anything is posted.
#include "transport/integrity/signature_keys.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transport/integrity/signed_pair.h"

namespace sluice::integrity {
namespace signature_keys_test {

using testing::HasSubstr;
using Kind = Transfer::Kind;
using Simulation = softdc::sim::Simulation;

mlx5dv_sig_caps g_known;

// Knows what g_known says.
const verbs::VerbsApi& ModestVerbs() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = Simulation::Verbs();
    api.dv_query_device = [](ibv_context* context, mlx5dv_context* dv) {
      const int error_number = Simulation::Verbs().dv_query_device(context, dv);
      if ((dv->comp_mask & MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD) != 0) dv->sig_caps = g_known;
      return error_number;
    };
    return api;
  }();
  return table;
}

class SignatureKeysTest : public testing::Test {
 protected:
  void SetUp() override {
    g_known = {};
    g_known.block_size = MLX5DV_BLOCK_SIZE_CAP_4096;
    g_known.block_prot = MLX5DV_SIG_PROT_CAP_T10DIF | MLX5DV_SIG_PROT_CAP_CRC;
    g_known.t10dif_bg = MLX5DV_SIG_T10DIF_BG_CAP_CRC;
    g_known.crc_type = MLX5DV_SIG_CRC_TYPE_CAP_CRC32;
  }
  static absl::Status Post(SignedPair& pair, Guard memory, Guard wire, uint32_t block_bytes) {
    const Protection protection{.memory = memory, .wire = wire, .block_bytes = block_bytes};
    return pair.Post(pair.Plan(Kind::kWrite, protection, 0, 4096, 1));
  }
  static void ExpectUnknown(const absl::Status& status, std::string_view what) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("this device does not support " + std::string(what)));
  }
};

TEST_F(SignatureKeysTest, WhatTheDeviceDoesNotKnowIsNamed) {
  SignedPair pair({.api = &ModestVerbs()});
  ASSERT_EQ(pair.store.queue->mode(), Mode::kPipelined);
  for (const Guard guard : {Guard::kT10DifIpChecksum, Guard::kCrc32c}) {
    ExpectUnknown(Post(pair, guard, Guard::kNone, 4096), Name(guard));
    ExpectUnknown(Post(pair, Guard::kNone, guard, 4096), Name(guard));
  }
  ExpectUnknown(Post(pair, Guard::kCrc32, Guard::kCrc32, 512), "blocks of 512 bytes");
  EXPECT_EQ(pair.store.queue->open(), 0u);
  EXPECT_TRUE(Post(pair, Guard::kT10DifCrc, Guard::kCrc32, 4096).ok());
}

TEST_F(SignatureKeysTest, ProtectionsThatItDoesNotKnowAtAll) {
  g_known.block_prot = MLX5DV_SIG_PROT_CAP_CRC;
  SignedPair pair({.api = &ModestVerbs()});
  ExpectUnknown(Post(pair, Guard::kT10DifCrc, Guard::kNone, 4096), Name(Guard::kT10DifCrc));
  g_known.block_prot = MLX5DV_SIG_PROT_CAP_T10DIF;
  SignedPair other({.api = &ModestVerbs()});
  ExpectUnknown(Post(other, Guard::kCrc32, Guard::kNone, 4096), Name(Guard::kCrc32));
}

TEST_F(SignatureKeysTest, CpuKnowsThemAll) {
  SignedPair pair({.queue = {.offload = false}, .api = &ModestVerbs()});
  ASSERT_EQ(pair.store.queue->mode(), Mode::kSoftware);
  for (const Guard guard :
       {Guard::kT10DifCrc, Guard::kT10DifIpChecksum, Guard::kCrc32, Guard::kCrc32c}) {
    for (const uint32_t block_bytes : {512u, 4096u}) {
      EXPECT_TRUE(Post(pair, guard, guard, block_bytes).ok());
    }
  }
}

}  // namespace signature_keys_test
}  // namespace sluice::integrity
