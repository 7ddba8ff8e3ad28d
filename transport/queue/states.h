// SPDX-License-Identifier: Apache-2.0
//
// The life of a DCI and of one of its streams, as tables.
#ifndef SLUICE_TRANSPORT_QUEUE_STATES_H_
#define SLUICE_TRANSPORT_QUEUE_STATES_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::queue {

enum class DciState : uint8_t {
  kReady,
  kDraining,   // in ERR or on the way to it: every posted request gets its completion
  kResetting,  // RESET, INIT, RTR, RTS
  kDead,       // it cannot be recovered; its queue pair is destroyed
};

enum class DciEvent : uint8_t {
  kFatal,    // the errored streams reached the limit, a stream reset failed, a healthy request was
             // flushed
  kStuck,    // completions are due, but none arrive
  kDrained,  // the send queue is empty
  kRecovered,  // RTS again
  kRefused,    // a command of the recovery failed
};

enum class StreamState : uint8_t {
  kFree,
  kBound,      // one target's requests are posted
  kLeft,       // likewise, but that target uses another stream or DCI now
  kErrored,    // its first request failed; the others are being flushed
  kResetting,  // all flushed; mlx5dv_dci_stream_id_reset is in progress
};

enum class StreamEvent : uint8_t {
  kBind,
  kIdle,     // its last request completed
  kLeave,    // its target's next request went to another stream
  kError,    // a request failed by itself, not flushed
  kFlushed,  // its last request was flushed
  kReset,    // the reset worked, or the whole DCI was recovered
};

// Set `*next`. Return false if the event has no meaning in this state.
bool Next(DciState state, DciEvent event, DciState* next);
bool Next(StreamState state, StreamEvent event, StreamState* next);

std::string_view Name(DciState state);

// Returns both tables, one line per transition.
std::string PrintTables();

}  // namespace sluice::queue

#endif  // SLUICE_TRANSPORT_QUEUE_STATES_H_
