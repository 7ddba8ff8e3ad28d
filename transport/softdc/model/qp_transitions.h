// SPDX-License-Identifier: Apache-2.0
//
// Which attributes ibv_modify_qp must and may carry on each transition, by kind of queue pair. A bit
// missing or one too many is EINVAL: for DCI and DCT as mlx5's kernel driver has it, for the others
// as man ibv_modify_qp and the InfiniBand specification do (docs/facts.md, "Modify masks"). No kind
// can be sent to SQD by its user, as on mlx5; an RC queue pair gets there by itself.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_QP_TRANSITIONS_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_QP_TRANSITIONS_H_

#include <infiniband/verbs.h>

#include <span>
#include <string>

namespace sluice::softdc {

inline constexpr int kAnyState = -1;

struct QpTransition {
  int from;  // ibv_qp_state, or kAnyState
  int to;
  int required;  // IBV_QP_* besides IBV_QP_STATE
  int optional;
};

std::span<const QpTransition> DciTransitions();
std::span<const QpTransition> DctTransitions();
std::span<const QpTransition> RcTransitions();
std::span<const QpTransition> UcTransitions();
std::span<const QpTransition> UdTransitions();

// The row that allows `from` -> `to` with exactly this mask, or null.
const QpTransition* FindTransition(std::span<const QpTransition> table, ibv_qp_state from,
                                   ibv_qp_state to, int attr_mask);

// One line a row, for the snapshot test and the docs.
std::string PrintTransitions(std::span<const QpTransition> table);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_QP_TRANSITIONS_H_
