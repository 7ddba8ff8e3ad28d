// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/connection_state.h"

#include "transport/base/state_table.h"

namespace sluice::call {
namespace {

using S = ConnectionState;
using E = ConnectionEvent;

constexpr base::Transition<S, E> kTransitions[] = {
    {S::kIdle, E::kDial, S::kConnecting},    {S::kIdle, E::kClose, S::kClosed},
    {S::kConnecting, E::kPeerUp, S::kUp},    {S::kConnecting, E::kLost, S::kBackoff},
    {S::kConnecting, E::kGiveUp, S::kIdle},  {S::kConnecting, E::kClose, S::kClosed},
    {S::kUp, E::kDrain, S::kDraining},       {S::kUp, E::kLost, S::kBackoff},
    {S::kUp, E::kGiveUp, S::kIdle},          {S::kUp, E::kRest, S::kIdle},
    {S::kUp, E::kClose, S::kClosed},         {S::kDraining, E::kLost, S::kBackoff},
    {S::kDraining, E::kGiveUp, S::kIdle},    {S::kDraining, E::kClose, S::kClosed},
    {S::kBackoff, E::kDial, S::kConnecting}, {S::kBackoff, E::kClose, S::kClosed},
};

constexpr base::StateTable kTable(kTransitions,
                                  {"idle", "connecting", "up", "draining", "backoff", "closed"},
                                  {"dial", "peer up", "drain", "lost", "give up", "rest", "close"});

}  // namespace

bool NextConnectionState(ConnectionState from, ConnectionEvent event, ConnectionState* to) {
  return kTable.Next(from, event, to);
}

const char* Name(ConnectionState state) { return kTable.NameOf(state); }
const char* Name(ConnectionEvent event) { return kTable.NameOf(event); }
std::string PrintConnectionStates() { return kTable.Print(); }

}  // namespace sluice::call
