// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/signature/transform.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "transport/softdc/signature/checksum.h"

namespace sluice::softdc::signature {
namespace {

using Field = std::array<std::byte, kMaxSignatureBytes>;  // the bytes of a signature in a domain

template <typename T>
void StoreBigEndian(T value, std::byte* to) {
  for (size_t i = sizeof(T); i-- > 0; value = static_cast<T>(value >> 8)) {
    to[i] = static_cast<std::byte>(value & 0xff);
  }
}

uint64_t LoadBigEndian(const std::byte* from, size_t size_bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < size_bytes; ++i) value = value << 8 | std::to_integer<uint64_t>(from[i]);
  return value;
}

// Returns whether a mask selects this byte of the field (block_signature.h).
bool Selects(uint8_t mask, Kind kind, size_t byte) {
  const size_t bit = IsT10Dif(kind) ? 7 - byte : 4 + byte;
  return (mask >> bit & 1) != 0;
}

// Computes the signature of a block from the configuration and the data.
Field Make(const Domain& domain, uint64_t block, std::span<const std::byte> data) {
  Field field{};
  switch (domain.kind) {
    case Kind::kNone:
      break;
    case Kind::kCrc32:
    case Kind::kCrc32c: {
      const uint32_t crc =
          domain.kind == Kind::kCrc32 ? Crc32(domain.seed, data) : Crc32c(domain.seed, data);
      for (size_t i = 0; i < sizeof(crc); ++i) field[i] = static_cast<std::byte>(crc >> (8 * i));
      break;
    }
    case Kind::kT10DifCrc:
    case Kind::kT10DifIpChecksum: {
      const auto seed = static_cast<uint16_t>(domain.seed);
      const uint16_t guard =
          domain.kind == Kind::kT10DifCrc ? Crc16T10Dif(seed, data) : IpChecksum(seed, data);
      const auto increment =
          domain.increments_reference_tag != 0 ? static_cast<uint32_t>(block) : 0;
      StoreBigEndian(guard, field.data());
      StoreBigEndian(domain.application_tag, field.data() + 2);
      StoreBigEndian(domain.reference_tag + increment, field.data() + 4);
      break;
    }
  }
  return field;
}

bool Escapes(const Domain& domain, const std::byte* field) {
  if (!IsT10Dif(domain.kind) || domain.escape == Escape::kNever) return false;
  if (LoadBigEndian(field + 2, 2) != 0xffff) return false;
  return domain.escape == Escape::kApplicationTag || LoadBigEndian(field + 4, 4) == 0xffffffff;
}

uint64_t CrcOf(const std::byte* field) {
  std::array<std::byte, 4> reversed;
  std::reverse_copy(field, field + reversed.size(), reversed.begin());
  return LoadBigEndian(reversed.data(), reversed.size());
}

// In the order in which faults of one block are reported.
struct Part {
  Fault fault;
  size_t begin, size_bytes;
};
constexpr std::array<Part, 3> kT10DifParts = {
    {{Fault::kGuard, 0, 2}, {Fault::kApplicationTag, 2, 2}, {Fault::kReferenceTag, 4, 4}}};

std::optional<Mismatch> Check(const Domain& domain, uint8_t mask, uint64_t block,
                              std::span<const std::byte> data, const std::byte* field) {
  if (mask == 0 || Escapes(domain, field)) return std::nullopt;
  const Field made = Make(domain, block, data);
  const auto differs = [&](size_t begin, size_t size_bytes) {
    for (size_t i = begin; i < begin + size_bytes; ++i) {
      if (made[i] != field[i] && Selects(mask, domain.kind, i)) return true;
    }
    return false;
  };
  if (!IsT10Dif(domain.kind)) {
    if (!differs(0, SignatureBytes(domain))) return std::nullopt;
    return Mismatch{.fault = Fault::kGuard, .actual = CrcOf(made.data()), .expected = CrcOf(field)};
  }
  for (const Part& part : kT10DifParts) {
    if (!differs(part.begin, part.size_bytes)) continue;
    return Mismatch{.fault = part.fault,
                    .actual = LoadBigEndian(made.data() + part.begin, part.size_bytes),
                    .expected = LoadBigEndian(field + part.begin, part.size_bytes)};
  }
  return std::nullopt;
}

// Splits the bytes of a domain into data and signatures.
class Reader {
 public:
  Reader(const Domain& domain, std::span<const std::byte> input) : domain_(domain), input_(input) {}

  // Returns the next block; the last block may be shorter. Sets *field to the block's signature, or to null if the signature is not
  // complete.
  std::span<const std::byte> Next(const std::byte** field) {
    const auto block = input_.first(std::min<size_t>(input_.size(), BlockBytes(domain_)));
    input_ = input_.subspan(block.size());
    const size_t signature_bytes = SignatureBytes(domain_);
    const bool whole = block.size() == BlockBytes(domain_) && input_.size() >= signature_bytes;
    *field = whole && signature_bytes != 0 ? input_.data() : nullptr;
    input_ = input_.subspan(std::min(input_.size(), signature_bytes));
    return block;
  }
  bool empty() const { return input_.empty(); }

