// SPDX-License-Identifier: Apache-2.0
#include "middleware/flow/flow_state.h"

#include "transport/base/state_table.h"

namespace sluice::flow {
namespace {

using S = FlowState;
using E = FlowEvent;

constexpr base::Transition<S, E> kTransitions[] = {
    {S::kFree, E::kOpen, S::kOpening},
    {S::kFree, E::kOffer, S::kOpen},
    {S::kFree, E::kRefuse, S::kEnding},
    {S::kOpening, E::kAccepted, S::kOpen},
    {S::kOpening, E::kClose, S::kAbandoned},
    {S::kOpening, E::kCloseReceived, S::kFree},
    {S::kOpening, E::kPeerDown, S::kFree},
    {S::kAbandoned, E::kAccepted, S::kClosing},
    {S::kAbandoned, E::kCloseReceived, S::kFree},
    {S::kAbandoned, E::kPeerDown, S::kFree},
    {S::kOpen, E::kRefuse, S::kEnding},
    {S::kOpen, E::kClose, S::kClosing},
    {S::kOpen, E::kCloseReceived, S::kEnding},
    {S::kOpen, E::kPeerDown, S::kFree},
    {S::kClosing, E::kCloseSent, S::kLingering},
    {S::kClosing, E::kCloseReceived, S::kEnding},
    {S::kClosing, E::kPeerDown, S::kFree},
    {S::kLingering, E::kCloseReceived, S::kFree},
    {S::kLingering, E::kPeerDown, S::kFree},
    {S::kEnding, E::kCloseSent, S::kFree},
    {S::kEnding, E::kPeerDown, S::kFree},
};

constexpr base::StateTable kTable(
    kTransitions, {"free", "opening", "abandoned", "open", "closing", "lingering", "ending"},
    {"open", "offer", "refuse", "accepted", "close", "close sent", "close received", "peer down"});

}  // namespace

bool NextFlowState(FlowState from, FlowEvent event, FlowState* to) {
  return kTable.Next(from, event, to);
}

const char* Name(FlowState state) { return kTable.NameOf(state); }
const char* Name(FlowEvent event) { return kTable.NameOf(event); }
std::string PrintFlowStates() { return kTable.Print(); }

}  // namespace sluice::flow
