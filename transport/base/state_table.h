// SPDX-License-Identifier: Apache-2.0
//
// StateTable: a state machine as the list of its transitions, with the names of its states and events.
//
//   constexpr base::Transition<Door, Push> kRows[] = {{Door::kOpen, Push::kShut, Door::kClosed}, …};
//   constexpr base::StateTable kTable(kRows, {"open", "closed"}, {"shut", …});
//   if (!kTable.Next(door, Push::kShut, &door)) …   // the event has no meaning in this state
//
// States and events are enums whose values count from 0 in the order of the names. A table does not compile if it contains a state or event
// without a name, or two rows for one state and event.
//
// Threads       Any: a constant.
#ifndef SLUICE_TRANSPORT_BASE_STATE_TABLE_H_
#define SLUICE_TRANSPORT_BASE_STATE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::base {

template <typename State, typename Event>
struct Transition {
  State from;
  Event event;
  State to;
};

template <typename State, typename Event, size_t kRows, size_t kStates, size_t kEvents>
class StateTable {
 public:
  consteval StateTable(const Transition<State, Event> (&rows)[kRows],
                       const char* const (&states)[kStates], const char* const (&events)[kEvents]) {
    for (size_t i = 0; i < kStates; ++i) states_[i] = states[i];
    for (size_t i = 0; i < kEvents; ++i) events_[i] = events[i];
    for (auto& row : next_) {
      for (uint8_t& cell : row) cell = kNone;
    }
    for (size_t i = 0; i < kRows; ++i) {
      rows_[i] = rows[i];
      uint8_t& cell = next_[Index(rows[i].from)][Index(rows[i].event)];
      if (cell != kNone) throw "an event has two meanings in one state";
      if (Index(rows[i].to) >= kStates) throw "a state has no name";
      cell = static_cast<uint8_t>(rows[i].to);
    }
  }

  // Sets `*to` to the next state. Returns false and leaves `*to` unchanged if the event has no meaning in this state.
  constexpr bool Next(State from, Event event, State* to) const {
    const uint8_t next = next_[Index(from)][Index(event)];
    if (next == kNone) return false;
    *to = static_cast<State>(next);
    return true;
  }

  constexpr const char* NameOf(State state) const { return states_[Index(state)]; }
  constexpr const char* NameOf(Event event) const { return events_[Index(event)]; }

  // Returns one line per transition, in the order of the rows: "open: shut -> closed". Each line starts with `before`.
  std::string Print(std::string_view before = "") const {
    std::string text;
    for (const auto& row : rows_) {
      text.append(before).append(NameOf(row.from)).append(": ").append(NameOf(row.event));
      text.append(" -> ").append(NameOf(row.to)).append("\n");
    }
    return text;
  }

 private:
  static constexpr uint8_t kNone = 0xff;
  static_assert(kStates < kNone);

  template <typename Value>
  static constexpr size_t Index(Value value) {
    return static_cast<size_t>(value);
  }

  Transition<State, Event> rows_[kRows] = {};
  uint8_t next_[kStates][kEvents] = {};
  const char* states_[kStates] = {};
  const char* events_[kEvents] = {};
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_STATE_TABLE_H_
