// SPDX-License-Identifier: Apache-2.0
//
// Replacement of a tenant's DCTs after a peer has sent more than it was granted, because it knows the keys: docs/decisions/0046.
//
//   kNone -> kMaking: two DCTs on the same buffers, with new keys   -> kMoving: every peer is told, switches and
//   acknowledges over the new control DCT   -> kNone: the old DCTs are destroyed
#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {
namespace {

// Minimum time between two replacements of one tenant's DCTs.
constexpr int64_t kPeriodNs = 1'000'000'000;
// Number of checks, a quarter of dead_peer_ns apart, after which the old DCTs are destroyed. Requests of peers that have not switched
// by then fail, and go to the new DCTs when the peer has read the message.
constexpr uint32_t kLooks = 8;
// Number of checks between two messages to a peer: the first message may have been lost.
constexpr uint32_t kSayEvery = 3;

using Made = std::array<absl::StatusOr<receive::Target>, 2>;

}  // namespace

void EndpointImpl::RenewTenant(uint32_t tenant) {
  Renewal& renewal = receptions_[tenant].renewal;
  const int64_t now_ns = clock_.NowNs();
  if (closed_ || rc_ != nullptr) return;  // an RC queue pair ends with its peer
  if (renewal.state != Renewal::State::kNone || now_ns < renewal.earliest_ns) {
    renewal.wanted = true;
    if (!renew_timer_.armed()) timers_.Schedule(&renew_timer_, renewal.earliest_ns);
    return;
  }
  renewal.state = Renewal::State::kMaking;
  renewal.wanted = false;
  renewal.earliest_ns = now_ns + kPeriodNs;
  auto made = std::make_shared<Made>(Made{absl::UnknownError(""), absl::UnknownError("")});
  const std::array<uint64_t, 2> keys = {random_.Next64(), random_.Next64()};
  const std::array<const receive::ReceiveQueue*, 2> queues = {receptions_[tenant].data.get(),
                                                              receptions_[tenant].control.get()};
  commands_.Submit(
      [this, made, keys, queues] {
        for (size_t i = 0; i < queues.size(); ++i) {
          (*made)[i] = queues[i]->MakeTarget(device_, keys[i]);
        }
      },
      [this, tenant, made] { UseRenewed(tenant, *made); });
}

void EndpointImpl::UseRenewed(uint32_t tenant, Made& made) {
  Reception& reception = receptions_[tenant];
  Renewal& renewal = reception.renewal;
  renewal.state = Renewal::State::kNone;
  for (const auto& target : made) {
    if (target.ok()) continue;
    return log_.Say(base::Severity::kError, "keys not replaced", "",
                    "a peer that was ended can still send to this side: " +
                        std::string(target.status().message()));
  }
  renewal.state = Renewal::State::kMoving;
  renewal.looks = 0;
  renewal.old = reception.TargetsOf(/*old=*/false);
  renewal.old_data = reception.data->Replace(*std::move(made[0]));
  renewal.old_control = reception.control->Replace(*std::move(made[1]));
  ++counters_.targets_renewed;
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer* peer = &peers_[i];
    if (peer->state == peer::State::kFree || peer->tenant != tenant) continue;
    peer->old_targets = true;
    if (peer->state == peer::State::kUp) OweTargets(peer);  // other peers are told when they are up
  }
  timers_.Schedule(&renew_timer_, clock_.NowNs() + options_.dead_peer_ns / 4);
}

void EndpointImpl::OweTargets(Peer* peer) {
  if (peer->targets_due) return;
  peer->targets_due = 1;
  owed_targets_.push_back(peer->id());
}

