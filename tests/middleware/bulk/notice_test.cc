// SPDX-License-Identifier: Apache-2.0
#include "middleware/bulk/notice.h"

#include <array>
#include <random>

#include "gtest/gtest.h"

namespace sluice::bulk {
namespace notice_test {

using Bytes = std::array<std::byte, kNoticeBytes>;

Notice Sample() {
  Notice notice;
  notice.number = 12;
  notice.piece = 3;
  notice.pieces = 9;
  notice.kind = integrity::Transfer::Kind::kRead;
  notice.outcome = Outcome::kMismatch;
  notice.lease = 4;
  notice.epoch = 5;
  notice.first_block = 24;
  notice.offset = 1560;
  notice.data_bytes = 4096;
  notice.tag = 0xfeedfacecafebeef;
  notice.protection = {.memory = integrity::Guard::kT10DifCrc,
                       .wire = integrity::Guard::kCrc32c,
                       .block_bytes = 512,
                       .application_tag = 6,
                       .reference_tag = 7};
  notice.mismatch = {.field = integrity::Field::kReferenceTag,
                     .end = integrity::End::kTarget,
                     .block = 2,
                     .expected = 8,
                     .actual = 9};
  return notice;
}

TEST(LoadNotice, IsWhatWasStored) {
  Bytes bytes;
  bytes.fill(std::byte{0xaa});
  Store(Sample(), bytes.data());
  EXPECT_EQ(LoadNotice(bytes), Sample());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(LoadNotice(std::span(bytes).first(length)), std::nullopt);
  }
}

TEST(LoadNotice, PieceOutsideItsTransferIsRefused) {
  Bytes bytes;
  Notice wrong = Sample();
  wrong.piece = wrong.pieces;
  Store(wrong, bytes.data());
  EXPECT_EQ(LoadNotice(bytes), std::nullopt);
  wrong.pieces = kMaxPieces + 1;
  Store(wrong, bytes.data());
  EXPECT_EQ(LoadNotice(bytes), std::nullopt);
  wrong = Sample();
  wrong.data_bytes = 4097;
  Store(wrong, bytes.data());
  EXPECT_EQ(LoadNotice(bytes), std::nullopt) << "no whole blocks";
}

// Of what was moved of a plain transfer that was stopped.
TEST(LoadNotice, MoreThanAPlainTransferMovesIsRefused) {
  Notice stopped;
  stopped.outcome = Outcome::kCancelled;
  Bytes bytes;
  for (const uint64_t moved : {uint64_t{0}, integrity::kMaxPlainBytes}) {
    stopped.data_bytes = moved;
    Store(stopped, bytes.data());
    EXPECT_EQ(LoadNotice(bytes), stopped);
  }
  for (const uint64_t moved : {integrity::kMaxPlainBytes + 1, UINT64_MAX}) {
    stopped.data_bytes = moved;
    Store(stopped, bytes.data());
    EXPECT_EQ(LoadNotice(bytes), std::nullopt);
  }
}

// Whatever a peer sends is refused, or is a notice that is stored as the same bytes.
TEST(LoadNotice, AnyBytes) {
  Bytes good;
  Store(Sample(), good.data());
  const auto look = [](const Bytes& bytes) {
    const auto notice = LoadNotice(bytes);
    if (!notice) return;
    Bytes again;
    Store(*notice, again.data());
    EXPECT_EQ(bytes, again);
    EXPECT_LT(notice->piece, notice->pieces);
    EXPECT_TRUE(Validate(notice->protection, notice->data_bytes).ok());
  };
  for (size_t at = 0; at < kNoticeBytes; ++at) {
    for (int value = 0; value < 256; ++value) {
      Bytes bytes = good;
      bytes[at] = static_cast<std::byte>(value);
      look(bytes);
    }
  }
  std::mt19937 random(1);
  for (int run = 0; run < 100'000; ++run) {
    Bytes bytes = good;
    for (uint32_t changes = 1 + random() % 6; changes > 0; --changes) {
      bytes[random() % kNoticeBytes] = static_cast<std::byte>(random());
    }
    look(bytes);
  }
}

}  // namespace notice_test
}  // namespace sluice::bulk
