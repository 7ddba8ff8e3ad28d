// SPDX-License-Identifier: Apache-2.0
//
// Facts 131, 136 and 140: bytes through a key with a layout and a signature, over a memory that can refuse;
// and the record of the first mismatch.
#include "transport/softdc/model/mkey_transfer.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <thread>

#include "tests/transport/softdc/signature/reference_signature.h"

namespace sluice::softdc {
namespace mkey_transfer_test {

using signature::Bytes;
using signature::Domain;
using signature::Kind;

constexpr uint32_t kPd = 7;
constexpr uint32_t kLkey = 0x100;

// One region, from address 0.
class FakeMemory : public MkeyMemory {
 public:
  explicit FakeMemory(size_t size_bytes) : bytes(size_bytes) {}

  MkeyStatus Locate(uint64_t address, uint64_t length_bytes, uint32_t lkey, uint32_t access,
                    uint32_t pd) override {
    ++located;
    if (status != MkeyStatus::kGood) return status;
    if (lkey != kLkey || pd != kPd || address + length_bytes > bytes.size()) {
      return MkeyStatus::kDenied;
    }
    return (access & IBV_ACCESS_LOCAL_WRITE) != 0 && !writable ? MkeyStatus::kDenied
                                                               : MkeyStatus::kGood;
  }
  bool Read(uint64_t address, uint32_t, std::span<std::byte> to) override {
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(address), to.size(), to.begin());
    return !broken;
  }
  bool Write(uint64_t address, uint32_t, std::span<const std::byte> from) override {
    std::copy(from.begin(), from.end(), bytes.begin() + static_cast<ptrdiff_t>(address));
    return !broken;
  }

