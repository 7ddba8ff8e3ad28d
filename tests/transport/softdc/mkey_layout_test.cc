// SPDX-License-Identifier: Apache-2.0
//
// Fact 136: an indirect key is a zero-based range over pieces of memory, listed or interleaved.
#include "transport/softdc/model/mkey_layout.h"

#include <gtest/gtest.h>

#include <random>
#include <tuple>
#include <vector>

namespace sluice::softdc {
namespace mkey_layout_test {

using Piece = std::tuple<uint64_t, uint64_t, uint32_t>;  // address, bytes, lkey

MkeyConfig Config(uint32_t repeat_count, std::vector<MkeyEntry> entries) {
  MkeyConfig config;
  config.repeat_count = repeat_count;
  config.entry_count = static_cast<uint32_t>(entries.size());
  std::copy(entries.begin(), entries.end(), config.entries.begin());
  return config;
}

bool Walk(const MkeyConfig& config, uint64_t offset, uint64_t length_bytes,
          std::vector<Piece>* pieces) {
  return ForEachPiece(config, offset, length_bytes,
                      [&](uint64_t address, uint64_t bytes, uint32_t lkey) {
                        pieces->emplace_back(address, bytes, lkey);
                        return true;
                      });
}

TEST(ForEachPiece, ListIsOnePieceAfterTheOther) {
  const MkeyConfig config = Config(1, {{1000, 64, 0, 1}, {5000, 4096, 0, 2}});
  EXPECT_EQ(LengthBytes(config), 4160u);
  std::vector<Piece> pieces;
  EXPECT_TRUE(Walk(config, 60, 10, &pieces));
  EXPECT_EQ(pieces, (std::vector<Piece>{{1060, 4, 1}, {5000, 6, 2}}));
}

// The example of man mlx5dv_wr_mkey_configure.
TEST(ForEachPiece, InterleavedGoesOnBehindWhatIsSkipped) {
  const MkeyConfig config = Config(2, {{1000, 512, 4, 1}, {5000, 8, 0, 2}});
  EXPECT_EQ(LengthBytes(config), 1040u);
  std::vector<Piece> pieces;
  EXPECT_TRUE(Walk(config, 0, 1040, &pieces));
  EXPECT_EQ(pieces,
            (std::vector<Piece>{{1000, 512, 1}, {5000, 8, 2}, {1516, 512, 1}, {5008, 8, 2}}));
}

TEST(ForEachPiece, OutsideTheRangeIsRefusedBeforeTheFirstPiece) {
  const MkeyConfig config = Config(3, {{0, 100, 0, 1}});
  std::vector<Piece> pieces;
  EXPECT_FALSE(Walk(config, 0, 301, &pieces));
  EXPECT_FALSE(Walk(config, 301, 0, &pieces));
  EXPECT_FALSE(Walk(config, UINT64_MAX, 2, &pieces));
  EXPECT_TRUE(Walk(config, 300, 0, &pieces));
  EXPECT_TRUE(pieces.empty());
}

TEST(ForEachPiece, EntriesWithoutBytesAreStepedOver) {
  const MkeyConfig config = Config(2, {{10, 0, 7, 1}, {20, 5, 0, 2}, {30, 0, 0, 3}});
  std::vector<Piece> pieces;
  EXPECT_TRUE(Walk(config, 0, 10, &pieces));
  EXPECT_EQ(pieces, (std::vector<Piece>{{20, 5, 2}, {25, 5, 2}}));
}

TEST(ForEachPiece, KeyWithoutALayoutHasNoBytes) {
  std::vector<Piece> pieces;
  EXPECT_TRUE(Walk(MkeyConfig{}, 0, 0, &pieces));
  EXPECT_FALSE(Walk(MkeyConfig{}, 0, 1, &pieces));
}

TEST(LengthBytes, DoesNotWrap) {
  EXPECT_EQ(LengthBytes(
                Config(UINT32_MAX, std::vector<MkeyEntry>(kMaxMkeyEntries, {0, UINT32_MAX, 0, 1}))),
            UINT64_MAX);
}

// Byte by byte against the definition.
TEST(ForEachPiece, EveryByteIsWhereTheDefinitionPutsIt) {
  std::mt19937 random(136);
  for (int round = 0; round < 50; ++round) {
    std::vector<MkeyEntry> entries(1 + random() % 4);
    for (MkeyEntry& entry : entries) {
      entry = {random() % 100'000, static_cast<uint32_t>(random() % 20),
               static_cast<uint32_t>(random() % 5), static_cast<uint32_t>(1 + random() % 9)};
    }
    const MkeyConfig config = Config(1 + random() % 3, entries);
    std::vector<std::pair<uint64_t, uint32_t>> bytes;  // address, lkey
    for (uint32_t repeat = 0; repeat < config.repeat_count; ++repeat) {
      for (const MkeyEntry& entry : entries) {
        for (uint32_t i = 0; i < entry.bytes; ++i) {
          bytes.emplace_back(entry.address + repeat * (entry.bytes + entry.skip_bytes) + i,
                             entry.lkey);
        }
      }
    }
    ASSERT_EQ(LengthBytes(config), bytes.size());
    const size_t offset = bytes.empty() ? 0 : random() % bytes.size();
    const size_t length_bytes = bytes.empty() ? 0 : random() % (bytes.size() - offset + 1);
    std::vector<std::pair<uint64_t, uint32_t>> walked;
    EXPECT_TRUE(ForEachPiece(config, offset, length_bytes,
                             [&](uint64_t address, uint64_t piece_bytes, uint32_t lkey) {
                               for (uint64_t i = 0; i < piece_bytes; ++i) {
                                 walked.emplace_back(address + i, lkey);
                               }
                               return true;
                             }));
    const auto begin = bytes.begin() + static_cast<ptrdiff_t>(offset);
    EXPECT_EQ(walked, (std::vector(begin, begin + static_cast<ptrdiff_t>(length_bytes))));
  }
}

}  // namespace mkey_layout_test
}  // namespace sluice::softdc
