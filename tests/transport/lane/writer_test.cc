// SPDX-License-Identifier: Apache-2.0
#include "transport/lane/writer.h"

#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::lane {
namespace writer_test {

Grant SampleGrant(Layout layout) {
  return {.generation = 1,
          .rkey = 77,
          .address = 0x10000,
          .slots = 4,
          .slot_bytes = 256,
          .secret = 0xfffffffe,
          .lane = 5,
          .layout = layout};
}

TEST(EncodedBytes, OneStampOrOneForEachBlock) {
  EXPECT_EQ(EncodedBytes(Layout::kWhole, 1), 16u);
  EXPECT_EQ(EncodedBytes(Layout::kWhole, 248), 256u);
  EXPECT_EQ(EncodedBytes(Layout::kWhole, 249), 264u);
  EXPECT_EQ(EncodedBytes(Layout::kBlocks, 1), 16u);
  EXPECT_EQ(EncodedBytes(Layout::kBlocks, 120), 128u);
  EXPECT_EQ(EncodedBytes(Layout::kBlocks, 121), 144u);
  EXPECT_EQ(EncodedBytes(Layout::kBlocks, 240), 256u);
}

TEST(Writer, FitsWhatHasRoomInTheSlotAndBehindTheMessage) {
  const Writer whole(SampleGrant(Layout::kWhole));
  EXPECT_TRUE(whole.Fits(248, 4096));
  EXPECT_FALSE(whole.Fits(249, 4096));
  EXPECT_FALSE(whole.Fits(0, 4096));
  EXPECT_FALSE(whole.Fits(100, 64));
  const Writer blocks(SampleGrant(Layout::kBlocks));
  EXPECT_TRUE(blocks.Fits(240, 4096));
  EXPECT_FALSE(blocks.Fits(241, 4096));
}

TEST(Writer, MessagesEndWhereTheirSlotsEndRoundAndRound) {
  for (const Layout layout : {Layout::kWhole, Layout::kBlocks}) {
    Writer writer(SampleGrant(layout));
    std::vector<std::byte> buffer(1024);
    for (uint32_t i = 0; i < 11; ++i) {
      const Write write = writer.Put(buffer.data(), 17 + i * 20);
      EXPECT_EQ(write.address + write.length_bytes, 0x10000 + (i % 4 + 1) * 256) << i;
      EXPECT_EQ(write.rkey, 77u);
      EXPECT_EQ(write.immediate, Immediate(5, 0xfffffffe + i)) << i;
      EXPECT_EQ(writer.written(), i + 1);
      uint64_t stamp = 0;
      std::memcpy(&stamp, buffer.data() + write.offset_bytes + write.length_bytes - 8, 8);
      EXPECT_EQ(StampValue(stamp), 0xfffffffe + i) << "values wrap";
      EXPECT_EQ(StampLength(stamp), 17 + i * 20);
    }
  }
}

TEST(Writer, NothingOfTheMessageBeforeIsSentAsPadding) {
  Writer writer(SampleGrant(Layout::kWhole));
  std::vector<std::byte> buffer(64, std::byte{0xaa});
  writer.Put(buffer.data(), 17);
  for (size_t at = 17; at < 24; ++at) EXPECT_EQ(buffer[at], std::byte{0});
}

TEST(Writer, StampsInPlaceAsItDoesElsewhere) {
  Writer one(SampleGrant(Layout::kWhole));
  Writer other(SampleGrant(Layout::kWhole));
  for (uint32_t bytes = 1; bytes <= 248; ++bytes) {
    std::vector<std::byte> put(1024, std::byte{0xaa});
    std::vector<std::byte> stamped = put;
    const Write write = one.Put(put.data(), bytes);
    other.StampWhole(stamped.data(), bytes);
    other.Advance(1);
    EXPECT_EQ(stamped, put) << bytes;
    EXPECT_EQ(other.last_immediate(), write.immediate);
    EXPECT_EQ(other.written(), one.written());
  }
}

}  // namespace writer_test
}  // namespace sluice::lane
