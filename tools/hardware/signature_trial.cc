// SPDX-License-Identifier: Apache-2.0
#include "tools/hardware/signature_trial.h"

#include <cerrno>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "transport/base/error.h"

namespace sluice::hardware {
namespace {

constexpr uint32_t kBlock = 512;
constexpr uint32_t kProtected = kBlock + 4;
constexpr uint32_t kBlocks = 4;
constexpr uint32_t kWrong = 2;  // the third

// Reflected, complemented at both ends.
uint32_t Crc32c(const std::byte* bytes, size_t size) {
  uint32_t crc = UINT32_MAX;
  for (size_t i = 0; i < size; ++i) {
    crc ^= static_cast<uint32_t>(bytes[i]);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

absl::StatusOr<ibv_wc> Await(ibv_cq* cq, std::string_view what) {
  const absl::Time end = absl::Now() + kLongWait;
  ibv_wc wc{};
  while (true) {
    const int count = ibv_poll_cq(cq, 1, &wc);
    if (count == 1) return wc;
    if (count < 0) {
      return base::ErrnoError(EIO, "polling for " + std::string(what),
                              {.layer = "hardware", .operation = "ibv_poll_cq"});
    }
    if (absl::Now() > end) {
      return base::Error(absl::StatusCode::kDeadlineExceeded, "no completion: " + std::string(what),
                         {.layer = "hardware"});
    }
    std::this_thread::yield();
  }
}

}  // namespace

absl::StatusOr<Answer> TryWrongCrc(const Nic& nic) {
  const verbs::VerbsApi& api = *nic.api;
  auto from = Memory::Create(nic);
  auto to = Memory::Create(nic);
  auto cq = verbs::CreateCq(api, nic.context.get(), 64, nullptr);
  for (const absl::Status& status : {from.status(), to.status(), cq.status()}) {
    if (!status.ok()) return status;
  }
  mlx5dv_mkey_init_attr init{};
  init.pd = nic.pd.get();
  init.create_flags =
      MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE;
  init.max_entries = 4;
  errno = 0;
  mlx5dv_mkey* const raw = api.dv_create_mkey(&init);
  if (raw == nullptr) {
    return base::ErrnoError(errno != 0 ? errno : EINVAL, "a signature key",
                            {.layer = "hardware", .operation = "mlx5dv_create_mkey"});
  }
  const auto destroy = [&api](mlx5dv_mkey* key) { api.dv_destroy_mkey(key); };
  const std::unique_ptr<mlx5dv_mkey, decltype(destroy)> key(raw, destroy);
  const verbs::RcOptions options{.max_inline_bytes = 512, .mkeys = true};
  auto a = verbs::CreateRc(api, nic.context.get(), nic.pd.get(), cq->get(), cq->get(), options);
  if (!a.ok()) return a.status();
  auto b = verbs::CreateRc(api, nic.context.get(), nic.pd.get(), cq->get(), cq->get(), options);
  if (!b.ok()) return b.status();
  constexpr int kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  absl::Status status =
      verbs::ActivateRc(api, a->get(), nic.Path(), {b->number(), nic.own.gid}, kRights);
  if (status.ok()) {
    status = verbs::ActivateRc(api, b->get(), nic.Path(), {a->number(), nic.own.gid}, kRights);
  }
  if (!status.ok()) return status;

  std::byte* const data = (*from)->data();
  for (uint32_t i = 0; i < kBlocks; ++i) {
    std::byte* const block = data + i * kProtected;
    for (uint32_t j = 0; j < kBlock; ++j) block[j] = static_cast<std::byte>(i * 7 + j);
    const uint32_t crc = Crc32c(block, kBlock);
    std::memcpy(block + kBlock, &crc, sizeof(crc));
  }
  data[kWrong * kProtected + 5] ^= std::byte{1};

  mlx5dv_sig_crc crc{.type = MLX5DV_SIG_CRC_TYPE_CRC32C, .seed = UINT32_MAX};
  mlx5dv_sig_block_domain domain{};
  domain.sig_type = MLX5DV_SIG_TYPE_CRC;
  domain.sig.crc = &crc;
  domain.block_size = MLX5DV_BLOCK_SIZE_512;
  mlx5dv_sig_block_attr attr{};
  attr.mem = &domain;
  attr.check_mask = MLX5DV_SIG_MASK_CRC32C;
  ibv_sge piece{
      .addr = (*from)->address(), .length = kBlocks * kProtected, .lkey = (*from)->mr()->lkey};
  ibv_wr_start(a->ex);
  a->ex->wr_id = 1;
  a->ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  mlx5dv_mkey_conf_attr conf{};
  mlx5dv_wr_mkey_configure(a->dv, key.get(), 3, &conf);
  mlx5dv_wr_set_mkey_access_flags(a->dv, IBV_ACCESS_LOCAL_WRITE);
  mlx5dv_wr_set_mkey_layout_list(a->dv, 1, &piece);
  mlx5dv_wr_set_mkey_sig_block(a->dv, &attr);
  if (const int error = ibv_wr_complete(a->ex); error != 0) {
    return base::ErrnoError(error, "configuring a signature key", {.layer = "hardware"});
  }
  const auto configured = Await(cq->get(), "the configuration of the key");
  if (!configured.ok()) return configured.status();

  ibv_wr_start(a->ex);
  a->ex->wr_id = 2;
  a->ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(a->ex, (*to)->mr()->rkey, (*to)->address());
  ibv_wr_set_sge(a->ex, key->lkey, 0, kBlocks * kBlock);
  if (const int error = ibv_wr_complete(a->ex); error != 0) {
    return base::ErrnoError(error, "posting the transfer", {.layer = "hardware"});
  }
  const auto wc = Await(cq->get(), "the transfer");
  if (!wc.ok()) return wc.status();
  ibv_wc none{};
  ibv_poll_cq(cq->get(), 1, &none);  // the check needs the CQ polled until it is empty
  mlx5dv_mkey_err found{}, again{};
  int error = api.dv_mkey_check(key.get(), &found);
  if (error == 0) error = api.dv_mkey_check(key.get(), &again);
  if (error != 0) {
    return Answer{.as_softdc = false, .text = "mlx5dv_mkey_check refused: " + ErrnoName(error)};
  }
  const bool guard = found.err_type == MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD;
  const uint64_t offset = guard ? found.err.sig.offset : 0;
  return Answer{.as_softdc = configured->status == IBV_WC_SUCCESS && wc->status == IBV_WC_SUCCESS &&
                             guard && offset == kWrong * kProtected &&
                             again.err_type == MLX5DV_MKEY_NO_ERR,
                .text = absl::StrFormat(
                    "transfer: %s; %s%s", StatusName(wc->status),
                    guard ? absl::StrCat("wrong CRC at offset ", offset)
                          : absl::StrCat("error type ", static_cast<int>(found.err_type)),
                    again.err_type == MLX5DV_MKEY_NO_ERR ? ", reported once" : ", reported again")};
}

}  // namespace sluice::hardware
