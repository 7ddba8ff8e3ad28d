// SPDX-License-Identifier: Apache-2.0
//
// Reception: what one tenant's peers send into. A DCT and an SRQ for messages and another pair for
// control, with DC keys, receive buffers and places of its own, so that a tenant which fills or floods
// what is its own leaves the others theirs. Without tenants there is one, everybody's.
//
// Who owns it   The endpoint. Which thread: the polling thread. What ends it: the endpoint's end.
#ifndef SLUICE_TRANSPORT_ENDPOINT_RECEPTION_H_
#define SLUICE_TRANSPORT_ENDPOINT_RECEPTION_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "transport/receive/receive_queue.h"

namespace sluice::endpoint {

struct Reception {
  // A new peer gets at most this share of the receive buffers that are left, so that a crowd thins
  // out instead of the first ones taking all; below the least it is refused.
  static constexpr uint32_t kShareOfRest = 8;
  static constexpr uint32_t kLeastWindow = 4;

  std::string tenant;  // empty: there are none
  uint32_t srq_size = 0;
  uint32_t max_peers = 0;
  std::unique_ptr<receive::ReceiveQueue> data;
  std::unique_ptr<receive::ReceiveQueue> control;
  uint32_t promised = 0;  // receive buffers, to peers
  uint32_t peers = 0;     // records in use

  // RESOURCE_EXHAUSTED: no place is left.
  absl::Status CheckPlace() const;
  // The receive buffers that a new peer gets. RESOURCE_EXHAUSTED: too few are left.
  absl::StatusOr<uint32_t> WindowForOne(uint32_t credits_per_peer) const;
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_RECEPTION_H_
