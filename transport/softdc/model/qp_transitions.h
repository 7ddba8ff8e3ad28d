// SPDX-License-Identifier: Apache-2.0
//
// The attributes that ibv_modify_qp must and may carry on each transition, by kind of queue pair. A missing or unexpected bit is EINVAL.
// The tables of DCI and DCT follow mlx5's kernel driver. The others follow man ibv_modify_qp and the InfiniBand specification
// (docs/facts.md, "Modify masks"). As on mlx5, users cannot move any kind to SQD. An RC queue pair enters SQD by itself.
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

// Returns the row that allows `from` -> `to` with exactly this mask, or null.
const QpTransition* FindTransition(std::span<const QpTransition> table, ibv_qp_state from,
                                   ibv_qp_state to, int attr_mask);

// Returns one line per row, for the snapshot test and the docs.
std::string PrintTransitions(std::span<const QpTransition> table);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_QP_TRANSITIONS_H_
