// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/mkey_post.h"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/qp.h"
#include "transport/softdc/model/send_queue.h"
#include "transport/softdc/model/signature_attr.h"

namespace sluice::softdc {
namespace {

// The room of a WQE: the inline data of the queue, and the word before them. A queue without inline data still has room for four entries
// (man mlx5dv_wr_mkey_configure).
constexpr uint32_t kInlineHeaderBytes = 4;
constexpr uint32_t kDefaultRoomBytes = 64;
constexpr uint32_t kEntryBytes = 16;
constexpr uint32_t kLayoutGrainBytes = 64;
constexpr uint32_t kSignatureBytes = 64;

constexpr uint32_t kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

MkeyPoster& PosterOf(mlx5dv_qp_ex* dv) { return SendQueue::Of(dv).mkey_poster(); }

void ConfigureOp(mlx5dv_qp_ex* dv, mlx5dv_mkey* mkey, uint8_t setters,
                 mlx5dv_mkey_conf_attr* attr) {
  PosterOf(dv).Configure(mkey, setters, *attr);
}

void SetAccessOp(mlx5dv_qp_ex* dv, uint32_t access) { PosterOf(dv).SetAccess(access); }

void SetListOp(mlx5dv_qp_ex* dv, uint16_t count, const ibv_sge* sges) {
  PosterOf(dv).SetList(count, sges);
}

void SetInterleavedOp(mlx5dv_qp_ex* dv, uint32_t repeat_count, uint16_t count,
                      const mlx5dv_mr_interleaved* data) {
  PosterOf(dv).SetInterleaved(repeat_count, count, data);
}

void SetSignatureOp(mlx5dv_qp_ex* dv, const mlx5dv_sig_block_attr* attr) {
  PosterOf(dv).SetSignature(*attr);
}

void SetCryptoOp(mlx5dv_qp_ex* dv, const mlx5dv_crypto_attr*) { PosterOf(dv).SetCrypto(); }

void ListOp(mlx5dv_qp_ex* dv, mlx5dv_mkey* mkey, uint32_t access, uint16_t count, ibv_sge* sges) {
  MkeyPoster& poster = PosterOf(dv);
  poster.Configure(mkey, 2, {});
  poster.SetAccess(access);
  poster.SetList(count, sges);
}

void InterleavedOp(mlx5dv_qp_ex* dv, mlx5dv_mkey* mkey, uint32_t access, uint32_t repeat_count,
                   uint16_t count, mlx5dv_mr_interleaved* data) {
  MkeyPoster& poster = PosterOf(dv);
  poster.Configure(mkey, 2, {});
  poster.SetAccess(access);
  poster.SetInterleaved(repeat_count, count, data);
}

}  // namespace

void MkeyPoster::FillOps(uint64_t mkey_ops, mlx5dv_qp_ex* dv) {
  if ((mkey_ops & MLX5DV_QP_EX_WITH_MR_LIST) != 0) dv->wr_mr_list = &ListOp;
  if ((mkey_ops & MLX5DV_QP_EX_WITH_MR_INTERLEAVED) != 0) dv->wr_mr_interleaved = &InterleavedOp;
  if ((mkey_ops & MLX5DV_QP_EX_WITH_MKEY_CONFIGURE) == 0) return;
  dv->wr_mkey_configure = &ConfigureOp;
  dv->wr_set_mkey_access_flags = &SetAccessOp;
  dv->wr_set_mkey_layout_list = &SetListOp;
  dv->wr_set_mkey_layout_interleaved = &SetInterleavedOp;
  dv->wr_set_mkey_sig_block = &SetSignatureOp;
  dv->wr_set_mkey_crypto = &SetCryptoOp;
}

uint32_t MkeyPoster::RoomBytes() const {
  const uint32_t room_bytes = queue_.attributes().max_inline_bytes + kInlineHeaderBytes;
  return std::clamp(room_bytes, kDefaultRoomBytes, (kMaxMkeyEntries + 1) * kEntryBytes - 1);
}

void MkeyPoster::Configure(mlx5dv_mkey* mkey, uint8_t setters, const mlx5dv_mkey_conf_attr& attr) {
  // Drops configurations of WQEs that have left the queue.
  built_.erase(built_.begin(), built_.lower_bound(queue_.emitted()));
  building_ = false;
  if ((queue_.qp().qp_ex.wr_flags & IBV_SEND_INLINE) == 0 || attr.comp_mask != 0 ||
      (attr.conf_flags & ~uint32_t{MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR}) != 0) {
    return queue_.Fail(EOPNOTSUPP);
  }
  if (queue_.NewWqe(IBV_WR_DRIVER1) == nullptr) return;
  Built& built = built_[queue_.head_ - 1];
  built = {.missing_setters = setters};
  built.configuration.mkey = Mkey::From(mkey);
  built.configuration.key = mkey->lkey;
  built.configuration.resets_signature =
      (attr.conf_flags & MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR) != 0;
  building_ = true;
  if (setters == 0) return Finalize(built);
  queue_.missing_setters_ = SendQueue::kMkeySetters;
}

MkeyPoster::Built* MkeyPoster::Current() {
  if (queue_.batch_error_ != 0) return nullptr;
  if (building_) return &built_.rbegin()->second;
  queue_.Fail(EINVAL);
  return nullptr;
}

void MkeyPoster::Advance(Built& built) {
  if (--built.missing_setters == 0) Finalize(built);
}

void MkeyPoster::SetAccess(uint32_t access) {
  Built* built = Current();
  if (built == nullptr) return;
  if ((access & ~kKnownAccess) != 0 || built->configuration.access) return queue_.Fail(EINVAL);
  built->configuration.access = access;
  Advance(*built);
}

void MkeyPoster::SetLayout(uint32_t repeat_count, std::span<const MkeyEntry> entries,
                           uint32_t extra_entries) {
  Built* built = Current();
  if (built == nullptr) return;
  const uint32_t room_entries = RoomBytes() / kEntryBytes - extra_entries;
  if (entries.size() > std::min(room_entries, built->configuration.mkey->max_entries())) {
    return queue_.Fail(ENOMEM);
  }
  if (built->configuration.layout) return queue_.Fail(EINVAL);
  built->configuration.layout = {.repeat_count = repeat_count,
                                 .entries = {entries.begin(), entries.end()}};
  const auto used_bytes = (static_cast<uint32_t>(entries.size()) + extra_entries) * kEntryBytes;
  built->layout_bytes =
      (used_bytes + kLayoutGrainBytes - 1) / kLayoutGrainBytes * kLayoutGrainBytes;
  Advance(*built);
}

void MkeyPoster::SetList(uint16_t count, const ibv_sge* sges) {
  std::vector<MkeyEntry> entries(count);
  for (size_t i = 0; i < entries.size(); ++i) {
    entries[i] = {.address = sges[i].addr, .bytes = sges[i].length, .lkey = sges[i].lkey};
  }
  SetLayout(1, entries, 0);
}

void MkeyPoster::SetInterleaved(uint32_t repeat_count, uint16_t count,
                                const mlx5dv_mr_interleaved* data) {
  std::vector<MkeyEntry> entries(count);
  for (size_t i = 0; i < entries.size(); ++i) {
    entries[i] = {.address = data[i].addr,
                  .bytes = data[i].bytes_count,
                  .skip_bytes = data[i].bytes_skip,
                  .lkey = data[i].lkey};
  }
  SetLayout(repeat_count, entries, /*extra_entries=*/1);
}

void MkeyPoster::SetSignature(const mlx5dv_sig_block_attr& attr) {
  Built* built = Current();
  if (built == nullptr) return;
  signature::BlockSignature signature;
  if (!built->configuration.mkey->has_signatures() || built->configuration.signature ||
      ReadSignatureAttr(attr, &signature) != 0) {
    return queue_.Fail(EINVAL);
  }
  built->configuration.signature = signature;
  Advance(*built);
}

void MkeyPoster::SetCrypto() {
  // No key of softdc was created for crypto.
  if (Current() != nullptr) queue_.Fail(EINVAL);
}

void MkeyPoster::Finalize(Built& built) {
  building_ = false;
  queue_.missing_setters_ = 0;
  const MkeyConfiguration& configuration = built.configuration;
  if (configuration.signature) {
    if (built.layout_bytes + kSignatureBytes > RoomBytes()) return queue_.Fail(ENOMEM);
    // The device counts protected bytes in 32 bits.
    MkeyConfig config;
    if (configuration.layout) {
      config.repeat_count = configuration.layout->repeat_count;
      config.entry_count = static_cast<uint32_t>(configuration.layout->entries.size());
      std::copy(configuration.layout->entries.begin(), configuration.layout->entries.end(),
                config.entries.begin());
      if (LengthBytes(config) > UINT32_MAX) return queue_.Fail(EINVAL);
    }
  }
  // Only the last WQE completes, for all of them.
  Wqe* last = &queue_.slot(queue_.head_ - 1);
  for (uint32_t more = configuration.mkey->Build(&built.configuration); more != 0; --more) {
    last->quiet = true;
    last = queue_.NewWqe(IBV_WR_DRIVER1);
    if (last == nullptr) return;
  }
}

bool MkeyPoster::Run(uint64_t sequence) {
  const auto it = built_.find(sequence);
  // It is a further WQE. The first WQE has done everything.
  if (it == built_.end()) return true;
  return queue_.context().mkeys().Apply(it->second.configuration, queue_.pd());
}

void MkeyPoster::Forget(uint64_t sequence) {
  built_.erase(built_.lower_bound(sequence), built_.end());
  building_ = false;
}

}  // namespace sluice::softdc
