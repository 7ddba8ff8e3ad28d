// SPDX-License-Identifier: Apache-2.0
//
// The partition table of a port.
//
// Threads       Pure functions.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_PKEY_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_PKEY_H_

#include <cstdint>

#include "transport/softdc/config/dials.h"

namespace sluice::softdc {

inline constexpr uint16_t kDefaultPkey = 0xffff;

inline uint16_t PkeyCount(const Dials& dials) { return dials.port.second_pkey == 0 ? 1 : 2; }
inline uint16_t PkeyAt(const Dials& dials, uint16_t index) {
  return index == 0 ? kDefaultPkey : dials.port.second_pkey;
}

// Returns whether a queue pair with the partition key `target` accepts packets with the key `sender` (IBA 10.9.3). The partition must be
// the same, and at least one side must be a full member. `target` 0: the target was set up without a key and accepts all packets.
inline bool SamePartition(uint16_t sender, uint16_t target) {
  constexpr uint16_t kFullMember = 0x8000;
  return target == 0 ||
         (((sender ^ target) & ~kFullMember) == 0 && ((sender | target) & kFullMember) != 0);
}

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_PKEY_H_
