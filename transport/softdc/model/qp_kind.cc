// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/qp_kind.h"

namespace sluice::softdc {
namespace {

constexpr uint64_t kSendOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr uint64_t kWriteOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
constexpr uint64_t kReadOps = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                              IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
constexpr uint64_t kWindowOps =
    IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;

}  // namespace

const QpTraits& TraitsOf(QpKind kind) {
  static const QpTraits kTraits[] = {
      {.kind = QpKind::kDci,
       .type = IBV_QPT_DRIVER,
       .target = shm::TargetType::kDct,
       .addressed = true,
       .acknowledged = true,
       .receives = false,
       .send_ops = kSendOps | kWriteOps | kReadOps | kWindowOps,
       .transitions = DciTransitions()},
      {.kind = QpKind::kRc,
       .type = IBV_QPT_RC,
       .target = shm::TargetType::kRc,
       .addressed = false,
       .acknowledged = true,
       .receives = true,
       .send_ops = kSendOps | kWriteOps | kReadOps | kWindowOps,
       .transitions = RcTransitions()},
      {.kind = QpKind::kUc,
       .type = IBV_QPT_UC,
       .target = shm::TargetType::kUc,
       .addressed = false,
       .acknowledged = false,
       .receives = true,
       .send_ops = kSendOps | kWriteOps | kWindowOps,
       .transitions = UcTransitions()},
      {.kind = QpKind::kUd,
       .type = IBV_QPT_UD,
       .target = shm::TargetType::kUd,
       .addressed = true,
       .acknowledged = false,
       .receives = true,
       .send_ops = kSendOps,
       .transitions = UdTransitions()},
  };
  return kTraits[static_cast<size_t>(kind)];
}

const QpTraits* TraitsOf(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
      return &TraitsOf(QpKind::kRc);
    case IBV_QPT_UC:
      return &TraitsOf(QpKind::kUc);
    case IBV_QPT_UD:
      return &TraitsOf(QpKind::kUd);
    default:
      return nullptr;
  }
}

}  // namespace sluice::softdc
