// SPDX-License-Identifier: Apache-2.0
//
// The states of a lane at its receiver. The table is in states.cc; PrintTable() prints it.
//
//   making     the memory is being registered
//   offered    granted; the sender has not answered
//   polled     the sender writes, this side polls the memory
//   hushing    this side asked the sender to announce its messages. It must not sleep without a limit until the sender has answered
//              and all messages written before have arrived
//   announced  each message comes with a completion: this side does not poll, and the process may sleep
//   waking     this side told the sender that it need not announce messages
//   closing    this side asked the sender to stop using the lane
//   freeing    the lane is not read; its key is being revoked and its memory freed
//   gone
#ifndef SLUICE_TRANSPORT_LANE_STATES_H_
#define SLUICE_TRANSPORT_LANE_STATES_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::lane {

enum class State : uint8_t {
  kMaking,
  kOffered,
  kPolled,
  kHushing,
  kAnnounced,
  kWaking,
  kClosing,
  kFreeing,
  kGone,
};

enum class Event : uint8_t {
  kMade,
  kAnswered,  // the sender's answer matches the last request
  kHush,      // this side wants to sleep, or the lane was idle for long
  kWake,      // the peer is busy again
  kClose,     // other peers need the memory more
  kEmpty,     // the sender answered, and all messages written before are taken
  kLost,      // the sender's requests failed, the peer went down, or no memory was registered
  kFreed,
};

// Sets `next` to the state after the event. Returns false, and leaves `next` unchanged, if the table has no such transition.
bool Next(State state, Event event, State* next);
std::string_view Name(State state);
std::string_view Name(Event event);
std::string PrintTable();

// Returns whether the lane may contain a message without a completion, so that it must be polled.
constexpr bool IsWatched(State state) {
  return state == State::kOffered || state == State::kPolled || state == State::kHushing ||
         state == State::kWaking || state == State::kClosing;
}

}  // namespace sluice::lane

#endif  // SLUICE_TRANSPORT_LANE_STATES_H_
