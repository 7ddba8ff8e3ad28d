// SPDX-License-Identifier: Apache-2.0
#include "transport/cm/qpn_pool.h"

#include <cerrno>
#include <utility>

#include "transport/base/error.h"

namespace sluice::cm {

QpnPool::~QpnPool() {
  for (uint32_t qpn : reserved_) api_.dv_reserved_qpn_dealloc(context_, qpn);
}

absl::StatusOr<uint32_t> QpnPool::Take() {
  auto qpn = reserve_ ? Reserve() : MakeDummy();
  if (!qpn.ok() && reserve_ && qpn.status().code() == absl::StatusCode::kUnimplemented) {
    reserve_ = false;
    qpn = MakeDummy();
  }
  if (qpn.ok()) {
    in_use_.fetch_add(1, std::memory_order_relaxed);
  } else {
    exhausted_.fetch_add(1, std::memory_order_relaxed);
  }
  return qpn;
}

absl::StatusOr<uint32_t> QpnPool::Reserve() {
  uint32_t qpn = 0;
  const int error_number = api_.dv_reserved_qpn_alloc(context_, &qpn);
  if (error_number != 0) {
    return base::ErrnoError(error_number, "mlx5dv_reserved_qpn_alloc",
                            {.layer = "cm",
                             .operation = "connect",
                             .cause = "the device has no QP numbers left to reserve",
                             .remedy = "close connections, or wait until closed ones have left "
                                       "quarantine (half a minute)"});
  }
  reserved_.insert(qpn);
  return qpn;
}

absl::StatusOr<uint32_t> QpnPool::MakeDummy() {
  if (dummies_.size() >= max_dummies_) {
    return base::Error(
        absl::StatusCode::kResourceExhausted, "no QP number for a new connection",
        {.layer = "cm",
         .operation = "connect",
         .cause = "this device reserves no numbers and all " + std::to_string(max_dummies_) +
                  " stand-in QPs are taken, by connections or by closed ones in quarantine",
         .remedy = "close connections, wait half a minute, or use a device with reserved QPNs"});
  }
  if (!dummy_cq_) {
    auto cq = verbs::CreateCq(api_, context_, 1, nullptr);
    if (!cq.ok()) return cq.status();
    dummy_cq_ = std::move(*cq);
  }
  // The number of a QP is valid as soon as the QP exists.
  auto dummy = verbs::CreateIdleQp(api_, pd_, dummy_cq_.get());
  if (!dummy.ok()) return dummy.status();
  const uint32_t qpn = (*dummy)->qp_num;
  dummies_.emplace(qpn, std::move(*dummy));
  return qpn;
}

void QpnPool::Give(uint32_t qpn) {
  if (reserved_.erase(qpn) != 0) {
    api_.dv_reserved_qpn_dealloc(context_, qpn);
  } else if (dummies_.erase(qpn) == 0) {
    return;
  }
  in_use_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace sluice::cm
