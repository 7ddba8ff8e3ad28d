// SPDX-License-Identifier: Apache-2.0
//
// Target: where messages to one peer go, and what of them is under way.
#ifndef SLUICE_TRANSPORT_QUEUE_TARGET_H_
#define SLUICE_TRANSPORT_QUEUE_TARGET_H_

#include <cstdint>
#include <string>

#include "transport/queue/slot_table.h"
#include "transport/verbs/verbs_api.h"

namespace sluice::queue {

inline constexpr int32_t kNoStream = -1;

// Owned by the peer table, filled in before the first Post(). Must stay until `posted` is 0 and
// Close() was called.
struct Target {
  // Set by the owner.
  ibv_ah* ah = nullptr;
  uint32_t dctn[2] = {0, 0};  // [0] data, [1] control
  uint64_t key[2] = {0, 0};
  uint32_t cookie = 0;  // the owner's
  std::string name;     // "host:port", for errors

  // The pool's.
  uint16_t dci = 0;            // last used
  int32_t stream = kNoStream;  // held only while something is posted
  uint32_t posted = 0;         // slots in the send queue
  bool closed = false;         // nothing is posted any more
  bool waiting = false;        // in the pool's list
  SlotList repost;             // flushed by somebody else's error: first in line
  SlotList control;            // ahead of data
  SlotList data;

  bool has_pending() const { return !repost.empty() || !control.empty() || !data.empty(); }
};

}  // namespace sluice::queue

#endif  // SLUICE_TRANSPORT_QUEUE_TARGET_H_
