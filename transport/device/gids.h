// SPDX-License-Identifier: Apache-2.0
//
// The GID table of a port.
//
// Threads       Pure functions over the device; they block.
#ifndef SLUICE_TRANSPORT_DEVICE_GIDS_H_
#define SLUICE_TRANSPORT_DEVICE_GIDS_H_

#include <cstdint>

#include "transport/verbs/verbs_api.h"

namespace sluice::device {

struct GidEntry {
  int index = -1;  // none
  ibv_gid gid = {};
  bool roce_v1 = false;     // said by the device; false also where it does not say
  bool infiniband = false;  // likewise
  bool typed = false;       // the device says the type of its GIDs
  uint32_t interface = 0;   // index of the network interface that has the address; 0: not known
};

// The entry at `index`; index -1: it is empty, or there is none. A device that does not say the type of its GIDs
// (EOPNOTSUPP) is asked for the GID alone.
GidEntry ReadGid(const verbs::VerbsApi& api, ibv_context* context, uint8_t port, int index);

// The first IPv4-mapped GID of RoCE v2, else the first of RoCE v2, else the same of RoCE v1. Where the device does not say
// which is which, the last of equal GIDs: drivers fill an empty table so. Reads no further than the first entry that none can
// surpass, because each entry is a command to the kernel.
GidEntry PickGid(const verbs::VerbsApi& api, ibv_context* context, uint8_t port, int table_length);

// The entry with this GID; of several the one that PickGid() prefers.
GidEntry FindGid(const verbs::VerbsApi& api, ibv_context* context, uint8_t port, int table_length,
                 const ibv_gid& gid);

}  // namespace sluice::device

#endif  // SLUICE_TRANSPORT_DEVICE_GIDS_H_
