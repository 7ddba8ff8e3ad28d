// SPDX-License-Identifier: Apache-2.0
#include "transport/onesided/word.h"

#include <bit>
#include <cstring>

namespace sluice::onesided {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint8_t kVersion = 1;

template <typename T>
void Put(std::byte* to, size_t at, T value) {
  std::memcpy(to + at, &value, sizeof(value));
}

template <typename T>
T Get(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

}  // namespace

// version(1) kind(1) 0(2) place(4) token(8) sequence(4) granted(4)
void Store(const Head& head, std::byte* to) {
  std::memset(to, 0, kHeadBytes);
  Put(to, 0, kVersion);
  Put(to, 1, head.kind);
  Put(to, 4, head.place);
  Put(to, 8, head.token);
  Put(to, 16, head.sequence);
  Put(to, 20, head.granted);
}

std::optional<Head> LoadHead(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadBytes || bytes.size() > kHeadBytes + kMaxWordBytes) return std::nullopt;
  if (Get<uint8_t>(bytes, 0) != kVersion || Get<uint16_t>(bytes, 2) != 0) return std::nullopt;
  Head head;
  head.kind = Get<WordKind>(bytes, 1);
  head.place = Get<uint32_t>(bytes, 4);
  head.token = Get<uint64_t>(bytes, 8);
  head.sequence = Get<uint32_t>(bytes, 16);
  head.granted = Get<uint32_t>(bytes, 20);
  const bool word = head.kind == WordKind::kWord;
  if (!word && head.kind != WordKind::kGrant && head.kind != WordKind::kGoodbye) {
    return std::nullopt;
  }
  if (!word && bytes.size() != kHeadBytes) return std::nullopt;
  return head;
}

}  // namespace sluice::onesided
