// SPDX-License-Identifier: Apache-2.0
//
// Lanes that this side grants: grants, closing of idle lanes, and the end of a lane (docs/decisions/0024, 0025).
#include <algorithm>
#include <memory>
#include <utility>

#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {
namespace {

using lane::Event;
using lane::Mode;
using lane::State;

constexpr uint32_t kPageBytes = 4096;
// Numbers of messages have 16 bits, and are compared.
constexpr uint32_t kMaxWindow = 1 << 14;

// Returns the order in which the bytes of a peer's WRITE become visible.
verbs::DataOrder OrderOf(const Peer& peer, const device::Device& device,
                         const Reception& reception) {
  return device.rc() ? static_cast<verbs::DataOrder>(peer.rc_order) : reception.data->write_order();
}

}  // namespace

// ---- Grants

// Counts a data message that came with a completion. Its handler may have ended the peer.
void EndpointImpl::CountForLane(Peer* peer, uint32_t token) {
  if (++period_messages_ >= lane::Heat::kPeriodMessages) {
    period_messages_ = 0;
    ++period_;
  }
  if (peer->token != token || peer->state != peer::State::kUp || closed_) return;
  if (peer->heat.Add(period_) < options_.lane_after_messages) return;
  peer->heat.Cool();
  WantLane(peer);
}

void EndpointImpl::WantLane(Peer* peer) {
  const verbs::DataOrder order = OrderOf(*peer, device_, ReceptionOf(*peer));
  if (order == verbs::DataOrder::kNone && !options_.lanes_without_order) return;
  if (peer->lanes != 0 && LanesOf(peer).in != nullptr) {
    InLane* lane = LanesOf(peer).in;
    if (order == verbs::DataOrder::kNone || !lane::Next(lane->state, Event::kWake, &lane->state)) {
      return;
    }
    ++counters_.lane_wakes;
    return AskOf(lane, Mode::kSilent);
  }
  if (nominal_window_ > kMaxWindow || peer->receive.window() == 0) return;
  const uint32_t slots = std::clamp(nominal_window_ + 2, lane::kMinSlots, options_.lane_slots);
  const uint64_t bytes = uint64_t{slots} * options_.lane_slot_bytes;
  const uint64_t size_bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (lane_bytes_ + size_bytes > options_.lane_memory_bytes ||
      (free_lanes_.empty() && lanes_.size() == lane::kMaxLanes)) {
    return CloseIdleLane();  // a peer that stays busy qualifies again
  }
  if (peer->lanes == 0 && free_peer_lanes_.empty() && peer_lanes_.size() == UINT16_MAX) return;
  MakeLane(peer, slots, size_bytes);
}

