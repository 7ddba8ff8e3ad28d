// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/window_words.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/peer/handshake_samples.h"

namespace sluice::peer {
namespace window_words_test {

TEST(WindowWord, BytesAreTheGoldenOnes) {
  const auto bytes = EncodeWindowWord({.number = 0x01020304, .count = 0xfffefdfc});
  EXPECT_EQ(Hex(bytes), "04030201fcfdfeff");
  EXPECT_EQ(DecodeWindowWord(bytes), (WindowWord{.number = 0x01020304, .count = 0xfffefdfc}));
}

TEST(WindowWord, OtherLengthsAreRefused) {
  for (size_t length = 0; length < 2 * kWindowWordBytes; ++length) {
    const std::vector<std::byte> bytes(length);
    EXPECT_EQ(DecodeWindowWord(bytes).has_value(), length == kWindowWordBytes) << length;
  }
}

}  // namespace window_words_test
}  // namespace sluice::peer
