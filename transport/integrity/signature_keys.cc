// SPDX-License-Identifier: Apache-2.0
#include "transport/integrity/signature_keys.h"

#include <cerrno>
#include <utility>

#include "transport/base/error.h"

namespace sluice::integrity {
namespace {

// A domain in the format of the device. Not movable, because its parts point to each other.
class Domain {
 public:
  Domain(Guard guard, const Protection& protection) : used_(guard != Guard::kNone) {
    domain_.block_size =
        protection.block_bytes == 512 ? MLX5DV_BLOCK_SIZE_512 : MLX5DV_BLOCK_SIZE_4096;
    if (IsT10Dif(guard)) {
      domain_.sig_type = MLX5DV_SIG_TYPE_T10DIF;
      domain_.sig.dif = &dif_;
      dif_.bg_type = guard == Guard::kT10DifCrc ? MLX5DV_SIG_T10DIF_CRC : MLX5DV_SIG_T10DIF_CSUM;
      dif_.app_tag = protection.application_tag;
      dif_.ref_tag = protection.reference_tag;
      dif_.flags = MLX5DV_SIG_T10DIF_FLAG_REF_REMAP;
    } else {
      domain_.sig_type = MLX5DV_SIG_TYPE_CRC;
      domain_.sig.crc = &crc_;
      crc_.type = guard == Guard::kCrc32 ? MLX5DV_SIG_CRC_TYPE_CRC32 : MLX5DV_SIG_CRC_TYPE_CRC32C;
      crc_.seed = UINT32_MAX;
    }
  }
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  const mlx5dv_sig_block_domain* get() const { return used_ ? &domain_ : nullptr; }