// Leaves half of the control slots for other messages: a goodbye that finds no slot is not sent.
void EndpointImpl::SayTargets() {
  size_t said = 0;
  size_t kept = 0;
  for (; said < owed_targets_.size() && slots_->free_control() > kControlSlots / 2; ++said) {
    const PeerId id = owed_targets_[said];
    Peer* peer = Find(id);
    if (peer == nullptr) continue;
    const bool due = peer->state == peer::State::kUp && peer->old_targets;
    if (due && !PostBody(peer, peer::Kind::kTargets,
                         peer::EncodeTargets(ReceptionOf(*peer).TargetsOf(/*old=*/false)))) {
      owed_targets_[kept++] = id;  // it has its share of the control slots: retried later
      continue;
    }
    peer->targets_due = 0;
  }
  const auto begin = owed_targets_.begin();
  owed_targets_.erase(begin + static_cast<ptrdiff_t>(kept), begin + static_cast<ptrdiff_t>(said));
}

void EndpointImpl::OnRenewTime(base::Timer*, void* context) {
  auto* self = static_cast<EndpointImpl*>(context);
  bool again = false;
  for (uint32_t tenant = 0; tenant < self->receptions_.size(); ++tenant) {
    again = self->LookAtRenewal(tenant) || again;
  }
  if (!again || self->closed_ || self->renew_timer_.armed()) return;
  self->timers_.Schedule(&self->renew_timer_,
                         self->clock_.NowNs() + self->options_.dead_peer_ns / 4);
}

// Returns true if work remains for a later check.
bool EndpointImpl::LookAtRenewal(uint32_t tenant) {
  Renewal& renewal = receptions_[tenant].renewal;
  if (renewal.state == Renewal::State::kMoving) {
    bool someone = false;
    bool shaking_hands = false;
    const bool say = ++renewal.looks % kSayEvery == 0;
    for (size_t i = 0; i < peers_.size(); ++i) {
      Peer* peer = &peers_[i];
      if (peer->tenant != tenant || !peer->old_targets || peer->state == peer::State::kFree ||
          peer->state == peer::State::kDraining) {
        continue;
      }
      someone = true;
      shaking_hands = shaking_hands || !peer->told_up;
      if (say && peer->state == peer::State::kUp) OweTargets(peer);
    }
    // DCTs of a handshake stay until the deadline of the handshake, and until its peer has been told.
    if (shaking_hands) renewal.looks = std::min(renewal.looks, kLooks - kSayEvery);
    if (someone && renewal.looks < kLooks) return true;
    Give(std::move(renewal.old_data));
    Give(std::move(renewal.old_control));
    renewal.state = Renewal::State::kNone;
  }
  if (renewal.state == Renewal::State::kNone && renewal.wanted) {
    if (clock_.NowNs() >= renewal.earliest_ns) RenewTenant(tenant);
    return true;
  }
  return renewal.state != Renewal::State::kNone;
}

// The peer has new DCTs. Posted requests still go to its old DCTs, and later requests go to its new DCTs.
void EndpointImpl::OnTargets(Peer* peer, peer::Bytes body) {
  const auto targets = peer::DecodeTargets(body);
  if (!targets.has_value()) {
    ++counters_.dropped_malformed;
    return;
  }
  const auto use = [&](queue::Target* target) {
    target->dctn[0] = targets->data_dctn;
    target->key[0] = targets->data_key;
    target->dctn[1] = targets->control_dctn;
    target->key[1] = targets->control_key;
  };
  use(&peer->target);
  const auto large = large_of_.find(peer->index());
  if (large != large_of_.end()) use(&large->second->target);
  // If the peer may take no control slot, no answer is sent, and the peer repeats its message.
  std::array<std::byte, sizeof(uint32_t)> taken;
  peer::Store(taken.data(), targets->control_dctn);
  PostBody(peer, peer::Kind::kTargetsTaken, taken);
}

void EndpointImpl::OnTargetsTaken(Peer* peer, peer::Bytes body) {
  if (body.size() != sizeof(uint32_t)) {
    ++counters_.dropped_malformed;
    return;
  }
  const uint32_t dctn = peer::Load<uint32_t>(body.data());
  if (dctn == ReceptionOf(*peer).control->dctn()) peer->old_targets = false;
}

}  // namespace sluice::endpoint
