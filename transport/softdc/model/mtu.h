// SPDX-License-Identifier: Apache-2.0
//
// Path MTUs of ibv_modify_qp(3).
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_MTU_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_MTU_H_

#include <infiniband/verbs.h>

#include <bit>
#include <cstdint>

namespace sluice::softdc {

inline constexpr uint32_t MtuBytes(uint32_t mtu) { return 128u << mtu; }
inline constexpr ibv_mtu MtuOf(uint32_t bytes) {
  return static_cast<ibv_mtu>(std::bit_width(bytes) - 8);
}
static_assert(MtuBytes(IBV_MTU_4096) == 4096 && MtuOf(256) == IBV_MTU_256);

// Returns whether a sender with this path MTU may send packets that the target does not expect. `target` 0: no MTU is set.
inline bool UnlikeMtus(uint32_t sender, uint32_t target) { return sender != target && target != 0; }

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_MTU_H_
