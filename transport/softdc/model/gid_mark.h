// SPDX-License-Identifier: Apache-2.0
//
// GidMark: what a GID adds to the key of a DCT, so that a request under another GID than the DCT's own is one with a wrong key
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

// `gid` is the DCT's: its own for the DCT, the destination's for a request. `address` names the entry of `gids` that this side
// uses, whose RoCE version must be that of the DCT.
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
