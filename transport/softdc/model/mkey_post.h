// SPDX-License-Identifier: Apache-2.0
//
// MkeyPoster: the configuration WRs of one send queue: mlx5dv_wr_mkey_configure(3) with its setters,
// mlx5dv_wr_mr_list and mlx5dv_wr_mr_interleaved.
//
//   Configure(n setters) -> n different setters -> the WQE is whole, and so is one more for each signature
//   that it sets up
//
// As on a device the configuration travels in the WQE's inline room, which bounds it. Errors show at
// ibv_wr_complete: EOPNOTSUPP without IBV_SEND_INLINE or for unknown flags, ENOMEM for what has no room,
// EINVAL for the rest.
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

  // The WQE at `sequence` runs. False: its key is not there any more, or not of this protection domain.
  bool Run(uint64_t sequence);
  // WQEs from `sequence` on were not posted after all.
  void Forget(uint64_t sequence);

 private:
  struct Built {
    MkeyConfiguration configuration;
    uint8_t missing_setters = 0;
    uint32_t layout_bytes = 0;  // of the inline room, rounded as the device wants it
  };
  // The WQE that setters speak about; null with the batch failed when there is none.
  Built* Current();
  // A setter was applied, or the builder wants none.
  void Advance(Built& built);
  void Finalize(Built& built);
  void SetLayout(uint32_t repeat_count, std::span<const MkeyEntry> entries, uint32_t extra_entries);
  uint32_t RoomBytes() const;

  SendQueue& queue_;
  std::map<uint64_t, Built> built_;  // by the sequence of the first WQE
  bool building_ = false;            // the last of them
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_POST_H_
