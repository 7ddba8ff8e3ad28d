// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/targets.h"

#include <vector>

#include "gtest/gtest.h"

namespace sluice::peer {
namespace targets_test {

constexpr TenantTargets kTargets{.data_dctn = 0x010203,
                                 .control_dctn = 0xfffffe,
                                 .data_key = 0x1122334455667788,
                                 .control_key = 0x99aabbccddeeff00};

TEST(Targets, ComeBackAsTheyWere) {
  const auto bytes = EncodeTargets(kTargets);
  EXPECT_EQ(DecodeTargets(bytes), kTargets);
  EXPECT_EQ(bytes[0], std::byte{0x03});
  EXPECT_EQ(bytes[4], std::byte{0xfe});
  EXPECT_EQ(bytes[8], std::byte{0x88});
  EXPECT_EQ(bytes[23], std::byte{0x99});
}

TEST(Targets, OtherLengthsAndNumbersThatCannotBeAreRefused) {
  const auto good = EncodeTargets(kTargets);
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(DecodeTargets({good.data(), length}).has_value());
  }
  std::vector<std::byte> longer(good.begin(), good.end());
  longer.push_back({});
  EXPECT_FALSE(DecodeTargets(longer).has_value());
  for (const uint32_t dctn : {0u, 1u << 24}) {
    TenantTargets wrong = kTargets;
    wrong.data_dctn = dctn;
    EXPECT_FALSE(DecodeTargets(EncodeTargets(wrong)).has_value());
    wrong = kTargets;
    wrong.control_dctn = dctn;
    EXPECT_FALSE(DecodeTargets(EncodeTargets(wrong)).has_value());
  }
}

}  // namespace targets_test
}  // namespace sluice::peer
