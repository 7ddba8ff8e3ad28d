// SPDX-License-Identifier: Apache-2.0
//
// MkeyPoster: the configuration WRs of one send queue: mlx5dv_wr_mkey_configure(3) with its setters,
// mlx5dv_wr_mr_list and mlx5dv_wr_mr_interleaved.
//
//   Configure(n setters) -> n different setters -> the WQE is complete, with one more WQE for each signature that it sets up
//
// As on a device, the configuration is in the WQE's inline data, which limits its size. ibv_wr_complete reports errors: EOPNOTSUPP without
// IBV_SEND_INLINE or for unknown flags, ENOMEM if the configuration has no room, EINVAL in all other cases.
//
// Threads       Under the queue's lock.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_POST_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_POST_H_

#include <infiniband/mlx5dv.h>

#include <cstdint>
#include <map>
#include <span>

#include "transport/softdc/model/mkey.h"

namespace sluice::softdc {

class SendQueue;

inline constexpr uint64_t kMkeyOps =
    MLX5DV_QP_EX_WITH_MKEY_CONFIGURE | MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MR_INTERLEAVED;

class MkeyPoster {
 public:
  explicit MkeyPoster(SendQueue& queue) : queue_(queue) {}

  // Sets the functions that `mkey_ops` allows.
  static void FillOps(uint64_t mkey_ops, mlx5dv_qp_ex* dv);

  void Configure(mlx5dv_mkey* mkey, uint8_t setters, const mlx5dv_mkey_conf_attr& attr);
  void SetAccess(uint32_t access);
  void SetList(uint16_t count, const ibv_sge* sges);
  void SetInterleaved(uint32_t repeat_count, uint16_t count, const mlx5dv_mr_interleaved* data);
  void SetSignature(const mlx5dv_sig_block_attr& attr);
  void SetCrypto();

  // Executes the WQE at `sequence`. Returns false if its key does not exist now, or belongs to another protection domain.
  bool Run(uint64_t sequence);
  // Drops the configurations of WQEs from `sequence` on, which were not posted.
  void Forget(uint64_t sequence);

 private:
  struct Built {
    MkeyConfiguration configuration;
    uint8_t missing_setters = 0;
    uint32_t layout_bytes = 0;  // in the inline data, rounded up as on a device
  };
  // Returns the configuration that setters change. If there is none, fails the batch and returns null.
  Built* Current();
  // Counts an applied setter. The last one completes the WQE.
  void Advance(Built& built);
  void Finalize(Built& built);
  void SetLayout(uint32_t repeat_count, std::span<const MkeyEntry> entries, uint32_t extra_entries);
  uint32_t RoomBytes() const;

  SendQueue& queue_;
  std::map<uint64_t, Built> built_;  // by the sequence of the first WQE
  bool building_ = false;            // the last entry is not complete yet
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_POST_H_
