// SPDX-License-Identifier: Apache-2.0
#include "middleware/bulk/notice.h"

#include <cstring>

#include "middleware/bulk/fields.h"

namespace sluice::bulk {
namespace {

using Kind = integrity::Transfer::Kind;

constexpr size_t kProtectionAt = 56;
constexpr size_t kMismatchAt = kProtectionAt + integrity::kProtectionBytes;

}  // namespace

// number(8) piece(4) pieces(4) lease(4) epoch(4) offset(8) data_bytes(8) tag(8) kind(1) outcome(1) 0(2)
// first_block(4) protection(16) mismatch(16) 0(8)
void Store(const Notice& notice, std::byte* to) {
  std::memset(to, 0, kNoticeBytes);
  Put(to, 0, notice.number);
  Put(to, 8, notice.piece);
  Put(to, 12, notice.pieces);
  Put(to, 16, notice.lease);
  Put(to, 20, notice.epoch);
  Put(to, 24, notice.offset);
  Put(to, 32, notice.data_bytes);
  Put(to, 40, notice.tag);
  Put(to, 48, notice.kind);
  Put(to, 49, notice.outcome);
  Put(to, 52, notice.first_block);
  integrity::Store(notice.protection, to + kProtectionAt);
  integrity::Store(notice.mismatch, to + kMismatchAt);
}

std::optional<Notice> LoadNotice(std::span<const std::byte> bytes) {
  if (bytes.size() != kNoticeBytes) return std::nullopt;
  Notice notice;
  notice.number = Get<uint64_t>(bytes.data(), 0);
  notice.piece = Get<uint32_t>(bytes.data(), 8);
  notice.pieces = Get<uint32_t>(bytes.data(), 12);
  notice.lease = Get<uint32_t>(bytes.data(), 16);
  notice.epoch = Get<uint32_t>(bytes.data(), 20);
  notice.offset = Get<uint64_t>(bytes.data(), 24);
  notice.data_bytes = Get<uint64_t>(bytes.data(), 32);
  notice.tag = Get<uint64_t>(bytes.data(), 40);
  notice.kind = Get<Kind>(bytes.data(), 48);
  notice.outcome = Get<Outcome>(bytes.data(), 49);
  notice.first_block = Get<uint32_t>(bytes.data(), 52);
  if (notice.piece >= notice.pieces || notice.pieces > kMaxPieces) return std::nullopt;
  if (notice.kind > Kind::kRead || notice.outcome > Outcome::kCancelled) return std::nullopt;
  if (Get<uint16_t>(bytes.data(), 50) != 0) return std::nullopt;
  if (Get<uint64_t>(bytes.data(), kMismatchAt + integrity::kMismatchBytes) != 0)
    return std::nullopt;
  const auto protection =
      integrity::LoadProtection(bytes.subspan(kProtectionAt, integrity::kProtectionBytes));
  if (!protection.ok()) return std::nullopt;
  const bool stopped = notice.outcome == Outcome::kCancelled && IsPlain(*protection);
  if (!stopped && !Validate(*protection, notice.data_bytes).ok()) return std::nullopt;
  if (stopped && notice.data_bytes > integrity::kMaxPlainBytes) return std::nullopt;
  notice.protection = *protection;
  const auto mismatch =
      integrity::LoadMismatch(bytes.subspan(kMismatchAt, integrity::kMismatchBytes));
  if (!mismatch) return std::nullopt;
  notice.mismatch = *mismatch;
  return notice;
}

}  // namespace sluice::bulk
