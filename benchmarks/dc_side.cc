// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/dc_side.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "transport/softdc/verbs.h"

namespace sluice::benchmarks {
namespace {

template <typename T>
T Value(absl::StatusOr<T> value) {
  CheckOk(value.status());
  return *std::move(value);
}

}  // namespace

void CheckOk(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString(absl::StatusToStringMode::kDefault).c_str());
  std::exit(1);
}

void Check(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "benchmark: %s failed\n", what);
  std::exit(1);
}

DcSide::DcSide(uint64_t key) : key_(key) {
  device_ = Value(device::Device::Open("softdc0", {&softdc::Verbs()}));
  const verbs::VerbsApi& api = device_->api();
  ibv_context* context = device_->context();
  slab_ = Value(memory::Slab::Create(
      api, device_->pd(), (kSends + kReceives) * size_t{kBufferBytes}, IBV_ACCESS_LOCAL_WRITE));
  send_cq_ = Value(verbs::CreateCq(api, context, kSends, nullptr));
  receive_cq_ = Value(verbs::CreateCq(api, context, kReceives, nullptr));
  srq_ = Value(verbs::CreateSrq(api, device_->pd(), kReceives));
  dct_ = Value(verbs::CreateDct(api, context, device_->pd(), receive_cq_.get(), srq_.get(), key_));
  CheckOk(verbs::ActivateDct(api, dct_.get(), device_->path(), 0));
  dci_ =
      Value(verbs::CreateDci(api, context, device_->pd(), send_cq_.get(), {.send_depth = kSends}));
  CheckOk(verbs::ActivateDci(api, dci_.get(), device_->path()));
  ibv_ah_attr attr = {};
  attr.is_global = 1;
  attr.port_num = device_->path().port;
  attr.grh.sgid_index = device_->path().sgid_index;
  attr.grh.hop_limit = 64;
  Check(api.query_gid(context, attr.port_num, attr.grh.sgid_index, &attr.grh.dgid) == 0,
        "query_gid");
  ah_ = {&api, api.create_ah(device_->pd(), &attr)};
  Check(static_cast<bool>(ah_), "create_ah");
  for (uint32_t i = 0; i < kReceives; ++i) {
    ibv_wc wc = {};
    wc.wr_id = (kSends + i) * uint64_t{kBufferBytes};
    Repost(&wc, 1);
  }
}

void DcSide::Add(const DcAddress& to, uint32_t length_bytes) {
  if (!open_) ibv_wr_start(dci_.ex);
  open_ = true;
  dci_.ex->wr_id = next_send_;
  dci_.ex->wr_flags = (next_send_ + 1) % kSignalEvery == 0 ? IBV_SEND_SIGNALED : 0;
  ibv_wr_send(dci_.ex);
  mlx5dv_wr_set_dc_addr(dci_.dv, ah_.get(), static_cast<uint32_t>(to.dctn), to.key);
  ibv_wr_set_sge(dci_.ex, slab_.lkey(), reinterpret_cast<uint64_t>(send_buffer()), length_bytes);
  ++next_send_;
  ++in_flight_;
}

void DcSide::Ring() {
  if (open_) Check(ibv_wr_complete(dci_.ex) == 0, "ibv_wr_complete");
  open_ = false;
  if (in_flight_ >= 2 * kSignalEvery) Reap();
}

void DcSide::Reap() {
  ibv_wc completions[kSends / kSignalEvery];
  const int count = ibv_poll_cq(send_cq_.get(), kSends / kSignalEvery, completions);
  for (int i = 0; i < count; ++i) Check(completions[i].status == IBV_WC_SUCCESS, "a send");
  in_flight_ -= static_cast<uint32_t>(count) * kSignalEvery;
}

int DcSide::Poll(ibv_wc* completions, int limit) {
  const int count = ibv_poll_cq(receive_cq_.get(), limit, completions);
  for (int i = 0; i < count; ++i) Check(completions[i].status == IBV_WC_SUCCESS, "a receive");
  return count;
}

void DcSide::Repost(const ibv_wc* completions, int count) {
  for (int i = 0; i < count; ++i) {
    ibv_sge& sge = refill_sge_[refill_count_];
    sge = {.addr = reinterpret_cast<uint64_t>(slab_.data() + completions[i].wr_id),
           .length = kBufferBytes,
           .lkey = slab_.lkey()};
    ibv_recv_wr& wr = refill_[refill_count_];
    wr = {.wr_id = completions[i].wr_id, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    if (refill_count_ > 0) refill_[refill_count_ - 1].next = &wr;
    if (++refill_count_ < kSignalEvery) continue;
    refill_count_ = 0;
    ibv_recv_wr* bad = nullptr;
    Check(ibv_post_srq_recv(srq_.get(), refill_, &bad) == 0, "ibv_post_srq_recv");
  }
}

}  // namespace sluice::benchmarks
