// SPDX-License-Identifier: Apache-2.0
//
// A writer and a reader over memory that a careless device fills: every order of units that the promise leaves
// open, stopped after every unit.
#include "transport/lane/reader.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "transport/base/random.h"
#include "transport/lane/writer.h"

namespace sluice::lane {
namespace reader_test {

using Found = Reader::Found;

struct alignas(kBlockBytes) Block {
  std::byte bytes[kBlockBytes];
};

class Ring {
 public:
  Ring(Layout layout, uint32_t slots, uint32_t slot_bytes, uint32_t secret, bool in_order = true)
      : memory_(slots * slot_bytes / kBlockBytes),
        writer({.generation = 1,
                .rkey = 1,
                .address = reinterpret_cast<uint64_t>(memory_.data()),
                .slots = slots,
                .slot_bytes = slot_bytes,
                .secret = secret,
                .lane = 3,
                .layout = layout}),
        reader({layout, slots, slot_bytes}, memory(), secret, in_order),
        out(slot_bytes) {}

  std::byte* memory() { return reinterpret_cast<std::byte*>(memory_.data()); }
  size_t size_bytes() const { return memory_.size() * kBlockBytes; }

 private:
  std::vector<Block> memory_;

 public:
  Writer writer;
  Reader reader;
  std::vector<std::byte> out;
};

// Length and content say which message it is; `buffer` has room behind it.
std::vector<std::byte> MessageOf(uint32_t number, uint32_t length_bytes) {
  std::vector<std::byte> bytes(length_bytes + 2 * kMaxSlotBytes);
  base::SeededRandom random(number + 1);
  for (uint32_t i = 0; i < length_bytes; ++i) bytes[i] = static_cast<std::byte>(random.Next64());
  return bytes;
}

struct Unit {
  std::byte* to;
  const std::byte* from;
  size_t size_bytes;
};

// Cut at multiples of `unit_bytes` of the address.
std::vector<Unit> Units(const Write& write, const std::byte* message, size_t unit_bytes) {
  std::vector<Unit> units;
  auto* to = reinterpret_cast<std::byte*>(write.address);
  const std::byte* from = message + write.offset_bytes;
  size_t left = write.length_bytes;
  while (left != 0) {
    const size_t into = reinterpret_cast<uintptr_t>(to) % unit_bytes;
    const size_t here = std::min(left, unit_bytes - into);
    units.push_back({to, from, here});
    to += here;
    from += here;
    left -= here;
  }
  return units;
}

void Copy(const Unit& unit) { std::memcpy(unit.to, unit.from, unit.size_bytes); }

void ExpectMessage(Ring& ring, const std::vector<std::byte>& message, uint32_t length_bytes) {
  uint32_t found_bytes = 0;
  ASSERT_EQ(ring.reader.Look(ring.out.data(), &found_bytes), Found::kMessage);
  ASSERT_EQ(found_bytes, length_bytes);
  ASSERT_TRUE(std::equal(message.begin(), message.begin() + length_bytes, ring.out.begin()));
  ring.reader.Take();
}

Found LookAt(Ring& ring) {
  uint32_t length_bytes = 0;
  return ring.reader.Look(ring.out.data(), &length_bytes);
}

TEST(Reader, WholeMessagesOfEveryLengthByteByByte) {
  Ring ring(Layout::kWhole, 4, 256, 0xfffffff0);
  for (uint32_t length = 1; length <= 248; ++length) {
    auto message = MessageOf(length, length);
    const Write write = ring.writer.Put(message.data(), length);
    // Words: a word becomes visible at once.
    for (const Unit& unit : Units(write, message.data(), 8)) {
      ASSERT_EQ(LookAt(ring), Found::kNothing) << length;
      Copy(unit);
    }
    ExpectMessage(ring, message, length);
    ASSERT_EQ(LookAt(ring), Found::kNothing);
  }
  EXPECT_EQ(ring.reader.taken(), 248u);
}

TEST(Reader, BlocksOfEveryLengthInEveryOrder) {
  Ring ring(Layout::kBlocks, 5, 512, 0xffffff00);
  for (uint32_t length = 1; EncodedBytes(Layout::kBlocks, length) <= 512; ++length) {
    std::vector<size_t> order(Units({.length_bytes = 0}, nullptr, kBlockBytes).size());
    for (bool more = true; more;) {
      auto message = MessageOf(length, length);
      const Write write = ring.writer.Put(message.data(), length);
      const auto units = Units(write, message.data(), kBlockBytes);
      if (order.size() != units.size()) {
        order.resize(units.size());
        std::iota(order.begin(), order.end(), 0);
      }
      for (const size_t at : order) {
        // Inside a block, bytes come in order: in words.
        for (size_t done = 0; done < units[at].size_bytes; done += 8) {
          ASSERT_EQ(LookAt(ring), Found::kNothing) << length;
          std::memcpy(units[at].to + done, units[at].from + done, 8);
        }
      }
      ExpectMessage(ring, message, length);
      more = std::next_permutation(order.begin(), order.end());
    }
  }
}

TEST(Reader, WithoutOrderAMessageIsThereWhenItIsAnnounced) {
  Ring ring(Layout::kWhole, 4, 256, 9, /*in_order=*/false);
  base::SeededRandom random(1);
  for (uint32_t number = 0; number < 2000; ++number) {
    const auto length = static_cast<uint32_t>(1 + random.Next64() % 248);
    auto message = MessageOf(number, length);
    const Write write = ring.writer.Put(message.data(), length);
    auto units = Units(write, message.data(), 8);
    for (size_t i = units.size(); i-- > 1;) std::swap(units[i], units[random.Next64() % (i + 1)]);
    for (const Unit& unit : units) {
      Copy(unit);
      ASSERT_EQ(LookAt(ring), Found::kNothing);
    }
    ASSERT_TRUE(ring.reader.Announce(write.immediate));
    ExpectMessage(ring, message, length);
  }
}

// What the promise is for: with it taken for granted where it does not hold, torn messages are seen.
TEST(Reader, ModeForcedTooHighSeesTornMessages) {
  for (const Layout layout : {Layout::kWhole, Layout::kBlocks}) {
    Ring ring(layout, 4, 512, 9);
    base::SeededRandom random(1);
    int torn = 0;
    const size_t unit_bytes = layout == Layout::kWhole ? kBlockBytes : 8;
    for (uint32_t number = 0; number < 500; ++number) {
      auto message = MessageOf(number, 400);
      const Write write = ring.writer.Put(message.data(), 400);
      auto units = Units(write, message.data(), unit_bytes);
      for (size_t i = units.size(); i-- > 1;) std::swap(units[i], units[random.Next64() % (i + 1)]);
      for (const Unit& unit : units) {
        Copy(unit);
        uint32_t length_bytes = 0;
        if (ring.reader.Look(ring.out.data(), &length_bytes) != Found::kMessage) continue;
        torn += !std::equal(message.begin(), message.begin() + 400, ring.out.begin());
      }
      ring.reader.Take();
    }
    EXPECT_GT(torn, 20) << static_cast<int>(layout);
  }
}

// Payloads made of every stamp that was or will be expected.
TEST(Reader, PayloadThatLooksLikeStampsIsNeverOne) {
  for (const Layout layout : {Layout::kWhole, Layout::kBlocks}) {
    const uint32_t secret = 0xfffffff8;  // values wrap on the way
    Ring ring(layout, 4, 512, secret);
    base::SeededRandom random(3);
    for (uint32_t number = 0; number < 4000; ++number) {
      const auto length = static_cast<uint32_t>(8 + random.Next64() % 400) & ~7u;
      auto message = MessageOf(number, length);
      for (uint32_t at = 0; at < length; at += 8) {
        const auto near = static_cast<uint32_t>(number + random.Next64() % 12 - 6);
        const uint64_t stamp = Stamp(secret + near, length);
        std::memcpy(message.data() + at, &stamp, 8);
      }
      const std::vector<std::byte> expected = message;
      const Write write = ring.writer.Put(message.data(), length);
      auto units = Units(write, message.data(), layout == Layout::kWhole ? 8 : kBlockBytes);
      if (layout == Layout::kBlocks && random.Next64() % 2 != 0) {
        std::reverse(units.begin(), units.end());
      }
      for (const Unit& unit : units) {
        ASSERT_EQ(LookAt(ring), Found::kNothing) << number;
        Copy(unit);
      }
      ExpectMessage(ring, expected, length);
    }
  }
}

// A lap of exactly 2^32 messages later the same value is expected again: what stood there is gone.
TEST(Reader, SlotIsScrubbedBeforeItsNextLap) {
  for (const Layout layout : {Layout::kWhole, Layout::kBlocks}) {
    Ring ring(layout, 4, 512, 100);
    for (uint32_t number = 0; number < 4; ++number) {
      auto message = MessageOf(number, 400);
      for (const Unit& unit : Units(ring.writer.Put(message.data(), 400), message.data(), 128)) {
        Copy(unit);
      }
      ExpectMessage(ring, message, 400);
    }
    // As if 2^32 - 4 messages had passed since.
    Reader later({layout, 4, 512}, ring.memory(), 100, true);
    for (uint32_t i = 0; i < 4; ++i) {
      EXPECT_FALSE(later.Ready());
      later.Take();
    }
  }
}

TEST(Reader, ReadyAheadCountsToTheFirstThatIsMissingRoundTheRing) {
  for (const Layout layout : {Layout::kWhole, Layout::kBlocks}) {
    Ring ring(layout, 4, 256, 0xfffffffe);
    const auto put = [&](uint32_t number, bool lands) {
      auto message = MessageOf(number, 100);
      const Write write = ring.writer.Put(message.data(), 100);
      if (!lands) return;
      for (const Unit& unit : Units(write, message.data(), 8)) Copy(unit);
    };
    EXPECT_EQ(ring.reader.ReadyAhead(8), 0u);
    put(0, true);
    put(1, true);
    put(2, true);
    EXPECT_EQ(ring.reader.ReadyAhead(8), 3u);
    EXPECT_EQ(ring.reader.ReadyAhead(2), 2u);
    ring.reader.Take();
    ring.reader.Take();
    ring.reader.Take();
    EXPECT_EQ(ring.reader.ReadyAhead(8), 0u);
    put(3, true);
    put(4, true);
    put(5, false);
    put(6, true);
    EXPECT_EQ(ring.reader.ReadyAhead(8), 2u) << "one is missing";
    EXPECT_EQ(ring.reader.taken(), 3u) << "nothing is taken by it";
  }
}

TEST(Reader, LookPlainlyIsLookOfMostMessages) {
  constexpr uint32_t kSlots = 5, kSlotBytes = 1024;
  // The values of stamps come round on the way.
  Ring plain(Layout::kWhole, kSlots, kSlotBytes, /*secret=*/0xfffffff0);
  Ring other(Layout::kWhole, kSlots, kSlotBytes, /*secret=*/0xfffffff0);
  uint32_t plainly = 0;
  for (uint32_t length = 1; length <= kSlotBytes - kStampBytes; ++length) {
    ASSERT_EQ(plain.reader.LookPlainly(plain.out.data()), 0u);  // nothing is there
    for (Ring* ring : {&plain, &other}) {
      std::vector<std::byte> message = MessageOf(length, length);
      const Write write = ring->writer.Put(message.data(), length);
      std::memcpy(reinterpret_cast<std::byte*>(write.address), message.data(), write.length_bytes);
    }
    uint32_t bytes = 0;
    ASSERT_EQ(other.reader.Look(other.out.data(), &bytes), Found::kMessage);
    ASSERT_EQ(bytes, length);
    other.reader.Take();
    const uint32_t found = plain.reader.LookPlainly(plain.out.data());
    if (found == 0) {  // it is for Look(), which has it
      ASSERT_EQ(plain.reader.Look(plain.out.data(), &bytes), Found::kMessage);
      plain.reader.Take();
    } else {
      ASSERT_EQ(found, length);
      ++plainly;
      plain.reader.TakePlainly();
    }
    ASSERT_TRUE(std::equal(plain.out.begin(), plain.out.begin() + length, other.out.begin()));
    ASSERT_EQ(plain.reader.taken(), other.reader.taken());
    ASSERT_EQ(plain.reader.value(), other.reader.value());
    // Both have scrubbed the slot, and look at the next one.
    ASSERT_TRUE(std::equal(plain.memory(), plain.memory() + plain.size_bytes(), other.memory()));
    ASSERT_EQ(reinterpret_cast<const std::byte*>(plain.reader.stamp()) - plain.memory(),
              reinterpret_cast<const std::byte*>(other.reader.stamp()) - other.memory());
  }
  EXPECT_GT(plainly, 400u);
}

TEST(Reader, LookPlainlyLeavesBlocksAnnouncedMessagesAndGarbage) {
  constexpr uint32_t kSlotBytes = 256, kBytes = 100;
  for (const bool blocks : {false, true}) {
    Ring ring(blocks ? Layout::kBlocks : Layout::kWhole, 4, kSlotBytes, /*secret=*/7,
              /*in_order=*/blocks);
    std::vector<std::byte> message = MessageOf(1, kBytes);
    const Write write = ring.writer.Put(message.data(), kBytes);
    std::memcpy(reinterpret_cast<std::byte*>(write.address), message.data() + write.offset_bytes,
                write.length_bytes);
    EXPECT_EQ(ring.reader.LookPlainly(ring.out.data()), 0u) << "blocks: " << blocks;
  }
  Ring ring(Layout::kWhole, 4, kSlotBytes, /*secret=*/7);
  for (const uint32_t length : {0u, kSlotBytes - 7, kSlotBytes, kSlotBytes + 1, 0xffffffffu}) {
    const uint64_t stamp = Stamp(7, length);
    std::memcpy(ring.memory() + kSlotBytes - kStampBytes, &stamp, sizeof(stamp));
    EXPECT_EQ(ring.reader.LookPlainly(ring.out.data()), 0u) << length;
    uint32_t bytes = 0;
    EXPECT_EQ(ring.reader.Look(ring.out.data(), &bytes), Found::kGarbage) << length;
  }
}

TEST(Reader, AnotherLanesStampsMeanNothing) {
  Ring old_lane(Layout::kWhole, 4, 256, 1000);
  auto message = MessageOf(1, 100);
  for (const Unit& unit : Units(old_lane.writer.Put(message.data(), 100), message.data(), 8)) {
    Copy(unit);
  }
  const Reader new_lane({Layout::kWhole, 4, 256}, old_lane.memory(), 0x12345678, true);
  EXPECT_FALSE(new_lane.Ready());
}

TEST(Reader, PeeksAtMessagesThatHaveTheirStamps) {
  Ring ring(Layout::kWhole, 4, 256, 0xfffffffe);
  // Over the end of the ring, and the values with it.
  for (uint32_t i = 0; i < 3; ++i) {
    auto message = MessageOf(i, 100);
    for (const Unit& unit : Units(ring.writer.Put(message.data(), 100), message.data(), 8)) {
      Copy(unit);
    }
    ExpectMessage(ring, message, 100);
  }
  for (uint32_t i = 0; i < 3; ++i) {
    auto message = MessageOf(10 + i, 41 + i);
    std::memcpy(message.data() + 8, &i, sizeof(i));
    for (const Unit& unit : Units(ring.writer.Put(message.data(), 41 + i), message.data(), 8)) {
      Copy(unit);
    }
  }
  uint32_t word = 99;
  for (uint32_t ahead = 0; ahead < 3; ++ahead) {
    ASSERT_TRUE(ring.reader.Peek(ahead, 8, &word));
    EXPECT_EQ(word, ahead);
  }
  EXPECT_FALSE(ring.reader.Peek(3, 8, &word)) << "nothing there";
  EXPECT_FALSE(ring.reader.Peek(4, 8, &word)) << "more than there are slots";
  EXPECT_TRUE(ring.reader.Peek(0, 37, &word));
  EXPECT_FALSE(ring.reader.Peek(0, 38, &word)) << "beyond its 41 bytes";
  EXPECT_FALSE(ring.reader.Peek(0, 0xfffffffe, &word));
  // A stamp whose length can't be.
  const uint64_t wrong = Stamp(ring.reader.value(), 249);
  std::memcpy(ring.memory() + 4 * 256 - 8, &wrong, sizeof(wrong));
  EXPECT_FALSE(ring.reader.Peek(0, 8, &word));
}

TEST(Reader, PeeksAtNothingThatMayBeIncomplete) {
  uint32_t word = 0;
  for (const auto& [layout, in_order] :
       {std::pair(Layout::kBlocks, true), std::pair(Layout::kWhole, false)}) {
    Ring ring(layout, 4, 256, 7, in_order);
    auto message = MessageOf(1, 100);
    for (const Unit& unit : Units(ring.writer.Put(message.data(), 100), message.data(), 8)) {
      Copy(unit);
    }
    EXPECT_FALSE(ring.reader.Peek(0, 8, &word));
  }
}

// A peer that writes what it likes where it may. Its messages may be nonsense; nothing else happens.
TEST(Reader, GarbageIsNothingOrGarbageOrInBounds) {
  base::SeededRandom random(7);
  for (int round = 0; round < 3000; ++round) {
    const Layout layout = random.Next64() % 2 != 0 ? Layout::kWhole : Layout::kBlocks;
    Ring ring(layout, 4, 256, 5, /*in_order=*/random.Next64() % 2 != 0);
    for (int step = 0; step < 40; ++step) {
      auto* const words = reinterpret_cast<uint64_t*>(ring.memory());
      const size_t at = random.Next64() % (ring.size_bytes() / 8);
      const auto value = static_cast<uint32_t>(5 + ring.reader.taken() + random.Next64() % 3);
      const uint32_t lengths[] = {0, 1, 100, 240, 248, 249, 0x80000000, 0xffffffff};
      const bool stamp_place = random.Next64() % 2 != 0;
      const uint64_t word = Stamp(value, lengths[random.Next64() % 8]);
      words[stamp_place ? at | 15 : at] = word;
      if (random.Next64() % 4 == 0) ring.reader.Announce(static_cast<uint32_t>(random.Next64()));
      if (random.Next64() % 4 == 0) ring.reader.Announce(Immediate(3, value));
      uint32_t length_bytes = 0;
      if (ring.reader.Look(ring.out.data(), &length_bytes) != Found::kMessage) continue;
      ASSERT_GT(length_bytes, 0u);
      ASSERT_LE(length_bytes, 248u);
      ring.reader.Take();
    }
  }
}

TEST(Announce, OnlyOfSlotsThatCanBeWritten) {
  Ring ring(Layout::kWhole, 4, 256, 0xffffffff, /*in_order=*/false);
  EXPECT_TRUE(ring.reader.Announce(Immediate(0, 0xffffffff)));
  EXPECT_TRUE(ring.reader.Announce(Immediate(0, 2)));
  EXPECT_FALSE(ring.reader.Announce(Immediate(0, 3)));
  EXPECT_FALSE(ring.reader.Announce(Immediate(0, 0xfffffffe)));
}

}  // namespace reader_test
}  // namespace sluice::lane
