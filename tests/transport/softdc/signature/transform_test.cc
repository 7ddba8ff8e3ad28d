// SPDX-License-Identifier: Apache-2.0
//
// Facts 131 to 135: insert, strip, pass and regenerate in both directions, against the bitwise reference;
// one wrong bit anywhere is found where it is; masks, escapes and tags.
#include "transport/softdc/signature/transform.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/transport/softdc/signature/reference_signature.h"

namespace sluice::softdc::signature {
namespace transform_test {

Domain Crc(Kind kind, BlockSize block_size, uint32_t seed = UINT32_MAX) {
  return {.kind = kind, .block_size = block_size, .seed = seed};
}

Domain T10(Kind kind, BlockSize block_size, uint16_t seed = 0) {
  return {.kind = kind,
          .block_size = block_size,
          .increments_reference_tag = 1,
          .seed = seed,
          .reference_tag = 0x01234567,
          .application_tag = 0xabcd};
}

std::vector<Domain> AllDomains() {
  std::vector<Domain> all;
  for (int size = 0; size <= kLastBlockSize; ++size) {
    const auto block_size = static_cast<BlockSize>(size);
    for (const bool ones : {false, true}) {
      all.push_back(Crc(Kind::kCrc32, block_size, ones ? UINT32_MAX : 0));
      all.push_back(Crc(Kind::kCrc32c, block_size, ones ? UINT32_MAX : 0));
      all.push_back(T10(Kind::kT10DifCrc, block_size, ones ? 0xffff : 0));
      all.push_back(T10(Kind::kT10DifIpChecksum, block_size, ones ? 0xffff : 0));
    }
  }
  return all;
}

std::string NameOf(const Domain& domain) {
  return "kind " + std::to_string(static_cast<int>(domain.kind)) + ", block " +
         std::to_string(BlockBytes(domain)) + ", seed " + std::to_string(domain.seed);
}

uint8_t WholeMask(const Domain& domain) { return IsT10Dif(domain.kind) ? 0xff : kCrc32Mask; }

std::optional<Mismatch> Pass(const BlockSignature& signature, Direction direction,
                             const Bytes& input, Bytes* output, uint64_t wire_bytes = UINT32_MAX) {
  return Transform(signature, direction, 0, input, wire_bytes, output);
}

class EachDomain : public testing::TestWithParam<Domain> {
 protected:
  const Domain& domain() const { return GetParam(); }
  size_t both_bytes() const { return BlockBytes(domain()) + SignatureBytes(domain()); }
  std::mt19937 random_{131};
};

TEST_P(EachDomain, InsertsOnTheWayOutAndStripsOnTheWayIn) {
  SCOPED_TRACE(NameOf(domain()));
  const BlockSignature signature{.wire = domain(), .check_mask = WholeMask(domain())};
  for (const size_t blocks : {1, 3}) {
    const Bytes data = RandomBytes(random_, blocks * BlockBytes(domain()) + 24);
    const Bytes protected_data = SlowProtect(domain(), data);
    Bytes output;
    EXPECT_EQ(Pass(signature, Direction::kToWire, data, &output), std::nullopt);
    EXPECT_EQ(output, protected_data);
    EXPECT_EQ(Pass(signature, Direction::kFromWire, protected_data, &output), std::nullopt);
    EXPECT_EQ(output, data);
  }
}

TEST_P(EachDomain, StripsOnTheWayOutAndInsertsOnTheWayIn) {
  SCOPED_TRACE(NameOf(domain()));
  const BlockSignature signature{.memory = domain(), .check_mask = WholeMask(domain())};
  const Bytes data = RandomBytes(random_, 2 * BlockBytes(domain()));
  const Bytes protected_data = SlowProtect(domain(), data);
  Bytes output;
  EXPECT_EQ(Pass(signature, Direction::kToWire, protected_data, &output), std::nullopt);
  EXPECT_EQ(output, data);
  EXPECT_EQ(Pass(signature, Direction::kFromWire, data, &output), std::nullopt);
  EXPECT_EQ(output, protected_data);
}

// A flipped bit is reported for its own block, as what it spoilt, and nothing else changes.
TEST_P(EachDomain, OneWrongBitAnywhereIsFoundWhereItIs) {
  SCOPED_TRACE(NameOf(domain()));
  const BlockSignature signature{.wire = domain(), .check_mask = WholeMask(domain())};
  constexpr size_t kBlocks = 3;
  const Bytes data = RandomBytes(random_, kBlocks * BlockBytes(domain()));
  const Bytes good = SlowProtect(domain(), data);
  for (int round = 0; round < 60; ++round) {
    Bytes bad = good;
    // Half of the rounds in the few bytes of a signature.
    const size_t block = random_() % kBlocks;
    const size_t in_block = round % 2 == 0
                                ? random_() % BlockBytes(domain())
                                : BlockBytes(domain()) + random_() % SignatureBytes(domain());
    const size_t at = block * both_bytes() + in_block;
    bad[at] ^= std::byte{1} << (random_() % 8);

    Bytes output;
    const std::optional<Mismatch> found = Pass(signature, Direction::kFromWire, bad, &output);
    ASSERT_TRUE(found.has_value()) << "byte " << at;
    EXPECT_EQ(found->offset_bytes, block * both_bytes()) << "byte " << at;
    EXPECT_NE(found->actual, found->expected);
    Fault fault = Fault::kGuard;
    if (IsT10Dif(domain().kind) && in_block >= BlockBytes(domain()) + 2) {
      fault = in_block < BlockBytes(domain()) + 4 ? Fault::kApplicationTag : Fault::kReferenceTag;
    }
    EXPECT_EQ(found->fault, fault) << "byte " << at;
    Bytes passed = data;
    if (in_block < BlockBytes(domain())) passed[block * BlockBytes(domain()) + in_block] = bad[at];
    EXPECT_EQ(output, passed);

    // The same where signatures go over as they are; and so do the bytes.
    BlockSignature whole{.memory = domain(), .wire = domain(), .check_mask = signature.check_mask};
    whole.copy_mask = DefaultCopyMask(domain(), domain());
    EXPECT_EQ(Pass(whole, Direction::kToWire, bad, &output), found);
    EXPECT_EQ(output, bad);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EachDomain, testing::ValuesIn(AllDomains()));

TEST(Transform, ReportsTheFirstBlockAndItsGuardFirst) {
  const Domain domain = T10(Kind::kT10DifCrc, BlockSize::k512);
  const BlockSignature signature{.wire = domain, .check_mask = 0xff};
  std::mt19937 random(1);
  const Bytes data = RandomBytes(random, 4 * 512);
  Bytes bad = SlowProtect(domain, data);
  for (const size_t block : {1, 3}) {
    for (size_t i = 0; i < 8; ++i) bad[block * 520 + 512 + i] ^= std::byte{0xff};
  }
  Bytes output;
  const auto found = Pass(signature, Direction::kFromWire, bad, &output);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->fault, Fault::kGuard);
  EXPECT_EQ(found->offset_bytes, 520u);
  const uint16_t guard = SlowCrc16(0, std::span(data).subspan(512, 512));
  EXPECT_EQ(found->actual, guard);
  EXPECT_EQ(found->expected, guard ^ 0xffffu);
}

TEST(Transform, SaysWhatTheTagsAreAndWhatTheyShouldBe) {
  Domain domain = T10(Kind::kT10DifCrc, BlockSize::k512);
  const Bytes data(2 * 512, std::byte{5});
  const Bytes good = SlowProtect(domain, data);
  Bytes output;
  domain.application_tag = 0x1111;
  EXPECT_EQ(Pass({.wire = domain, .check_mask = 0xff}, Direction::kFromWire, good, &output),
            (Mismatch{Fault::kApplicationTag, 0x1111, 0xabcd, 0}));
  domain.application_tag = 0xabcd;
  domain.increments_reference_tag = 0;
  EXPECT_EQ(Pass({.wire = domain, .check_mask = 0xff}, Direction::kFromWire, good, &output),
            (Mismatch{Fault::kReferenceTag, 0x01234567, 0x01234568, 520}));
}

TEST(Transform, CrcBytesOfAFieldAreLittleEndian) {
  const Bytes data = BytesOf(std::string(512, 'c'));
  Bytes output;
  Pass({.wire = Crc(Kind::kCrc32c, BlockSize::k512)}, Direction::kToWire, data, &output);
  const uint32_t crc = SlowCrc32c(UINT32_MAX, data);
  EXPECT_EQ(output[512], static_cast<std::byte>(crc));
  EXPECT_EQ(output[515], static_cast<std::byte>(crc >> 24));
}

// Each bit of check_mask stands for one byte of the field.
TEST(CheckMask, LooksAtTheBytesThatItNamesOnly) {
  for (const Domain& domain :
       {T10(Kind::kT10DifCrc, BlockSize::k512), Crc(Kind::kCrc32, BlockSize::k512)}) {
    SCOPED_TRACE(NameOf(domain));
    const bool dif = IsT10Dif(domain.kind);
    const Bytes good = SlowProtect(domain, Bytes(512, std::byte{9}));
    for (uint32_t byte = 0; byte < SignatureBytes(domain); ++byte) {
      const auto bit = static_cast<uint8_t>(dif ? 1 << (7 - byte) : 1 << (4 + byte));
      Bytes bad = good;
      bad[512 + byte] ^= std::byte{1};
      Bytes output;
      BlockSignature signature{.wire = domain, .check_mask = bit};
      EXPECT_TRUE(Pass(signature, Direction::kFromWire, bad, &output)) << byte;
      signature.check_mask = static_cast<uint8_t>(~bit);
      EXPECT_FALSE(Pass(signature, Direction::kFromWire, bad, &output)) << byte;
    }
  }
}

TEST(Escape, BlocksWithTheEscapeValuesAreNotChecked) {
  const Bytes data(512, std::byte{1});
  const auto found = [&](Escape escape, uint16_t application_tag, uint32_t reference_tag) {
    Domain sender = T10(Kind::kT10DifCrc, BlockSize::k512);
    sender.application_tag = application_tag;
    sender.reference_tag = reference_tag;
    Bytes wire = SlowProtect(sender, data);
    wire[0] ^= std::byte{1};
    Domain receiver = T10(Kind::kT10DifCrc, BlockSize::k512);
    receiver.escape = escape;
    Bytes output;
    return Pass({.wire = receiver, .check_mask = 0xff}, Direction::kFromWire, wire, &output)
        .has_value();
  };
  EXPECT_TRUE(found(Escape::kNever, 0xffff, 0xffffffff));
  EXPECT_FALSE(found(Escape::kApplicationTag, 0xffff, 0));
  EXPECT_TRUE(found(Escape::kApplicationTag, 0xfffe, 0xffffffff));
  EXPECT_FALSE(found(Escape::kApplicationAndReferenceTags, 0xffff, 0xffffffff));
  EXPECT_TRUE(found(Escape::kApplicationAndReferenceTags, 0xffff, 0));
}

TEST(Copy, SignaturesPassAsTheyAreOrAreMadeAnew) {
  const Domain domain = T10(Kind::kT10DifCrc, BlockSize::k520);
  Domain other = domain;
  other.application_tag = 0x2222;
  other.reference_tag = 77;
  std::mt19937 random(2);
  const Bytes data = RandomBytes(random, 2 * 520);
  Bytes spoilt = SlowProtect(domain, data);
  spoilt[520] ^= std::byte{0x80};  // a guard

  BlockSignature signature{.memory = domain, .wire = domain, .check_mask = 0xff};
  signature.copy_mask = DefaultCopyMask(domain, domain);
  EXPECT_EQ(signature.copy_mask, 0xff);
  Bytes output;
  EXPECT_TRUE(Pass(signature, Direction::kToWire, spoilt, &output));
  EXPECT_EQ(output, spoilt);

  signature.wire = other;
  signature.copy_mask = DefaultCopyMask(domain, other);
  EXPECT_EQ(signature.copy_mask, kGuardMask);
  EXPECT_TRUE(Pass(signature, Direction::kToWire, spoilt, &output));
  Bytes expected = SlowProtect(other, data);
  expected[520] = spoilt[520];
  EXPECT_EQ(output, expected);

  signature.copy_mask = 0;
  EXPECT_TRUE(Pass(signature, Direction::kToWire, spoilt, &output));
  EXPECT_EQ(output, SlowProtect(other, data));
}

TEST(Copy, DefaultNeedsTheSameStructure) {
  const Domain crc = Crc(Kind::kCrc32, BlockSize::k512);
  EXPECT_EQ(DefaultCopyMask(crc, crc), kCrc32Mask);
  EXPECT_EQ(DefaultCopyMask(crc, Crc(Kind::kCrc32c, BlockSize::k512)), 0);
  EXPECT_EQ(DefaultCopyMask(crc, Crc(Kind::kCrc32, BlockSize::k4096)), 0);
  EXPECT_EQ(DefaultCopyMask(crc, Domain{}), 0);
  EXPECT_EQ(DefaultCopyMask(T10(Kind::kT10DifCrc, BlockSize::k512),
                            T10(Kind::kT10DifIpChecksum, BlockSize::k512)),
            kApplicationTagMask | kReferenceTagMask);
}

TEST(Transform, DomainsOfDifferentBlocksAreConverted) {
  const Domain memory = Crc(Kind::kCrc32c, BlockSize::k512);
  const Domain wire = T10(Kind::kT10DifIpChecksum, BlockSize::k4096);
  const BlockSignature signature{.memory = memory, .wire = wire, .check_mask = 0xff};
  std::mt19937 random(3);
  const Bytes data = RandomBytes(random, 2 * 4096);
  Bytes output;
  EXPECT_FALSE(Pass(signature, Direction::kToWire, SlowProtect(memory, data), &output));
  EXPECT_EQ(output, SlowProtect(wire, data));
  EXPECT_FALSE(Pass(signature, Direction::kFromWire, SlowProtect(wire, data), &output));
  EXPECT_EQ(output, SlowProtect(memory, data));
}

// A message that ends before the signature of its last block: nothing to check, nothing lost.
TEST(Transform, LastBlockWithoutItsSignatureIsTakenAsItIs) {
  const BlockSignature signature{.wire = T10(Kind::kT10DifCrc, BlockSize::k512),
                                 .check_mask = 0xff};
  const Bytes data(512, std::byte{'c'});
  Bytes output;
  EXPECT_FALSE(Pass(signature, Direction::kToWire, data, &output, 512));
  EXPECT_EQ(output, data);
  EXPECT_FALSE(Pass(signature, Direction::kFromWire, data, &output, 512));
  EXPECT_EQ(output, data);
}

TEST(Transform, LaterPartOfAKeyGoesOnWithItsReferenceTags) {
  const Domain domain = T10(Kind::kT10DifCrc, BlockSize::k512);
  const BlockSignature signature{.wire = domain, .check_mask = 0xff};
  const Bytes data(1024, std::byte{3});
  const auto extent = ExtentOf(signature, 2 * 520, 2 * 520);
  ASSERT_TRUE(extent);
  EXPECT_EQ(extent->data_start, 1024u);
  EXPECT_EQ(extent->memory_start, 1024u);
  EXPECT_EQ(extent->memory_bytes, 1024u);
  Bytes output;
  EXPECT_FALSE(Transform(signature, Direction::kToWire, extent->data_start, data, 1040, &output));
  EXPECT_EQ(output, SlowProtect(domain, data, /*first_block=*/2));
}

TEST(ExtentOf, MemoryMayBeLongerOrShorterThanTheWire) {
  const Domain crc = Crc(Kind::kCrc32, BlockSize::k512);
  EXPECT_EQ(ExtentOf({.memory = crc}, 0, 1024)->memory_bytes, 1032u);
  EXPECT_EQ(ExtentOf({.wire = crc}, 0, 1032)->memory_bytes, 1024u);
  EXPECT_EQ(ExtentOf({.memory = crc, .wire = crc}, 0, 516)->memory_bytes, 516u);
  EXPECT_EQ(ExtentOf({.memory = crc}, 1024, 512)->memory_start, 1032u);
}

TEST(ExtentOf, BeginningInsideABlockIsNoPlace) {
  const Domain crc = Crc(Kind::kCrc32, BlockSize::k512);
  EXPECT_FALSE(ExtentOf({.memory = crc}, 8, 512));
  EXPECT_FALSE(ExtentOf({.wire = crc}, 512, 516));
  EXPECT_FALSE(ExtentOf({.memory = Crc(Kind::kCrc32, BlockSize::k4096)}, 512, 512));
}

}  // namespace transform_test
}  // namespace sluice::softdc::signature
