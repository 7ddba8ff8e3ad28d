// SPDX-License-Identifier: Apache-2.0
#include "transport/integrity/convert.h"

#include <cstring>

#include "transport/integrity/checksum.h"

namespace sluice::integrity {
namespace {

using Block = std::span<const std::byte>;

struct Signature {
  uint32_t guard = 0;
  uint16_t application_tag = 0;
  uint32_t reference_tag = 0;
};

uint32_t GuardOf(Guard guard, Block data) {
  switch (guard) {
    case Guard::kNone:
      return 0;
    case Guard::kT10DifCrc:
      return Crc16T10Dif(data);
    case Guard::kT10DifIpChecksum:
      return IpChecksum(data);
    case Guard::kCrc32:
      return Crc32(data);
    case Guard::kCrc32c:
      return Crc32c(data);
  }
  return 0;
}

Signature Make(const Protection& protection, Guard guard, uint32_t block, Block data) {
  return {.guard = GuardOf(guard, data),
          .application_tag = protection.application_tag,
          .reference_tag = protection.reference_tag + block};
}

uint32_t LoadBig(const std::byte* from, int size_bytes) {
  uint32_t value = 0;
  for (int i = 0; i < size_bytes; ++i) value = value << 8 | std::to_integer<uint32_t>(from[i]);
  return value;
}

void StoreBig(uint32_t value, std::byte* to, int size_bytes) {
  for (int i = size_bytes; i-- > 0; value >>= 8) to[i] = static_cast<std::byte>(value & 0xff);
}

Signature Load(Guard guard, const std::byte* from) {
  Signature signature;
  if (IsT10Dif(guard)) {
    signature = {.guard = LoadBig(from, 2),
                 .application_tag = static_cast<uint16_t>(LoadBig(from + 2, 2)),
                 .reference_tag = LoadBig(from + 4, 4)};
  } else if (guard != Guard::kNone) {
    std::memcpy(&signature.guard, from, sizeof(signature.guard));
  }
  return signature;
}

void Store(const Signature& signature, Guard guard, std::byte* to) {
  if (IsT10Dif(guard)) {
    StoreBig(signature.guard, to, 2);
    StoreBig(signature.application_tag, to + 2, 2);
    StoreBig(signature.reference_tag, to + 4, 4);
  } else if (guard != Guard::kNone) {
    std::memcpy(to, &signature.guard, sizeof(signature.guard));
  }
}

std::optional<Mismatch> Compare(const Protection& protection, Guard guard, uint32_t block,
                                const Signature& made, const Signature& found) {
  const auto differs = [&](Field field, uint32_t expected, uint32_t actual) {
    return Mismatch{.field = field, .block = block, .expected = expected, .actual = actual};
  };
  if ((protection.checks & kCheckGuard) != 0 && made.guard != found.guard) {
    return differs(Field::kGuard, found.guard, made.guard);
  }
  if (!IsT10Dif(guard)) return std::nullopt;
  if ((protection.checks & kCheckApplicationTag) != 0 &&
      made.application_tag != found.application_tag) {
    return differs(Field::kApplicationTag, found.application_tag, made.application_tag);
  }
  if ((protection.checks & kCheckReferenceTag) != 0 && made.reference_tag != found.reference_tag) {
    return differs(Field::kReferenceTag, found.reference_tag, made.reference_tag);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Mismatch> Convert(const Protection& protection, Direction direction,
                                std::span<const std::byte> input, std::span<std::byte> output) {
  const bool to_wire = direction == Direction::kToWire;
  const Guard from = to_wire ? protection.memory : protection.wire;
  const Guard to = to_wire ? protection.wire : protection.memory;
  const size_t block_bytes = protection.block_bytes;
  const size_t step = block_bytes + SignatureBytes(from);
  std::optional<Mismatch> mismatch;
  size_t out = 0;
  for (size_t in = 0, block = 0; in + step <= input.size(); in += step, ++block) {
    const Block data = input.subspan(in, block_bytes);
    const auto number = static_cast<uint32_t>(block);
    const Signature found = Load(from, data.data() + block_bytes);
    if (from != Guard::kNone && !mismatch) {
      mismatch = Compare(protection, from, number, Make(protection, from, number, data), found);
    }
    std::memcpy(&output[out], data.data(), block_bytes);
    out += block_bytes;
    // Like a device by default: parts of the signature that have the same format in both domains are copied.
    if (to == Guard::kNone) continue;
    if (to == from) {
      std::memcpy(&output[out], data.data() + block_bytes, SignatureBytes(to));
    } else {
      Signature made = Make(protection, to, number, data);
      if (IsT10Dif(from)) {
        made.application_tag = found.application_tag;
        made.reference_tag = found.reference_tag;
      }
      Store(made, to, &output[out]);
    }
    out += SignatureBytes(to);
  }
  return mismatch;
}

std::optional<Mismatch> Check(const Protection& protection, Direction direction,
                              std::span<const std::byte> input) {
  const Guard from = direction == Direction::kToWire ? protection.memory : protection.wire;
  if (from == Guard::kNone) return std::nullopt;
  const size_t block_bytes = protection.block_bytes;
  const size_t step = block_bytes + SignatureBytes(from);
  for (size_t in = 0, block = 0; in + step <= input.size(); in += step, ++block) {
    const Block data = input.subspan(in, block_bytes);
    const auto number = static_cast<uint32_t>(block);
    const auto mismatch = Compare(protection, from, number, Make(protection, from, number, data),
                                  Load(from, data.data() + block_bytes));
    if (mismatch) return mismatch;
  }
  return std::nullopt;
}

void Protect(const Protection& protection, std::span<const std::byte> data,
             std::span<std::byte> output) {
  Protection inserting = protection;
  inserting.wire = Guard::kNone;
  // Converts from a wire without signatures into memory.
  Convert(inserting, Direction::kFromWire, data, output);
}

}  // namespace sluice::integrity
