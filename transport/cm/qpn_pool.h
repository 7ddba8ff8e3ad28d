// SPDX-License-Identifier: Apache-2.0
//
// QpnPool: assigns a QP number to each RDMA_CM connection.
//
// Purpose       The kernel identifies a connection by node and QP number; if a pair is used twice, both connections fail. So each
//               connection gets a new number: one that the device reserves, or the number of a dummy QP that carries no traffic. The
//               private data has the number of the DCT.
// Threads       Take() and Give(): only inside Commands (they block), one at a time. Counts: any.
// Limits        `max_dummies` dummy QPs, which are real objects of the device.
// End           Call Give() when the quarantine of the number is over. The pool does not assign the number again before.
#ifndef SLUICE_TRANSPORT_CM_QPN_POOL_H_
#define SLUICE_TRANSPORT_CM_QPN_POOL_H_

#include <atomic>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "transport/verbs/handles.h"

namespace sluice::cm {

class QpnPool {
 public:
  static constexpr size_t kMaxDummies = 1024;

  // `reserve`: the device reports that it reserves numbers (Feature::kReservedQpn). If the call nevertheless fails with EOPNOTSUPP, the
  // pool uses dummies from then on.
  QpnPool(const verbs::VerbsApi& api, ibv_context* context, ibv_pd* pd, bool reserve,
          size_t max_dummies = kMaxDummies)
      : api_(api), context_(context), pd_(pd), max_dummies_(max_dummies), reserve_(reserve) {}
  ~QpnPool();
  QpnPool(const QpnPool&) = delete;
  QpnPool& operator=(const QpnPool&) = delete;

  absl::StatusOr<uint32_t> Take();
  void Give(uint32_t qpn);

  // Returns the number of assigned numbers: of live connections, and in quarantine.
  size_t in_use() const { return in_use_.load(std::memory_order_relaxed); }
  // Returns whether the device reserves no numbers and at least half of the dummies are in use.
  bool scarce() const {
    return !reserve_.load(std::memory_order_relaxed) && 2 * in_use() >= max_dummies_;
  }
  // Returns how often Take() failed.
  uint64_t exhausted() const { return exhausted_.load(std::memory_order_relaxed); }

 private:
  absl::StatusOr<uint32_t> Reserve();
  absl::StatusOr<uint32_t> MakeDummy();

  const verbs::VerbsApi& api_;
  ibv_context* const context_;
  ibv_pd* const pd_;
  const size_t max_dummies_;
  std::atomic<bool> reserve_;
  absl::flat_hash_set<uint32_t> reserved_;
  verbs::Cq dummy_cq_;  // declared before the QPs that refer to it
  absl::flat_hash_map<uint32_t, verbs::IdleQp> dummies_;
  std::atomic<size_t> in_use_{0};
  std::atomic<uint64_t> exhausted_{0};
};

}  // namespace sluice::cm

#endif  // SLUICE_TRANSPORT_CM_QPN_POOL_H_
