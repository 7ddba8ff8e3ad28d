// SPDX-License-Identifier: Apache-2.0
//
// BlockSignature: the protection of data, block by block, in memory and on the wire, as mlx5dv_wr_set_mkey_sig_block(3) sets it. The values
// are plain and may be in shared memory. A reader of shared memory calls Valid() first.
//
// The bytes of a domain: block | signature | block | signature ... The last block may be incomplete; it then has no signature. The bytes of
// a signature, in their order:
//
//   CRC32, CRC32C   crc, little-endian (4)
//   T10-DIF         guard (2) application tag (2) reference tag (4), each big-endian
//
// A mask selects the bytes that are checked or copied. Bit 7 is the first byte of a T10-DIF field. For a CRC, bit 7 is the most significant
// byte, which is the last; bits 3..0 are not used (man mlx5dv_wr_set_mkey_sig_block).
#ifndef SLUICE_TRANSPORT_SOFTDC_SIGNATURE_BLOCK_SIGNATURE_H_
#define SLUICE_TRANSPORT_SOFTDC_SIGNATURE_BLOCK_SIGNATURE_H_

#include <cstdint>

namespace sluice::softdc::signature {

enum class Kind : uint8_t { kNone, kCrc32, kCrc32c, kT10DifCrc, kT10DifIpChecksum };
inline constexpr uint8_t kLastKind = static_cast<uint8_t>(Kind::kT10DifIpChecksum);

// In the order of enum mlx5dv_block_size.
enum class BlockSize : uint8_t { k512, k520, k4048, k4096, k4160 };
inline constexpr uint8_t kLastBlockSize = static_cast<uint8_t>(BlockSize::k4160);
inline constexpr uint32_t kMaxBlockBytes = 4160;
inline constexpr uint32_t kMaxSignatureBytes = 8;

inline constexpr uint8_t kGuardMask = 0xc0;
inline constexpr uint8_t kApplicationTagMask = 0x30;
inline constexpr uint8_t kReferenceTagMask = 0x0f;
inline constexpr uint8_t kCrc32Mask = 0xf0;

// The blocks of T10-DIF that are not checked.
enum class Escape : uint8_t {
  kNever,
  kApplicationTag,               // application tag 0xffff
  kApplicationAndReferenceTags,  // and reference tag 0xffffffff
};

struct Domain {
  Kind kind = Kind::kNone;
  BlockSize block_size = BlockSize::k512;
  Escape escape = Escape::kNever;
  uint8_t increments_reference_tag = 0;  // 1: by one each block
  uint32_t seed = 0;                     // of the CRC or the guard
  uint32_t reference_tag = 0;            // of the first block
  uint16_t application_tag = 0;
  uint16_t reserved = 0;

  bool operator==(const Domain&) const = default;
};
static_assert(sizeof(Domain) == 16);

struct BlockSignature {
  Domain memory;
  Domain wire;
  uint8_t check_mask = 0;  // of the domain that bytes come from
  uint8_t copy_mask = 0;   // bytes that are copied from one domain to the other
  uint8_t reserved[6] = {};

  bool operator==(const BlockSignature&) const = default;
};
static_assert(sizeof(BlockSignature) == 40);

inline bool IsT10Dif(Kind kind) {
  return kind == Kind::kT10DifCrc || kind == Kind::kT10DifIpChecksum;
}

inline uint32_t BlockBytes(const Domain& domain) {
  switch (domain.block_size) {
    case BlockSize::k512:
      return 512;
    case BlockSize::k520:
      return 520;
    case BlockSize::k4048:
      return 4048;
    case BlockSize::k4096:
      return 4096;
    case BlockSize::k4160:
      return 4160;
  }
  return 512;
}

inline uint32_t SignatureBytes(const Domain& domain) {
  if (domain.kind == Kind::kNone) return 0;
  return IsT10Dif(domain.kind) ? 8 : 4;
}

inline bool Valid(const Domain& domain) {
  return static_cast<uint8_t>(domain.kind) <= kLastKind &&
         static_cast<uint8_t>(domain.block_size) <= kLastBlockSize;
}
inline bool Valid(const BlockSignature& signature) {
  return Valid(signature.memory) && Valid(signature.wire);
}

// Returns whether blocks and signatures of both domains have the same form, so that a signature can be copied. The two guards of T10-DIF
// count as the same form.
inline bool SameStructure(const Domain& a, const Domain& b) {
  const bool alike = IsT10Dif(a.kind) ? IsT10Dif(b.kind) : a.kind == b.kind;
  return a.kind != Kind::kNone && alike && a.block_size == b.block_size;
}

// Returns the copy mask that applies unless the user sets another. T10-DIF: the fields that both domains would compute identically. CRC:
// all bytes. 0 if the structures differ.
uint8_t DefaultCopyMask(const Domain& memory, const Domain& wire);

// DomainBytes returns the size of `data_bytes` of data in a domain; DataBytes returns the reverse. If a domain ends inside a signature,
// DataBytes counts the data before this signature.
uint64_t DomainBytes(const Domain& domain, uint64_t data_bytes);
uint64_t DataBytes(const Domain& domain, uint64_t domain_bytes);

}  // namespace sluice::softdc::signature

#endif  // SLUICE_TRANSPORT_SOFTDC_SIGNATURE_BLOCK_SIGNATURE_H_
