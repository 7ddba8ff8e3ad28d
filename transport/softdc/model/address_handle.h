// SPDX-License-Identifier: Apache-2.0
//
// AddressHandle: the destination of a WQE of a DCI or a UD queue pair. Constant after creation, except for the first (and only) mapping to
// a QP.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_ADDRESS_HANDLE_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_ADDRESS_HANDLE_H_

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

#include "transport/softdc/model/fabric.h"

namespace sluice::softdc {

struct AddressHandle {
  ibv_ah base{};
  ibv_ah_attr attr{};
  ibv_gid source_gid{};   // of attr.grh.sgid_index
  uint64_t gid_mark = 0;  // gid_mark.h
  NodeId node = kNoNode;
  // Service level in the receive completion; on RoCE the packet type (RocePacketType in grh.h).
  uint8_t service_level = 0;
  std::atomic<uint32_t> mapped_qp_number{0};  // mlx5dv_map_ah_to_qp: the first call wins

  static AddressHandle* From(ibv_ah* ah) { return reinterpret_cast<AddressHandle*>(ah); }
  static const AddressHandle* From(const ibv_ah* ah) {
    return reinterpret_cast<const AddressHandle*>(ah);
  }
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_ADDRESS_HANDLE_H_
