// SPDX-License-Identifier: Apache-2.0
//
// ServerEngine: the drain (drain.h).
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/call/server_engine.h"
#include "transport/base/error.h"

namespace sluice::call {

void ServerEngine::StartDrain(int64_t cancel_at_ns, int64_t end_by_ns) {
  if (drain_.started()) return;
  drain_.Start(cancel_at_ns, end_by_ns);
  for (uint32_t index = 0; index < peers_.size(); ++index) {
    if (peers_[index] != nullptr)
      TellDrain({index, peers_[index]->generation}, peers_[index].get());
  }
  endpoint_->Flush();
  StepDrain();
}

void ServerEngine::TellDrain(endpoint::PeerId id, Peer* peer) {
  peer->untold = true;
  ++untold_;
  const Outgoing outgoing = Reserve(id, peer, 0);
  if (outgoing.data == nullptr) return;
  frame::Header header;
  header.kind = frame::Kind::kDrain;
  Commit(id, outgoing, header);
}

void ServerEngine::OnDrainAnswer(endpoint::PeerId id, Peer* peer, const frame::Header& header) {
  if (header.flags != 0 || !std::exchange(peer->untold, false)) {
    return OnProtocolError(id, "malformed message", "it confirms a drain that was not announced");
  }
  --untold_;
}

void ServerEngine::StepDrain() {
  if (drain_.over()) return;
  RefreshNow();
  while (drain_.Step(now_ns_, untold_, UnreadReplies(), under_way_.size())) {
    log_.Say(base::Severity::kInfo, "drain", "",
             absl::StrCat("drain: ", Name(drain_.phase()), ", ", under_way_.size(),
                          " calls in flight, ", UnreadReplies(), " replies wait"));
    if (drain_.phase() != DrainPhase::kCancelling) continue;
    CancelUnderWay(base::Error(
        absl::StatusCode::kUnavailable, "call ended by its server",
        {.layer = "call",
         .operation = "drain",
         .cause =
             "the server is shutting down, and the call did not end within the time of the drain",
         .remedy = "retry the call on another server if running it twice is harmless"}));
    endpoint_->Flush();
  }
}

}  // namespace sluice::call