  Bytes bytes;
  MkeyStatus status = MkeyStatus::kGood;
  bool writable = true;
  bool broken = false;
  int located = 0;
};

// 1032 bytes of memory side in three pieces, with gaps.
MkeyConfig Scattered(const signature::BlockSignature& signature) {
  MkeyConfig config;
  config.pd = kPd;
  config.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  config.repeat_count = 3;
  config.entry_count = 2;
  config.entries[0] = {.address = 100, .bytes = 300, .skip_bytes = 11, .lkey = kLkey};
  config.entries[1] = {.address = 2000, .bytes = 44, .skip_bytes = 0, .lkey = kLkey};
  config.signature = signature;
  return config;
}

const Domain kCrc{.kind = Kind::kCrc32c, .seed = UINT32_MAX};

TEST(Mkey, ScatteredThenGatheredWithASignatureInMemory) {
  const MkeyConfig config = Scattered({.memory = kCrc, .check_mask = signature::kCrc32Mask});
  FakeMemory memory(4096);
  std::mt19937 random(1);
  const Bytes wire = signature::RandomBytes(random, 1024);
  std::optional<signature::Mismatch> mismatch;
  ASSERT_EQ(ScatterThroughMkey(config, memory, 0, wire, &mismatch), MkeyStatus::kGood);
  EXPECT_FALSE(mismatch);
  // The memory side is what the reference makes of it, cut into the pieces.
  const Bytes protected_data = signature::SlowProtect(kCrc, wire);
  size_t at = 0;
  ForEachPiece(config, 0, 1032, [&](uint64_t address, uint64_t bytes, uint32_t) {
    const auto begin = memory.bytes.begin() + static_cast<ptrdiff_t>(address);
    EXPECT_TRUE(std::equal(begin, begin + static_cast<ptrdiff_t>(bytes),
                           protected_data.begin() + static_cast<ptrdiff_t>(at)));
    at += bytes;
    return true;
  });
  Bytes gathered;
  ASSERT_EQ(GatherThroughMkey(config, memory, 0, 1024, &gathered, &mismatch), MkeyStatus::kGood);
  EXPECT_EQ(gathered, wire);
  EXPECT_FALSE(mismatch);

  memory.bytes[100] ^= std::byte{1};
  gathered.clear();
  ASSERT_EQ(GatherThroughMkey(config, memory, 0, 1024, &gathered, &mismatch), MkeyStatus::kGood);
  ASSERT_TRUE(mismatch);
  EXPECT_EQ(mismatch->offset_bytes, 0u);
}

TEST(Mkey, PlainKeyMovesAnyRangeAsItIs) {
  const MkeyConfig config = Scattered({});
  FakeMemory memory(4096);
  std::mt19937 random(2);
  std::optional<signature::Mismatch> mismatch;
  for (int round = 0; round < 100; ++round) {
    const uint64_t offset = random() % 1000;
    const Bytes wire = signature::RandomBytes(random, random() % (1032 - offset));
    ASSERT_EQ(ScatterThroughMkey(config, memory, offset, wire, &mismatch), MkeyStatus::kGood);
    Bytes gathered;
    ASSERT_EQ(GatherThroughMkey(config, memory, offset, wire.size(), &gathered, &mismatch),
              MkeyStatus::kGood);
    EXPECT_EQ(gathered, wire);
  }
}

TEST(Mkey, GatheredBytesAreAppended) {
  FakeMemory memory(4096);
  memory.bytes[100] = std::byte{5};
  Bytes wire = {std::byte{1}};
  std::optional<signature::Mismatch> mismatch;
  ASSERT_EQ(GatherThroughMkey(Scattered({}), memory, 0, 1, &wire, &mismatch), MkeyStatus::kGood);
  EXPECT_EQ(wire, (Bytes{std::byte{1}, std::byte{5}}));
}

TEST(Mkey, EveryLengthOfMessageFitsBothDomains) {
  const signature::BlockSignature signatures[] = {
      {.memory = kCrc},
      {.wire = kCrc},
      {.memory = kCrc, .wire = kCrc, .copy_mask = signature::kCrc32Mask},
      {.memory = {.kind = Kind::kT10DifCrc}, .wire = kCrc}};
  for (const auto& signature : signatures) {
    const MkeyConfig config = Scattered(signature);
    FakeMemory memory(4096);
    std::optional<signature::Mismatch> mismatch;
    for (size_t wire_bytes = 0; wire_bytes <= 1000; ++wire_bytes) {
      ASSERT_EQ(ScatterThroughMkey(config, memory, 0, Bytes(wire_bytes), &mismatch),
                MkeyStatus::kGood);
      Bytes wire;
      ASSERT_EQ(GatherThroughMkey(config, memory, 0, wire_bytes, &wire, &mismatch),
                MkeyStatus::kGood);
      ASSERT_EQ(wire.size(), wire_bytes);
    }
  }
}

TEST(Mkey, NothingMovesWhenOnePieceIsRefused) {
  MkeyConfig config = Scattered({});
  config.entries[1].lkey = kLkey + 1;
  FakeMemory memory(4096);
  std::optional<signature::Mismatch> mismatch;
  EXPECT_EQ(ScatterThroughMkey(config, memory, 0, Bytes(400, std::byte{1}), &mismatch),
            MkeyStatus::kDenied);
  EXPECT_EQ(memory.bytes, Bytes(4096));

  memory.status = MkeyStatus::kAgain;
  EXPECT_EQ(ScatterThroughMkey(Scattered({}), memory, 0, Bytes(400), &mismatch),
            MkeyStatus::kAgain);
  memory.status = MkeyStatus::kGood;
  memory.writable = false;
  EXPECT_EQ(ScatterThroughMkey(Scattered({}), memory, 0, Bytes(400), &mismatch),
            MkeyStatus::kDenied);
  Bytes wire;
  EXPECT_EQ(GatherThroughMkey(Scattered({}), memory, 0, 400, &wire, &mismatch), MkeyStatus::kGood);
  memory.broken = true;
  EXPECT_EQ(GatherThroughMkey(Scattered({}), memory, 0, 400, &wire, &mismatch),
            MkeyStatus::kFailed);
}

TEST(Mkey, RangeOutsideOrInsideABlockIsDenied) {
  FakeMemory memory(4096);
  std::optional<signature::Mismatch> mismatch;
  Bytes wire;
  EXPECT_EQ(GatherThroughMkey(Scattered({}), memory, 0, 1033, &wire, &mismatch),
            MkeyStatus::kDenied);
  EXPECT_EQ(GatherThroughMkey(Scattered({.memory = kCrc}), memory, 0, 1025, &wire, &mismatch),
            MkeyStatus::kDenied);
  EXPECT_EQ(GatherThroughMkey(Scattered({.memory = kCrc}), memory, 1, 512, &wire, &mismatch),
            MkeyStatus::kDenied);
  EXPECT_EQ(CheckMkeyRange(Scattered({.memory = kCrc}), memory, 512, 512, 0), MkeyStatus::kGood);
}

class Table : public testing::Test {
 protected:
  uint32_t Add(uint32_t index, const MkeyConfig& config) {
    table_->areas[index].config.Store(config);
    table_->areas[index].key.store(MkeyAt(index));
    return MkeyAt(index);
  }
  std::unique_ptr<MkeyTableArea> table_ = std::make_unique<MkeyTableArea>();
};

TEST_F(Table, KeysAreAboveThoseOfRegionsWithZeroInTheLowByte) {
  EXPECT_TRUE(IsMkey(MkeyAt(0)));
  EXPECT_TRUE(IsMkey(MkeyAt(kMaxMkeys - 1)));
  EXPECT_FALSE(IsMkey(MkeyAt(0) - 0x100));
  EXPECT_FALSE(IsMkey(MkeyAt(kMaxMkeys)));
  EXPECT_FALSE(IsMkey(MkeyAt(3) | 1));
  EXPECT_EQ(table_->Find(MkeyAt(3)), nullptr);
}

TEST_F(Table, LoadChecksDomainRightsAndLayout) {
  const uint32_t key = Add(2, Scattered({}));
  MkeyConfig config;
  EXPECT_EQ(LoadMkey(*table_, key, IBV_ACCESS_REMOTE_READ, kPd, &config), MkeyStatus::kGood);
  EXPECT_EQ(config.entries[0].bytes, 300u);
  EXPECT_EQ(LoadMkey(*table_, key, IBV_ACCESS_REMOTE_WRITE, kPd, &config), MkeyStatus::kDenied);
  EXPECT_EQ(LoadMkey(*table_, key, 0, kPd + 1, &config), MkeyStatus::kDenied);
  EXPECT_EQ(LoadMkey(*table_, MkeyAt(1), 0, kPd, &config), MkeyStatus::kDenied);
  const uint32_t free = Add(3, MkeyConfig{.pd = kPd});
  EXPECT_EQ(LoadMkey(*table_, free, 0, kPd, &config), MkeyStatus::kDenied);
}

TEST_F(Table, ConfigurationThatMakesNoSenseIsRefused) {
  MkeyConfig config = Scattered({});
  config.entry_count = kMaxMkeyEntries + 1;
  MkeyConfig loaded;
  EXPECT_EQ(LoadMkey(*table_, Add(1, config), 0, kPd, &loaded), MkeyStatus::kDenied);
  config = Scattered({});
  config.signature.wire.kind = static_cast<Kind>(99);
  EXPECT_EQ(LoadMkey(*table_, Add(1, config), 0, kPd, &loaded), MkeyStatus::kDenied);
}

TEST_F(Table, FirstMismatchIsKeptUntilTheKeyIsArmedAgain) {
  MkeyArea& area = table_->areas[0];
  table_->Record(area, {.actual = 1, .expected = 2, .offset_bytes = 3}, 9);
  table_->Record(area, {.actual = 10, .expected = 20, .offset_bytes = 30}, 8);
  EXPECT_EQ(table_->recorded.load(), 1u);
  EXPECT_EQ(area.record_state.load(), MkeyArea::kPending);
  EXPECT_EQ(area.record_cq.load(), 9u);
  EXPECT_EQ(area.actual.load(), 1u);
  area.record_state.store(MkeyArea::kArmed);
  table_->Record(area, {.actual = 10, .expected = 20, .offset_bytes = 30}, 8);
  EXPECT_EQ(area.actual.load(), 10u);
}

// Readers get whole versions only, while a writer goes on.
TEST(SeqBox, ReadersSeeWholeVersions) {
  struct Pair {
    uint64_t words[40];
  };
  static SeqBox<Pair> box{};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t i = 0; !stop.load(); ++i) {
      Pair pair;
      std::fill(std::begin(pair.words), std::end(pair.words), i);
      box.Store(pair);
    }
  });
  int loaded = 0;
  while (loaded < 2000) {
    Pair pair;
    if (!box.Load(&pair)) continue;
    ++loaded;
    ASSERT_EQ(std::count(std::begin(pair.words), std::end(pair.words), pair.words[0]), 40);
  }
  stop.store(true);
  writer.join();
}

}  // namespace mkey_transfer_test
}  // namespace sluice::softdc