void EndpointImpl::MakeLane(Peer* peer, uint32_t slots, uint64_t size_bytes) {
  if (free_lanes_.empty()) {
    free_lanes_.push_back(static_cast<uint32_t>(lanes_.size()));
    lanes_.push_back(nullptr);
  }
  const uint32_t number = free_lanes_.back();
  free_lanes_.pop_back();
  lanes_[number] = std::make_unique<InLane>();
  InLane* lane = lanes_[number].get();
  lane->number = number;
  lane->peer = peer;
  lane->size_bytes = size_bytes;
  lane_bytes_ += size_bytes;
  if (++lane_generations_ == 0) lane_generations_ = 1;
  const bool blocks = OrderOf(*peer, device_, ReceptionOf(*peer)) == verbs::DataOrder::kBlocks128;
  lane->ask.grant = {.generation = lane_generations_,
                     .slots = slots,
                     .slot_bytes = options_.lane_slot_bytes,
                     .secret = static_cast<uint32_t>(random_.Next64()),
                     .lane = number,
                     .layout = blocks ? lane::Layout::kBlocks : lane::Layout::kWhole};
  NeedLanes(peer);
  LanesOf(peer).in = lane;
  // The lane has its own memory and key, which no other peer gets to know. After the key is revoked, a late WRITE fails at its sender.
  auto status = std::make_shared<absl::Status>();
  commands_.Submit(
      [this, lane, status, own = ReceptionOf(*peer).domain.get()] {
        ibv_pd* const domain = own != nullptr ? own : device_.pd();
        auto memory = memory::Slab::Create(api_, domain, lane->size_bytes,
                                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        *status = memory.status();
        if (memory.ok()) lane->memory = std::move(*memory);
      },
      [this, lane, status] { OnLaneMade(lane, *status); });
}

void EndpointImpl::OnLaneMade(InLane* lane, const absl::Status& status) {
  if (!status.ok()) ++counters_.lanes_refused;
  if (!status.ok() && lane->peer != nullptr) {
    lane::Next(lane->state, Event::kLost, &lane->state);
    return FreeLane(lane);
  }
  if (!lane::Next(lane->state, Event::kMade, &lane->state)) return ReleaseLane(lane);
  const bool in_order =
      OrderOf(*lane->peer, device_, ReceptionOf(*lane->peer)) != verbs::DataOrder::kNone;
  lane::Grant& grant = lane->ask.grant;
  grant.rkey = lane->memory.rkey();
  grant.address = reinterpret_cast<uint64_t>(lane->memory.data());
  lane->reader.emplace(lane::Geometry{grant.layout, grant.slots, grant.slot_bytes},
                       lane->memory.data(), grant.secret, in_order);
  if (lane_message_.size() < grant.slot_bytes) lane_message_.resize(grant.slot_bytes);
  ++counters_.lanes_granted;
  if (in_order) {
    AskOf(lane, Mode::kSilent);
  } else {
    Hush(lane);
  }
}

// Closes the least used lane when lane memory is short. A lane with many messages since the last shortage stays open.
void EndpointImpl::CloseIdleLane() {
  InLane* idlest = nullptr;
  uint32_t least = options_.lane_after_messages / 4 + 1;
  for (const auto& lane : lanes_) {
    if (lane == nullptr) continue;
    if (lane->state == State::kClosing || lane->state == State::kFreeing) return;  // one at a time
    if (!lane->reader.has_value()) continue;
    const uint32_t taken =
        lane->reader->taken() - std::exchange(lane->marked, lane->reader->taken());
    State state = lane->state;
    if (taken >= least || !lane::Next(state, Event::kClose, &state)) continue;
    least = taken;
    idlest = lane.get();
  }
  if (idlest == nullptr) return;
  lane::Next(idlest->state, Event::kClose, &idlest->state);
  AskOf(idlest, Mode::kClosed);
}

// ---- The end

// Ends a lane without reading it further. A peer that is up retransmits, held messages included.
void EndpointImpl::LoseLane(InLane* lane) {
  const bool made = lane->state != State::kMaking;
  lane::Next(lane->state, Event::kLost, &lane->state);
  if (made) ++counters_.lanes_lost;
  FreeLane(lane, made);
}

void EndpointImpl::FreeLane(InLane* lane, bool made) {
  watch_.Leave(lane);
  PeerLanes& lanes = LanesOf(lane->peer);
  for (const PeerLanes::Held& held : lanes.held) {
    QueueOf(held.wc).Recycle(static_cast<uint32_t>(held.wc.wr_id));
  }
  lanes.held.clear();
  lanes.in = nullptr;
  lane->peer = nullptr;
  if (made) ReleaseLane(lane);  // otherwise OnLaneMade() releases it
}

// Revokes the key of a lane, and frees its memory and number.
void EndpointImpl::ReleaseLane(InLane* lane) {
  commands_.Submit([lane] { lane->memory = {}; },
                   [this, lane] {
                     lane_bytes_ -= lane->size_bytes;
                     free_lanes_.push_back(lane->number);
                     lanes_[lane->number].reset();
                   });
}

void EndpointImpl::EndLanes(Peer* peer) {
  if (LanesOf(peer).in != nullptr) LoseLane(LanesOf(peer).in);
  if (LanesOf(peer).out.has_value()) CloseRing(&*LanesOf(peer).out, /*write_rest=*/false);
  peer_lanes_[peer->lanes - 1].reset();
  free_peer_lanes_.push_back(peer->lanes);
  peer->lanes = 0;
}

}  // namespace sluice::endpoint
