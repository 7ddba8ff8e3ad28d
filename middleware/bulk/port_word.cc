// SPDX-License-Identifier: Apache-2.0
#include "middleware/bulk/port_word.h"

#include "middleware/bulk/fields.h"

namespace sluice::bulk {
namespace {

constexpr uint32_t kMaxQpNumber = 0xffffff;
constexpr uint32_t kMaxNotices = 1u << 14;

}  // namespace

// kind(1) 0(3) qp_number(4) notices(4) reads(1) 0(3) notice(96)?
std::vector<std::byte> ToBytes(const PortWord& word) {
  const bool notice = word.kind == PortWord::Kind::kNotice;
  std::vector<std::byte> bytes(kPortWordHeadBytes + (notice ? kNoticeBytes : 0));
  Put(bytes.data(), 0, word.kind);
  Put(bytes.data(), 4, word.qp_number);
  Put(bytes.data(), 8, word.notices);
  Put(bytes.data(), 12, word.reads);
  if (notice) Store(word.notice, bytes.data() + kPortWordHeadBytes);
  return bytes;
}

std::optional<PortWord> LoadPortWord(std::span<const std::byte> bytes) {
  using Kind = PortWord::Kind;
  if (bytes.size() < kPortWordHeadBytes) return std::nullopt;
  PortWord word;
  word.kind = Get<Kind>(bytes.data(), 0);
  word.qp_number = Get<uint32_t>(bytes.data(), 4);
  word.notices = Get<uint32_t>(bytes.data(), 8);
  word.reads = Get<uint8_t>(bytes.data(), 12);
  if (word.kind < Kind::kNotice || word.kind > Kind::kClosed) return std::nullopt;
  if ((Get<uint32_t>(bytes.data(), 0) >> 8) != 0 || (Get<uint32_t>(bytes.data(), 12) >> 8) != 0) {
    return std::nullopt;
  }
  if (word.kind == Kind::kQueue) {
    if (word.qp_number == 0 || word.qp_number > kMaxQpNumber) return std::nullopt;
    if (word.notices == 0 || word.notices > kMaxNotices) return std::nullopt;
    if (word.reads == 0) return std::nullopt;
  } else if (word.qp_number != 0 || word.notices != 0 || word.reads != 0) {
    return std::nullopt;
  }
  const auto rest = bytes.subspan(kPortWordHeadBytes);
  if (word.kind != Kind::kNotice) return rest.empty() ? std::optional(word) : std::nullopt;
  const auto notice = LoadNotice(rest);
  if (!notice) return std::nullopt;
  word.notice = *notice;
  return word;
}

}  // namespace sluice::bulk
