// SPDX-License-Identifier: Apache-2.0
//
// The differences between the kinds of queue pairs that send. A DCT only receives: dct.h.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_QP_KIND_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_QP_KIND_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>

#include "transport/softdc/model/qp_transitions.h"
#include "transport/softdc/shm/layout.h"

namespace sluice::softdc {

enum class QpKind : uint8_t { kDci, kRc, kUc, kUd };

struct QpTraits {
  QpKind kind;
  ibv_qp_type type;
  shm::TargetType target;  // kind of target of its messages
  bool addressed;          // each WQE names its target; otherwise the queue has one peer
  bool acknowledged;       // a WQE ends when its target has answered; otherwise when it was sent
  bool receives;           // is a target itself
  uint64_t send_ops;       // IBV_QP_EX_WITH_*
  std::span<const QpTransition> transitions;

  bool connected() const { return !addressed; }
};

const QpTraits& TraitsOf(QpKind kind);

// Returns the traits of a plain queue pair type, or null if softdc does not support the type.
const QpTraits* TraitsOf(ibv_qp_type type);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_QP_KIND_H_
