// SPDX-License-Identifier: Apache-2.0
#include "transport/integrity/mismatch.h"

#include <array>

#include "gtest/gtest.h"
#include "transport/base/error.h"

namespace sluice::integrity {
namespace mismatch_test {

constexpr Mismatch kTag{.field = Field::kApplicationTag,
                        .end = End::kTarget,
                        .block = 7,
                        .expected = 0x12,
                        .actual = 0xff34};

TEST(MismatchError, SaysWhichBlockWhatAndWhere) {
  const absl::Status damaged = MismatchError(
      {.field = Field::kGuard, .block = 3, .expected = 0x1c2d, .actual = 0xb0}, "disk:7");
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(damaged.message(),
            "block 3 is damaged, found at the initiator (peer disk:7): its guard says 0x1c2d, its "
            "data make it 0xb0; take the data from another copy");
  EXPECT_EQ(MismatchError(kTag, "").message(),
            "block 7 is not the one that was asked for, found at the target: its application tag "
            "says 0x0012, the transfer says 0xff34; compare the tags with those that the data was "
            "written with");
}

TEST(MismatchError, CarriesTheMismatch) {
  EXPECT_EQ(MismatchOf(MismatchError(kTag, "disk:7")), kTag);
  EXPECT_EQ(MismatchOf(base::Prefix(MismatchError(kTag, ""), "read 12")), kTag);
  EXPECT_EQ(MismatchOf(absl::DataLossError("another kind")), std::nullopt);
  const auto detail = base::DetailOf(MismatchError(kTag, "disk:7"));
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->layer(), "integrity");
}

// Whatever a peer sends is refused, or is a mismatch that is stored as the same bytes.
TEST(LoadMismatch, EveryByteIsChecked) {
  std::array<std::byte, kMismatchBytes> bytes;
  Store(kTag, bytes.data());
  EXPECT_EQ(LoadMismatch(bytes), kTag);
  EXPECT_EQ(LoadMismatch(std::span(bytes).first(kMismatchBytes - 1)), std::nullopt);
  for (size_t at = 0; at < kMismatchBytes; ++at) {
    int taken = 0;
    for (int value = 0; value < 256; ++value) {
      std::array<std::byte, kMismatchBytes> changed = bytes;
      changed[at] = static_cast<std::byte>(value);
      const auto loaded = LoadMismatch(changed);
      if (!loaded) continue;
      ++taken;
      std::array<std::byte, kMismatchBytes> again;
      Store(*loaded, again.data());
      EXPECT_EQ(changed, again);
    }
    EXPECT_EQ(taken, at == 0 ? 3 : at == 1 ? 2 : at < 4 ? 1 : 256) << "byte " << at;
  }
}

}  // namespace mismatch_test
}  // namespace sluice::integrity
