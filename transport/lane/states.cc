// SPDX-License-Identifier: Apache-2.0
#include "transport/lane/states.h"

#include "transport/base/state_table.h"

namespace sluice::lane {
namespace {

using S = State;
using E = Event;

constexpr base::Transition<S, E> kRows[] = {
    {S::kMaking, E::kMade, S::kOffered},     {S::kMaking, E::kLost, S::kFreeing},
    {S::kOffered, E::kAnswered, S::kPolled}, {S::kOffered, E::kHush, S::kHushing},
    {S::kOffered, E::kLost, S::kFreeing},    {S::kPolled, E::kHush, S::kHushing},
    {S::kPolled, E::kClose, S::kClosing},    {S::kPolled, E::kLost, S::kFreeing},
    {S::kHushing, E::kEmpty, S::kAnnounced}, {S::kHushing, E::kLost, S::kFreeing},
    {S::kAnnounced, E::kWake, S::kWaking},   {S::kAnnounced, E::kClose, S::kClosing},
    {S::kAnnounced, E::kLost, S::kFreeing},  {S::kWaking, E::kAnswered, S::kPolled},
    {S::kWaking, E::kHush, S::kHushing},     {S::kWaking, E::kLost, S::kFreeing},
    {S::kClosing, E::kEmpty, S::kFreeing},   {S::kClosing, E::kLost, S::kFreeing},
    {S::kFreeing, E::kFreed, S::kGone},
};

constexpr base::StateTable kTable(kRows,
                                  {"making", "offered", "polled", "hushing", "announced", "waking",
                                   "closing", "freeing", "gone"},
                                  {"made", "answered", "hush", "wake", "close", "empty", "lost",
                                   "freed"});

}  // namespace

bool Next(State state, Event event, State* next) { return kTable.Next(state, event, next); }
std::string_view Name(State state) { return kTable.NameOf(state); }
std::string_view Name(Event event) { return kTable.NameOf(event); }
std::string PrintTable() { return kTable.Print(); }

}  // namespace sluice::lane
