// SPDX-License-Identifier: Apache-2.0
//
// SignatureKeys: memory keys through which the device checks, inserts and strips signatures during a transfer (man
// mlx5dv_create_mkey, mlx5dv_wr_set_mkey_sig_block).
//
// Purpose       A fixed number of keys. Each transfer configures its key, which also arms it again after a mismatch.
// Ownership     A signed queue. Its queue pair is destroyed first.
// Threads       Create() and the destructor: any (they block). Other calls: the polling thread.
#ifndef SLUICE_TRANSPORT_INTEGRITY_SIGNATURE_KEYS_H_
#define SLUICE_TRANSPORT_INTEGRITY_SIGNATURE_KEYS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/device/device.h"
#include "transport/integrity/mismatch.h"
#include "transport/integrity/protection.h"

namespace sluice::integrity {

// Inline bytes that a queue pair needs to configure keys: for a list of one piece and two signatures.
inline constexpr uint32_t kConfigureInlineBytes = 256;
// Maximum number of send queue entries for a configuration: one, and one for each domain.
inline constexpr uint32_t kConfigureSlots = 3;

// The signatures that a device supports. A value.
class SignatureSupport {
 public:
  // Queries the device. Returns an error if the device supports no signatures.
  static absl::StatusOr<SignatureSupport> Ask(device::Device& device);
  // UNIMPLEMENTED: this device does not support that signature, or blocks of that size.
  absl::Status Supports(const Protection& protection) const;

 private:
  explicit SignatureSupport(const mlx5dv_sig_caps& caps) : caps_(caps) {}

  mlx5dv_sig_caps caps_;
};

class SignatureKeys {
 public:
  static absl::StatusOr<SignatureKeys> Create(device::Device& device, uint32_t count,
                                              ibv_pd* domain);
  SignatureKeys(SignatureKeys&& other) noexcept;
  SignatureKeys& operator=(SignatureKeys&&) = delete;
  ~SignatureKeys();

  const SignatureSupport& support() const { return support_; }
  // Posts an unsignalled request that configures key `index`: the key then gives access to `memory`, with `data_bytes` of data, from
  // offset 0 on. `from`: guard of the domain that is checked. `protection` must have a signature in at least one domain. Call it between
  // ibv_wr_start and ibv_wr_complete, on a queue pair that was created for signature keys.
  void Configure(ibv_qp_ex* ex, mlx5dv_qp_ex* dv, uint64_t wr_id, uint32_t index,
                 const Protection& protection, Guard from, std::byte* memory, uint32_t lkey,
                 uint64_t data_bytes) const;
  uint32_t lkey(uint32_t index) const { return keys_[index]->lkey; }
  // Returns the mismatch that the device found for this key, if any, and clears it. Poll the completions
  // of the transfer first. Mismatch::block counts in the domain that the data came from.
  absl::StatusOr<std::optional<Mismatch>> Check(uint32_t index, const Protection& protection,
                                                Guard from) const;

 private:
  SignatureKeys(const verbs::VerbsApi& api, const SignatureSupport& support)
      : api_(api), support_(support) {}

  const verbs::VerbsApi& api_;
  const SignatureSupport support_;
  std::vector<mlx5dv_mkey*> keys_;
};

}  // namespace sluice::integrity

#endif  // SLUICE_TRANSPORT_INTEGRITY_SIGNATURE_KEYS_H_
