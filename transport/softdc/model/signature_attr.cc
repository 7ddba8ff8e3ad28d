// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/signature_attr.h"

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace sluice::softdc {
namespace {

using signature::Domain;
using signature::Escape;
using signature::Kind;

constexpr uint32_t kDifFlags = MLX5DV_SIG_T10DIF_FLAG_REF_REMAP |
                               MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE |
                               MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE;

// Returns the number that the user wrote, even if it is not a value of the enumeration.
template <typename Enum>
uint32_t Raw(const Enum& value) {
  uint32_t raw;
  static_assert(sizeof(raw) == sizeof(value));
  std::memcpy(&raw, &value, sizeof(raw));
  return raw;
}

bool ReadDif(const mlx5dv_sig_t10dif& dif, Domain* domain) {
  if (dif.bg != 0 && dif.bg != UINT16_MAX) return false;
  const uint32_t type = Raw(dif.bg_type);
  if (type != MLX5DV_SIG_T10DIF_CRC && type != MLX5DV_SIG_T10DIF_CSUM) return false;
  if ((dif.flags & ~kDifFlags) != 0) return false;
  domain->kind = dif.bg_type == MLX5DV_SIG_T10DIF_CRC ? Kind::kT10DifCrc : Kind::kT10DifIpChecksum;
  domain->seed = dif.bg;
  domain->application_tag = dif.app_tag;
  domain->reference_tag = dif.ref_tag;
  domain->increments_reference_tag = (dif.flags & MLX5DV_SIG_T10DIF_FLAG_REF_REMAP) != 0 ? 1 : 0;
  // If both are requested, the device applies the narrower one.
  if ((dif.flags & MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE) != 0) {
    domain->escape = Escape::kApplicationAndReferenceTags;
  } else if ((dif.flags & MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE) != 0) {
    domain->escape = Escape::kApplicationTag;
  }
  return true;
}

bool ReadCrc(const mlx5dv_sig_crc& crc, Domain* domain) {
  switch (Raw(crc.type)) {
    case MLX5DV_SIG_CRC_TYPE_CRC32:
      domain->kind = Kind::kCrc32;
      break;
    case MLX5DV_SIG_CRC_TYPE_CRC32C:
      domain->kind = Kind::kCrc32c;
      break;
    default:
      return false;  // CRC64_XP10 is not among the capabilities
  }
  domain->seed = static_cast<uint32_t>(crc.seed);
  return crc.seed == 0 || crc.seed == UINT32_MAX;
}

bool ReadDomain(const mlx5dv_sig_block_domain* from, Domain* domain) {
  *domain = {};
  if (from == nullptr) return true;
  if (Raw(from->block_size) > MLX5DV_BLOCK_SIZE_4160 || from->comp_mask != 0) return false;
  domain->block_size = static_cast<signature::BlockSize>(from->block_size);
  switch (Raw(from->sig_type)) {
    case MLX5DV_SIG_TYPE_T10DIF:
      return from->sig.dif != nullptr && ReadDif(*from->sig.dif, domain);
    case MLX5DV_SIG_TYPE_CRC:
      return from->sig.crc != nullptr && ReadCrc(*from->sig.crc, domain);
  }
  return false;
}

}  // namespace

mlx5dv_sig_caps SignatureCaps() {
  return {.block_size = MLX5DV_BLOCK_SIZE_CAP_512 | MLX5DV_BLOCK_SIZE_CAP_520 |
                        MLX5DV_BLOCK_SIZE_CAP_4048 | MLX5DV_BLOCK_SIZE_CAP_4096 |
                        MLX5DV_BLOCK_SIZE_CAP_4160,
          .block_prot = MLX5DV_SIG_PROT_CAP_T10DIF | MLX5DV_SIG_PROT_CAP_CRC,
          .t10dif_bg = MLX5DV_SIG_T10DIF_BG_CAP_CRC | MLX5DV_SIG_T10DIF_BG_CAP_CSUM,
          .crc_type = MLX5DV_SIG_CRC_TYPE_CAP_CRC32 | MLX5DV_SIG_CRC_TYPE_CAP_CRC32C};
}

int ReadSignatureAttr(const mlx5dv_sig_block_attr& attr, signature::BlockSignature* signature) {
  *signature = {};
  if ((attr.mem == nullptr && attr.wire == nullptr) || attr.comp_mask != 0 ||
      (attr.flags & ~uint32_t{MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK}) != 0 ||
      !ReadDomain(attr.mem, &signature->memory) || !ReadDomain(attr.wire, &signature->wire)) {
    return EINVAL;
  }
  signature->check_mask = attr.check_mask;
  signature->copy_mask = signature::DefaultCopyMask(signature->memory, signature->wire);
  // The driver uses copy_mask only if there is a signature on the wire.
  if ((attr.flags & MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK) != 0 && attr.wire != nullptr) {
    if (!signature::SameStructure(signature->memory, signature->wire)) return EINVAL;
    signature->copy_mask = attr.copy_mask;
  }
  return 0;
}

mlx5dv_mkey_err ToMkeyError(const signature::Mismatch& mismatch) {
  mlx5dv_mkey_err error{};
  switch (mismatch.fault) {
    case signature::Fault::kGuard:
      error.err_type = MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD;
      break;
    case signature::Fault::kApplicationTag:
      error.err_type = MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG;
      break;
    case signature::Fault::kReferenceTag:
      error.err_type = MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG;
      break;
  }
  error.err.sig = {.actual_value = mismatch.actual,
                   .expected_value = mismatch.expected,
                   .offset = mismatch.offset_bytes};
  return error;
}

}  // namespace sluice::softdc
