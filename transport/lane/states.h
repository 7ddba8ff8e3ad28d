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
  kAnswered,  // as asked last
  kHush,      // this side wants to sleep, or finds nothing there for long
  kWake,      // it is busy again
  kClose,     // others need the memory more
  kEmpty,     // answered, and all that was written before has been taken
  kLost,      // the sender's requests failed, or its peer went down
  kFreed,
};

// False: not in the table; nothing changes.
bool Next(State state, Event event, State* next);
std::string_view Name(State state);
std::string_view Name(Event event);
std::string PrintTable();

// In these something may lie in the lane of which no completion tells.
constexpr bool IsWatched(State state) {
  return state == State::kOffered || state == State::kPolled || state == State::kHushing ||
         state == State::kWaking || state == State::kClosing;
}

}  // namespace sluice::lane

#endif  // SLUICE_TRANSPORT_LANE_STATES_H_