 private:
  const Domain& domain_;
  std::span<const std::byte> input_;
};

void Append(std::span<const std::byte> bytes, std::vector<std::byte>* output) {
  output->insert(output->end(), bytes.begin(), bytes.end());
}

// Appends `data` with signatures to `output`. fields[i], if present, is the signature that block i came with.
void Protect(const Domain& domain, uint8_t copy_mask, uint64_t first_block,
             std::span<const std::byte> data, std::span<const std::optional<Field>> fields,
             std::vector<std::byte>* output) {
  const size_t block_bytes = BlockBytes(domain);
  for (size_t i = 0; !data.empty(); ++i) {
    const auto block = data.first(std::min(data.size(), block_bytes));
    data = data.subspan(block.size());
    Append(block, output);
    if (block.size() < block_bytes) return;
    Field field = Make(domain, first_block + i, block);
    if (i < fields.size() && fields[i].has_value()) {
      for (size_t byte = 0; byte < SignatureBytes(domain); ++byte) {
        if (Selects(copy_mask, domain.kind, byte)) field[byte] = (*fields[i])[byte];
      }
    }
    Append(std::span(field).first(SignatureBytes(domain)), output);
  }
}

// Returns whether the output equals the input: whole blocks, and every byte of their signatures is copied.
bool PassesAsItIs(const Domain& domain, uint8_t copy_mask, size_t size_bytes) {
  const size_t signature_bytes = SignatureBytes(domain);
  if (signature_bytes == 0 || size_bytes % (BlockBytes(domain) + signature_bytes) != 0)
    return false;
  for (size_t byte = 0; byte < signature_bytes; ++byte) {
    if (!Selects(copy_mask, domain.kind, byte)) return false;
  }
  return true;
}

std::optional<Mismatch> CheckWhole(const Domain& domain, uint8_t mask, uint64_t first_block,
                                   std::span<const std::byte> input) {
  const size_t block_bytes = BlockBytes(domain);
  const size_t both_bytes = block_bytes + SignatureBytes(domain);
  for (size_t at = 0; at < input.size(); at += both_bytes) {
    const std::byte* block = input.data() + at;
    auto mismatch = Check(domain, mask, first_block + at / both_bytes, {block, block_bytes},
                          block + block_bytes);
    if (!mismatch) continue;
    mismatch->offset_bytes = at;
    return mismatch;
  }
  return std::nullopt;
}

bool BeginsBlock(const Domain& domain, uint64_t data_start) {
  return domain.kind == Kind::kNone || data_start % BlockBytes(domain) == 0;
}

}  // namespace

std::optional<Extent> ExtentOf(const BlockSignature& signature, uint64_t wire_start,
                               uint64_t wire_bytes) {
  const Domain& memory = signature.memory;
  const Domain& wire = signature.wire;
  Extent extent;
  extent.data_start = DataBytes(wire, wire_start);
  if (!BeginsBlock(memory, extent.data_start) || !BeginsBlock(wire, extent.data_start) ||
      DomainBytes(wire, extent.data_start) != wire_start) {
    return std::nullopt;
  }
  extent.memory_start = DomainBytes(memory, extent.data_start);
  extent.memory_bytes = DomainBytes(memory, DataBytes(wire, wire_bytes));
  return extent;
}

std::optional<Mismatch> Transform(const BlockSignature& signature, Direction direction,
                                  uint64_t data_start, std::span<const std::byte> input,
                                  uint64_t wire_bytes, std::vector<std::byte>* output) {
  const bool to_wire = direction == Direction::kToWire;
  const Domain& from = to_wire ? signature.memory : signature.wire;
  const Domain& to = to_wire ? signature.wire : signature.memory;
  const uint8_t copy_mask = SameStructure(from, to) ? signature.copy_mask : 0;
  output->clear();

  if (PassesAsItIs(from, copy_mask, input.size())) {
    output->assign(input.begin(), input.end());
    if (to_wire && output->size() > wire_bytes) output->resize(wire_bytes);
    return CheckWhole(from, signature.check_mask, data_start / BlockBytes(from), input);
  }

  // Check and strip. Input without signatures is used unchanged.
  std::optional<Mismatch> mismatch;
  std::vector<std::byte> stripped;
  std::vector<std::optional<Field>> fields;
  std::span<const std::byte> data = input;
  if (from.kind != Kind::kNone) {
    stripped.reserve(input.size());
    const uint64_t first_block = data_start / BlockBytes(from);
    Reader reader(from, input);
    for (uint64_t i = 0; !reader.empty(); ++i) {
      const std::byte* field = nullptr;
      const std::span<const std::byte> block = reader.Next(&field);
      Append(block, &stripped);
      if (copy_mask != 0) {
        fields.emplace_back();
        if (field != nullptr) {
          fields.back().emplace();
          std::memcpy(fields.back()->data(), field, SignatureBytes(from));
        }
      }
      if (mismatch || field == nullptr) continue;
      mismatch = Check(from, signature.check_mask, first_block + i, block, field);
      if (mismatch) mismatch->offset_bytes = i * (BlockBytes(from) + SignatureBytes(from));
    }
    data = stripped;
  }

  output->reserve(DomainBytes(to, data.size()));
  if (to.kind == Kind::kNone) {
    Append(data, output);
  } else {
    Protect(to, copy_mask, data_start / BlockBytes(to), data, fields, output);
  }
  if (to_wire && output->size() > wire_bytes) output->resize(wire_bytes);
  return mismatch;
}

}  // namespace sluice::softdc::signature
