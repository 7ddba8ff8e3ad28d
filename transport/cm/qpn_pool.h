// SPDX-License-Identifier: Apache-2.0
//
// QpnPool: a QP number of its own for every RDMA_CM connection.
//
// What it is    The kernel knows a connection by (node, QPN); the same pair twice kills both connections. So
//               each connection takes a fresh number: reserved from the device where it can, else that of a
//               dummy QP which is never used. The numbers carry no traffic; the DCTN is in the private data.
// Which thread  Inside Commands only (both calls block), one at a time.
// Bound         kMaxDummies dummy QPs: they are real objects of the device.
// What ends it  Give() once the connection has left timewait; a number is not seen again before that.
#ifndef SLUICE_TRANSPORT_CM_QPN_POOL_H_
#define SLUICE_TRANSPORT_CM_QPN_POOL_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "transport/verbs/handles.h"

namespace sluice::cm {

class QpnPool {
 public:
  static constexpr size_t kMaxDummies = 1024;

  // `reserve`: the device reserves numbers (Feature::kReservedQpn).
  QpnPool(const verbs::VerbsApi& api, ibv_context* context, ibv_pd* pd, bool reserve)
      : api_(api), context_(context), pd_(pd), reserve_(reserve) {}
  ~QpnPool();
  QpnPool(const QpnPool&) = delete;
  QpnPool& operator=(const QpnPool&) = delete;

  absl::StatusOr<uint32_t> Take();
  void Give(uint32_t qpn);

  size_t in_use() const { return reserved_.size() + dummies_.size(); }

 private:
  const verbs::VerbsApi& api_;
  ibv_context* const context_;
  ibv_pd* const pd_;
  const bool reserve_;
  absl::flat_hash_set<uint32_t> reserved_;
  verbs::Cq dummy_cq_;  // before the QPs that refer to it
  absl::flat_hash_map<uint32_t, verbs::Qp> dummies_;
};

}  // namespace sluice::cm

#endif  // SLUICE_TRANSPORT_CM_QPN_POOL_H_
