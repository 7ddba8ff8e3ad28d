// SPDX-License-Identifier: Apache-2.0
//
// Control slots: the share of each peer, and messages that wait for a slot (docs/decisions/0046).
//
// A slot is in use until the peer's device has accepted the message. A peer that takes no messages keeps its slots for long, and could
// hold all of them with answers that it asks for. So a peer gets a few slots once a quarter of all slots is in use. Messages that find
// no slot stay in their lists. Each pass tries them again, and the completion that frees a slot wakes a sleeping thread.
#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {

// Returns kNoSlot if no slot is free, or if a quarter of the slots is in use and the peer holds `most` of them or more.
uint32_t EndpointImpl::TakeControl(const Peer& peer, uint32_t most) {
  if (slots_->free_control() == 0) return queue::kNoSlot;
  const uint32_t all = slots_->control_slots();
  const uint64_t owner = Owner(peer.id());
  const bool many_in_use = slots_->free_control() <= all - all / 4;
  if (many_in_use && most < all && slots_->ControlOf(owner) >= most) return queue::kNoSlot;
  return slots_->TakeControlFor(owner);
}

// Tries to send all control messages that wait, except those of handshakes: they may call the handler, which only Poll() does.
void EndpointImpl::SayControl() {
  SayWindowWords();
  SendCredits();
  RequestReports();
  SayTargets();
  SayLaneWords();
}

// Returns the number of peers that wait in the lists of SayControl(), each list counted.
size_t EndpointImpl::ControlWaiting() const {
  return windows_.words.size() + credit_reports_.size() + report_queue_.size() +
         owed_targets_.size() + lane_words_.size();
}

}  // namespace sluice::endpoint