 private:
  const bool used_;
  mlx5dv_sig_t10dif dif_ = {};
  mlx5dv_sig_crc crc_ = {};
  mlx5dv_sig_block_domain domain_ = {};
};

// Returns the check mask for the domain that the data comes from.
uint8_t CheckMask(Guard from, uint8_t checks) {
  if (!IsT10Dif(from)) return (checks & kCheckGuard) != 0 ? MLX5DV_SIG_MASK_CRC32 : 0;
  uint8_t mask = 0;
  if ((checks & kCheckGuard) != 0) mask |= MLX5DV_SIG_MASK_T10DIF_GUARD;
  if ((checks & kCheckApplicationTag) != 0) mask |= MLX5DV_SIG_MASK_T10DIF_APPTAG;
  if ((checks & kCheckReferenceTag) != 0) mask |= MLX5DV_SIG_MASK_T10DIF_REFTAG;
  return mask;
}

bool Has(const mlx5dv_sig_caps& caps, Guard guard) {
  switch (guard) {
    case Guard::kNone:
      return true;
    case Guard::kT10DifCrc:
      return (caps.block_prot & MLX5DV_SIG_PROT_CAP_T10DIF) != 0 &&
             (caps.t10dif_bg & MLX5DV_SIG_T10DIF_BG_CAP_CRC) != 0;
    case Guard::kT10DifIpChecksum:
      return (caps.block_prot & MLX5DV_SIG_PROT_CAP_T10DIF) != 0 &&
             (caps.t10dif_bg & MLX5DV_SIG_T10DIF_BG_CAP_CSUM) != 0;
    case Guard::kCrc32:
      return (caps.block_prot & MLX5DV_SIG_PROT_CAP_CRC) != 0 &&
             (caps.crc_type & MLX5DV_SIG_CRC_TYPE_CAP_CRC32) != 0;
    case Guard::kCrc32c:
      return (caps.block_prot & MLX5DV_SIG_PROT_CAP_CRC) != 0 &&
             (caps.crc_type & MLX5DV_SIG_CRC_TYPE_CAP_CRC32C) != 0;
  }
  return false;
}

}  // namespace

absl::StatusOr<SignatureSupport> SignatureSupport::Ask(device::Device& device) {
  mlx5dv_context dv = {};
  dv.comp_mask = MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD;
  int error_number = device.api().dv_query_device(device.context(), &dv);
  if (error_number == 0 && (dv.comp_mask & MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD) == 0) {
    error_number = EOPNOTSUPP;
  }
  if (error_number != 0) {
    return base::ErrnoError(error_number, "signature keys of " + device.name(),
                            {.layer = "integrity",
                             .operation = "mlx5dv_query_device",
                             .remedy = "set SignedQueueOptions::offload so that the CPU checks"});
  }
  return SignatureSupport(dv.sig_caps);
}

absl::StatusOr<SignatureKeys> SignatureKeys::Create(device::Device& device, uint32_t count,
                                                    ibv_pd* domain) {
  const verbs::VerbsApi& api = device.api();
  auto support = SignatureSupport::Ask(device);
  if (!support.ok()) return support.status();
  SignatureKeys keys(api, *support);
  for (uint32_t i = 0; i < count; ++i) {
    mlx5dv_mkey_init_attr attr = {};
    attr.pd = domain;
    attr.create_flags =
        MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE;
    attr.max_entries = 1;
    errno = 0;
    mlx5dv_mkey* key = api.dv_create_mkey(&attr);
    if (key == nullptr) {
      return base::ErrnoError(errno != 0 ? errno : EINVAL,
                              "signature key " + std::to_string(i) + " of " + std::to_string(count),
                              {.layer = "integrity",
                               .operation = "mlx5dv_create_mkey",
                               .remedy = "lower the number of open transfers"});
    }
    keys.keys_.push_back(key);
  }
  return keys;
}

SignatureKeys::SignatureKeys(SignatureKeys&& other) noexcept
    : api_(other.api_), support_(other.support_), keys_(std::exchange(other.keys_, {})) {}

SignatureKeys::~SignatureKeys() {
  for (mlx5dv_mkey* key : keys_) api_.dv_destroy_mkey(key);
}

absl::Status SignatureSupport::Supports(const Protection& protection) const {
  const auto refused = [](const std::string& what) {
    return base::Error(
        absl::StatusCode::kUnimplemented, "this device does not support " + what,
        {.layer = "integrity",
         .operation = "protected transfer",
         .remedy =
             "use another protection, or set SignedQueueOptions::offload so that the CPU checks"});
  };
  for (const Guard guard : {protection.memory, protection.wire}) {
    if (!Has(caps_, guard)) return refused(std::string(Name(guard)));
  }
  const uint64_t block_size =
      protection.block_bytes == 512 ? MLX5DV_BLOCK_SIZE_CAP_512 : MLX5DV_BLOCK_SIZE_CAP_4096;
  if ((caps_.block_size & block_size) == 0) {
    return refused("blocks of " + std::to_string(protection.block_bytes) + " bytes");
  }
  return absl::OkStatus();
}

void SignatureKeys::Configure(ibv_qp_ex* ex, mlx5dv_qp_ex* dv, uint64_t wr_id, uint32_t index,
                              const Protection& protection, Guard from, std::byte* memory,
                              uint32_t lkey, uint64_t data_bytes) const {
  const Domain of_memory(protection.memory, protection);
  const Domain of_wire(protection.wire, protection);
  mlx5dv_sig_block_attr attr = {};
  attr.mem = of_memory.get();
  attr.wire = of_wire.get();
  attr.check_mask = CheckMask(from, protection.checks);
  ibv_sge piece = {.addr = reinterpret_cast<uint64_t>(memory),
                   .length = static_cast<uint32_t>(MemoryBytes(protection, data_bytes)),
                   .lkey = lkey};
  ex->wr_id = wr_id;
  ex->wr_flags = IBV_SEND_INLINE;
  mlx5dv_mkey_conf_attr conf = {};
  mlx5dv_wr_mkey_configure(dv, keys_[index], 3, &conf);
  mlx5dv_wr_set_mkey_access_flags(dv, IBV_ACCESS_LOCAL_WRITE);
  mlx5dv_wr_set_mkey_layout_list(dv, 1, &piece);
  mlx5dv_wr_set_mkey_sig_block(dv, &attr);
}

absl::StatusOr<std::optional<Mismatch>> SignatureKeys::Check(uint32_t index,
                                                             const Protection& protection,
                                                             Guard from) const {
  mlx5dv_mkey_err error = {};
  const int error_number = api_.dv_mkey_check(keys_[index], &error);
  if (error_number != 0) {
    return base::ErrnoError(error_number, "mlx5dv_mkey_check", {.layer = "integrity"});
  }
  Mismatch mismatch;
  switch (error.err_type) {
    case MLX5DV_MKEY_NO_ERR:
      return std::nullopt;
    case MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD:
      mismatch.field = Field::kGuard;
      break;
    case MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG:
      mismatch.field = Field::kReferenceTag;
      break;
    case MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG:
      mismatch.field = Field::kApplicationTag;
      break;
  }
  mismatch.block =
      static_cast<uint32_t>(error.err.sig.offset / (protection.block_bytes + SignatureBytes(from)));
  mismatch.expected = static_cast<uint32_t>(error.err.sig.expected_value);
  mismatch.actual = static_cast<uint32_t>(error.err.sig.actual_value);
  return mismatch;
}

}  // namespace sluice::integrity
