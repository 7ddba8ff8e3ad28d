// SPDX-License-Identifier: Apache-2.0
#include "transport/queue/states.h"

#include "transport/base/state_table.h"

namespace sluice::queue {
namespace {

using D = DciState;
using DE = DciEvent;
constexpr base::Transition<D, DE> kDciRows[] = {
    {D::kReady, DE::kFatal, D::kDraining},       {D::kReady, DE::kStuck, D::kResetting},
    {D::kDraining, DE::kDrained, D::kResetting}, {D::kDraining, DE::kStuck, D::kResetting},
    {D::kDraining, DE::kRefused, D::kDead},      {D::kResetting, DE::kRecovered, D::kReady},
    {D::kResetting, DE::kRefused, D::kDead},
};

using S = StreamState;
using SE = StreamEvent;
constexpr base::Transition<S, SE> kStreamRows[] = {
    {S::kFree, SE::kBind, S::kBound},
    {S::kBound, SE::kIdle, S::kFree},
    {S::kBound, SE::kLeave, S::kLeft},
    {S::kLeft, SE::kIdle, S::kFree},
    {S::kBound, SE::kError, S::kErrored},
    {S::kLeft, SE::kError, S::kErrored},
    {S::kErrored, SE::kFlushed, S::kResetting},
    {S::kResetting, SE::kReset, S::kFree},
    // The recovery of the whole DCI clears all states.
    {S::kErrored, SE::kReset, S::kFree},
    {S::kBound, SE::kReset, S::kFree},
    {S::kLeft, SE::kReset, S::kFree},
};

constexpr base::StateTable kDcis(kDciRows, {"ready", "draining", "resetting", "dead"},
                                 {"fatal", "stuck", "drained", "recovered", "refused"});
constexpr base::StateTable kStreams(kStreamRows, {"free", "bound", "left", "errored", "resetting"},
                                    {"bind", "idle", "leave", "error", "flushed", "reset"});

}  // namespace

bool Next(DciState state, DciEvent event, DciState* next) { return kDcis.Next(state, event, next); }

bool Next(StreamState state, StreamEvent event, StreamState* next) {
  return kStreams.Next(state, event, next);
}

std::string_view Name(DciState state) { return kDcis.NameOf(state); }

std::string PrintTables() { return kDcis.Print("dci ") + kStreams.Print("stream "); }

}  // namespace sluice::queue
