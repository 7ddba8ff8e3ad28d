// SPDX-License-Identifier: Apache-2.0
//
// How a lane stands at its receiver. A table in states.cc; PrintTable() shows it.
//
//   making     its memory is being registered
//   offered    granted; the sender has not answered
//   polled     the sender writes, this side watches the memory
//   hushing    the sender was asked to announce what it writes; until it has answered, and what it wrote before has
//              come, this side must not sleep without a limit
//   announced  each message comes with a completion: nobody watches, the process may sleep
//   waking     the sender was told that it need not announce any more
//   closing    the sender was asked to leave the lane
//   freeing    nobody reads it; its key is being taken back, its memory freed
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
