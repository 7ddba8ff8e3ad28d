// SPDX-License-Identifier: Apache-2.0
//
// Dci: one send queue of the pool, and its streams.
#ifndef SLUICE_TRANSPORT_QUEUE_DCI_H_
#define SLUICE_TRANSPORT_QUEUE_DCI_H_

#include <cstdint>
#include <vector>

#include "transport/queue/states.h"
#include "transport/verbs/handles.h"

namespace sluice::queue {

struct Stream {
  StreamState state = StreamState::kFree;
  uint32_t posted = 0;
};

// Used only by the pool, on the polling thread.
struct Dci {
  verbs::Qp qp;
  uint16_t index = 0;
  bool probation = false;  // serves targets on probation
  DciState state = DciState::kReady;
  uint32_t errored = 0;                  // streams in error
  uint32_t drains = 0;                   // drains begun so far
  uint32_t unsignalled = 0;              // requests after the last signalled request
  uint32_t last_signalled = 0xffffffff;  // place of the last signalled request in the fifo
  // Posted slots in posting order; [head, rung) are with the device, [rung, tail) wait for the
  // doorbell.
  std::vector<uint32_t> fifo;
  uint32_t head = 0;
  uint32_t rung = 0;
  uint32_t tail = 0;
  std::vector<Stream> streams;
  std::vector<uint16_t> free_streams;  // last in, first out
  bool late = false;                   // a target has left it, and no completion arrived since
  // Value of `head` when the watchdog first found this completion due, and the time of that check.
  uint32_t watched_head = 0xffffffff;
  int64_t watched_ns = 0;
  // Place of the oldest request at the last check of the watchdog, and the time of the first check that found it there.
  uint32_t oldest = 0xffffffff;
  int64_t oldest_ns = 0;
  // Value of `head` when the watchdog found requests without a requested completion.
  uint32_t unsignalled_head = 0xffffffff;
  // These requests were there for a period: the next request goes to this DCI and asks for a completion.
  bool needs_signal = false;

  // Requests before `disowned_end` may belong to a closed target, and may fail. The watchdog knows of them since `disowned_ns`; 0: not yet.
  bool disowned = false;
  uint32_t disowned_end = 0;
  int64_t disowned_ns = 0;

  bool HoldsDisowned() const { return disowned && static_cast<int32_t>(disowned_end - head) > 0; }
  // Returns whether the device has a request whose completion was requested.
  bool OwesCompletion() const {
    return rung != head && static_cast<int32_t>(last_signalled - head) >= 0;
  }
};

}  // namespace sluice::queue

#endif  // SLUICE_TRANSPORT_QUEUE_DCI_H_
