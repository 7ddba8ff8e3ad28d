// SPDX-License-Identifier: Apache-2.0
//
// GidMark: the value that a GID adds to the key of a DCT. A request to another GID than the DCT's own therefore has a wrong key
// (ForeignGid::kLost).
//
// Threads       Pure function.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_GID_MARK_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_GID_MARK_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "transport/softdc/config/dials.h"
#include "transport/softdc/loop/gids.h"

namespace sluice::softdc {

// `gid`: at the DCT, its own GID; in a request, the destination GID. `address` names the entry of `gids` that this side uses. The RoCE
// version of that entry must be that of the DCT. Returns 0 if GIDs are not checked.
inline uint64_t GidMark(const Dials& dials, const std::vector<Gid>& gids, const Gid& gid,
                        const ibv_ah_attr& address) {
  if (dials.unknowns.foreign_gid == ForeignGid::kAnswered || address.is_global == 0 ||
      dials.port.link_layer != LinkLayer::kRoce) {
    return 0;
  }
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const uint8_t byte : gid.raw) hash = (hash ^ byte) * 0x100000001b3;
  return IsRoceV1(gids, address.grh.sgid_index, dials.port.roce_v1) ? ~hash : hash;
}

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_GID_MARK_H_
