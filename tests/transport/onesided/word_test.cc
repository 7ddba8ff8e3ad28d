// SPDX-License-Identifier: Apache-2.0
#include "transport/onesided/word.h"

#include <array>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::onesided {
namespace word_test {

constexpr Head kSample{.kind = WordKind::kWord,
                       .place = 77,
                       .token = 0x1122334455667788,
                       .sequence = UINT32_MAX,
                       .granted = 12};

std::vector<std::byte> Bytes(const Head& head, size_t size = kHeadBytes) {
  std::vector<std::byte> bytes(size);
  Store(head, bytes.data());
  return bytes;
}

TEST(LoadHead, IsWhatWasStored) {
  for (const WordKind kind : {WordKind::kWord, WordKind::kGrant, WordKind::kGoodbye}) {
    Head head = kSample;
    head.kind = kind;
    EXPECT_EQ(LoadHead(Bytes(head)), head);
  }
}

TEST(LoadHead, OnlyWordsHaveBytesBehindIt) {
  EXPECT_TRUE(LoadHead(Bytes(kSample, kHeadBytes + kMaxWordBytes)));
  EXPECT_FALSE(LoadHead(Bytes(kSample, kHeadBytes + kMaxWordBytes + 1)));
  Head head = kSample;
  head.kind = WordKind::kGrant;
  EXPECT_FALSE(LoadHead(Bytes(head, kHeadBytes + 1)));
  head.kind = WordKind::kGoodbye;
  EXPECT_FALSE(LoadHead(Bytes(head, kHeadBytes + 1)));
}

// Whatever bytes come: none, or what they say is what they are.
TEST(LoadHead, EveryByteIsChecked) {
  const std::vector<std::byte> good = Bytes(kSample);
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(LoadHead(std::span(good).first(length)));
  }
  for (size_t at = 0; at < good.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::vector<std::byte> bytes = good;
      bytes[at] = static_cast<std::byte>(value);
      const auto head = LoadHead(bytes);
      EXPECT_TRUE(!head || Bytes(*head) == bytes);
    }
  }
}

}  // namespace word_test
}  // namespace sluice::onesided
