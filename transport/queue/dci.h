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

// The pool's: it alone touches it, on the polling thread.
struct Dci {
  verbs::Qp qp;
  uint16_t index = 0;
  bool probation = false;  // for targets of which nothing good is known
  DciState state = DciState::kReady;
  uint32_t errored = 0;                  // streams
  uint32_t drains = 0;                   // begun so far
  uint32_t unsignalled = 0;              // requests behind the last signalled one
  uint32_t last_signalled = 0xffffffff;  // its place in the fifo
  // Posted slots in posting order; [head, rung) are with the device, [rung, tail) wait for the
  // doorbell.
  std::vector<uint32_t> fifo;
  uint32_t head = 0;
  uint32_t rung = 0;
  uint32_t tail = 0;
  std::vector<Stream> streams;
  std::vector<uint16_t> free_streams;  // last in, first out
  bool late = false;                   // a target has left it, and no completion came since
  // Where the watchdog saw it owe a completion, and since when.
  uint32_t watched_head = 0xffffffff;
  int64_t watched_ns = 0;
  // Its oldest request when the watchdog looked, and since when it is the oldest.
  uint32_t oldest = 0xffffffff;
  int64_t oldest_ns = 0;
  // Where the watchdog saw requests that nobody has asked a completion for.
  uint32_t unsignalled_head = 0xffffffff;
  bool needs_signal =
      false;  // they stood there for a period: what is sent next goes there, and asks

  // Requests before this place may be those of a target that was closed, and may fail. Since when the watchdog knows of them; 0: not yet.
  bool disowned = false;
  uint32_t disowned_end = 0;
  int64_t disowned_ns = 0;

  bool HoldsDisowned() const { return disowned && static_cast<int32_t>(disowned_end - head) > 0; }
  // With the device is a request whose completion was asked for.
  bool OwesCompletion() const {
    return rung != head && static_cast<int32_t>(last_signalled - head) >= 0;
  }
};

}  // namespace sluice::queue

#endif  // SLUICE_TRANSPORT_QUEUE_DCI_H_
