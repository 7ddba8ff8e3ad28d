// SPDX-License-Identifier: Apache-2.0
#include "middleware/bulk/port_word.h"

#include <vector>

#include "gtest/gtest.h"

namespace sluice::bulk {
namespace port_word_test {

using Kind = PortWord::Kind;

std::vector<PortWord> Samples() {
  std::vector<PortWord> samples = {
      {.kind = Kind::kNotice},
      {.kind = Kind::kQueue, .qp_number = 0xffffff, .notices = 16, .reads = 255},
      {.kind = Kind::kReady},
      {.kind = Kind::kClose},
      {.kind = Kind::kClosed}};
  samples[0].notice.data_bytes = 4096;
  samples[0].notice.tag = 99;
  return samples;
}

TEST(LoadPortWord, IsWhatWasSaid) {
  for (const PortWord& word : Samples()) EXPECT_EQ(LoadPortWord(ToBytes(word)), word);
}

TEST(LoadPortWord, OtherLengthsAreRefused) {
  for (const PortWord& word : Samples()) {
    std::vector<std::byte> bytes = ToBytes(word);
    for (size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_FALSE(LoadPortWord(std::span(bytes).first(length)));
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(LoadPortWord(bytes));
  }
}

TEST(LoadPortWord, NumbersOutOfRangeAreRefused) {
  for (const uint32_t number : {0u, 0x1000000u}) {
    EXPECT_FALSE(LoadPortWord(
        ToBytes({.kind = Kind::kQueue, .qp_number = number, .notices = 16, .reads = 1})));
  }
  for (const uint32_t notices : {0u, (1u << 14) + 1}) {
    EXPECT_FALSE(LoadPortWord(
        ToBytes({.kind = Kind::kQueue, .qp_number = 7, .notices = notices, .reads = 1})));
  }
  EXPECT_FALSE(LoadPortWord(ToBytes({.kind = Kind::kQueue, .qp_number = 7, .notices = 16})));
  EXPECT_FALSE(LoadPortWord(ToBytes({.kind = Kind::kReady, .qp_number = 7})));
  EXPECT_FALSE(LoadPortWord(ToBytes({.kind = Kind::kReady, .reads = 1})));
}

// Whatever bytes come: none, or what they say is what they are.
TEST(LoadPortWord, EveryByteIsChecked) {
  for (const PortWord& sample : Samples()) {
    const std::vector<std::byte> good = ToBytes(sample);
    for (size_t at = 0; at < good.size(); ++at) {
      for (int value = 0; value < 256; ++value) {
        std::vector<std::byte> bytes = good;
        bytes[at] = static_cast<std::byte>(value);
        const auto word = LoadPortWord(bytes);
        EXPECT_TRUE(!word || LoadPortWord(ToBytes(*word)) == word);
      }
    }
  }
}

}  // namespace port_word_test
}  // namespace sluice::bulk
