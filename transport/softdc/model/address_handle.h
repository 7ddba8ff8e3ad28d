// SPDX-License-Identifier: Apache-2.0
//
// AddressHandle: where a DC WQE goes. Constant after creation but for the first (and only) mapping
// to a QP.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_ADDRESS_HANDLE_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_ADDRESS_HANDLE_H_

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

namespace sluice::softdc {

struct AddressHandle {
  ibv_ah base{};
  bool is_global = false;
  bool reachable = false;                     // the GID is one of this host's
  std::atomic<uint32_t> mapped_qp_number{0};  // mlx5dv_map_ah_to_qp: the first call wins

  static AddressHandle* From(ibv_ah* ah) { return reinterpret_cast<AddressHandle*>(ah); }
  static const AddressHandle* From(const ibv_ah* ah) {
    return reinterpret_cast<const AddressHandle*>(ah);
  }
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_ADDRESS_HANDLE_H_
