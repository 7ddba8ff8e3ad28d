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
  int index = -1;  // -1: no entry
  ibv_gid gid = {};
  bool roce_v1 = false;     // as the device reports it; false if it reports no type
  bool infiniband = false;  // likewise
  bool typed = false;       // the device reports the type of its GIDs
  uint32_t interface = 0;   // index of the network interface that has the address; 0: unknown
};

// Returns the entry at `index`. The result has index -1 if the entry is empty or does not exist. If the device does not report the type of
// its GIDs (EOPNOTSUPP), only the GID is queried.
GidEntry ReadGid(const verbs::VerbsApi& api, ibv_context* context, uint8_t port, int index);

// Returns the first IPv4-mapped GID of RoCE v2. If there is none: the first GID of RoCE v2, then the same of RoCE v1. If the device does
// not report types, returns the last of equal GIDs, because drivers fill an empty table in this order. Stops at the first entry that no
// other entry can surpass, because each entry costs a command to the kernel.
GidEntry PickGid(const verbs::VerbsApi& api, ibv_context* context, uint8_t port, int table_length);

// Returns the entry with this GID. If there are several, returns the entry that PickGid() prefers.
GidEntry FindGid(const verbs::VerbsApi& api, ibv_context* context, uint8_t port, int table_length,
                 const ibv_gid& gid);

}  // namespace sluice::device

#endif  // SLUICE_TRANSPORT_DEVICE_GIDS_H_
