// SPDX-License-Identifier: Apache-2.0
//
// The GID table of a port. Thread-safety: pure functions over the device; they block.
#ifndef SLUICE_TRANSPORT_DEVICE_GIDS_H_
#define SLUICE_TRANSPORT_DEVICE_GIDS_H_

#include <cstdint>

#include "transport/verbs/verbs_api.h"

namespace sluice::device {

struct GidEntry {
  int index = -1;  // none
  ibv_gid gid = {};
};

// The first IPv4-mapped GID, else the first there is. Drivers list an address once per RoCE
// version, version 2 last, so among equal ones the last is taken.
GidEntry PickGid(const verbs::VerbsApi& api, ibv_context* context, uint8_t port, int table_length);

// Where this GID stands; the last place, as above.
GidEntry FindGid(const verbs::VerbsApi& api, ibv_context* context, uint8_t port, int table_length,
                 const ibv_gid& gid);

}  // namespace sluice::device

#endif  // SLUICE_TRANSPORT_DEVICE_GIDS_H_
