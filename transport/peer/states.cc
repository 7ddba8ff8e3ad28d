// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/states.h"

#include "transport/base/state_table.h"

namespace sluice::peer {
namespace {

using S = State;
using E = Event;

constexpr base::Transition<S, E> kRows[] = {
    {S::kFree, E::kConnect, S::kConnecting},        {S::kFree, E::kRequest, S::kAccepting},
    {S::kConnecting, E::kEstablished, S::kProving}, {S::kConnecting, E::kFailed, S::kDraining},
    {S::kConnecting, E::kDisconnect, S::kDraining}, {S::kProving, E::kProven, S::kUp},
    {S::kProving, E::kFailed, S::kDraining},        {S::kProving, E::kDisconnect, S::kDraining},
    {S::kAccepting, E::kEstablished, S::kUnproven}, {S::kAccepting, E::kProven, S::kUp},
    {S::kAccepting, E::kRefused, S::kLeaving},      {S::kAccepting, E::kFailed, S::kDraining},
    {S::kAccepting, E::kDisconnect, S::kDraining},  {S::kUnproven, E::kProven, S::kUp},
    {S::kUnproven, E::kRefused, S::kLeaving},       {S::kUnproven, E::kFailed, S::kDraining},
    {S::kUnproven, E::kDisconnect, S::kDraining},   {S::kUp, E::kFailed, S::kDraining},
    {S::kUp, E::kDisconnect, S::kLeaving},          {S::kLeaving, E::kFailed, S::kDraining},
    {S::kLeaving, E::kGoodbyeSent, S::kDraining},   {S::kDraining, E::kQuiet, S::kFree},
};

constexpr base::StateTable kTable(kRows,
                                  {"free", "connecting", "proving", "accepting", "unproven", "up",
                                   "leaving", "draining"},
                                  {"connect", "request", "established", "proven", "refused",
                                   "failed", "disconnect", "goodbye sent", "quiet"});

}  // namespace

bool Next(State state, Event event, State* next) { return kTable.Next(state, event, next); }
std::string_view Name(State state) { return kTable.NameOf(state); }
std::string_view Name(Event event) { return kTable.NameOf(event); }
std::string PrintTable() { return kTable.Print(); }

}  // namespace sluice::peer
