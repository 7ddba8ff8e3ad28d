// SPDX-License-Identifier: Apache-2.0
//
// Target: the destination of messages to one peer, and its requests that are posted or waiting.
#ifndef SLUICE_TRANSPORT_QUEUE_TARGET_H_
#define SLUICE_TRANSPORT_QUEUE_TARGET_H_

#include <cstdint>

#include "transport/base/shared_text.h"
#include "transport/queue/slot_table.h"
#include "transport/verbs/verbs_api.h"

namespace sluice::queue {

inline constexpr uint16_t kNoStream = 0xffff;

// Owned by the peer table, and filled in before the first Post(). Must exist until Close() was called and `posted` is 0. Each idle peer has
// a target, so it must be small.
struct Target {
  // Set by the owner.
  ibv_ah* ah = nullptr;
  uint64_t key[2] = {0, 0};   // [0] data, [1] control
  uint32_t dctn[2] = {0, 0};  // likewise
  base::SharedText name;      // "host:port", for errors
  uint32_t cookie = 0;        // used by the owner only

  // Set by the owner: number of data messages given to Post() that the peer has not acknowledged. While some of them are posted, later
  // messages use the same stream, so that no message passes them.
  uint32_t unacknowledged = 0;

  // Set by the send queues.
  SlotList control;  // ahead of data
  SlotList data;
  uint16_t posted = 0;          // slots in the send queues, which are shorter than 2^16
  uint16_t dci = 0;             // last used
  uint16_t stream = kNoStream;  // of that DCI, while a request of this target is posted there
  uint8_t failures = 0;         // in a row, without an acknowledgement or a success between
  bool closed : 1 = false;      // no further request is posted
  bool waiting : 1 = false;     // in the pool's list
  bool broken : 1 = false;      // from an error until Resume(): accepts no message
  bool probation : 1 = true;    // nothing was acknowledged yet, or not since the last error
  bool crowded : 1 = false;  // the last error was of a control message that found no receive buffer

  bool has_pending() const { return !control.empty() || !data.empty(); }
};
static_assert(sizeof(Target) == 64);

}  // namespace sluice::queue

#endif  // SLUICE_TRANSPORT_QUEUE_TARGET_H_
