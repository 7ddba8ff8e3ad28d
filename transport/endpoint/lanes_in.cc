// SPDX-License-Identifier: Apache-2.0
//
// Lanes that this side reads: who gets one, the pass over those that are watched, sleep, and the end of a lane
// (docs/decisions/0024 to 0026).
#include <algorithm>
#include <memory>
#include <utility>

#include "transport/base/error.h"
#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {
namespace {

using lane::Event;
using lane::Mode;
using lane::State;

constexpr uint32_t kPageBytes = 4096;
// Numbers of messages have 16 bits, and are compared.
constexpr uint32_t kMaxWindow = 1 << 14;
// A lane that was idle between two sweeps is looked at in one pass of so many, and after many sweeps not at all.
constexpr uint32_t kSweepPasses = 1024;
constexpr uint32_t kSeldomPasses = 16;
constexpr uint32_t kIdleSweeps = 64;
// Messages that are taken from one lane in one pass.
constexpr uint32_t kMaxTurn = 32;
// Until all lanes are quiet the process only naps: shortly at first, since senders answer at once if they can.
constexpr int64_t kShortNapNs = 50'000;
constexpr int64_t kLongNapNs = 1'000'000;
constexpr int64_t kShortNapsNs = 20'000'000;

const uint64_t kNothingThere = lane::kScrubbed;

}  // namespace

bool EndpointImpl::InTurn(const Peer& peer, uint16_t number) {
  return static_cast<int16_t>(number - static_cast<uint16_t>(peer.receive.consumed())) <= 0;
}

// ---- Who gets one

// A data message came by a completion; its handler may have ended the peer.
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
  const verbs::DataOrder order = ReceptionOf(*peer).data->write_order();
  if (order == verbs::DataOrder::kNone && !options_.lanes_without_order) return;
  if (peer->lanes != 0 && LanesOf(peer).in != nullptr) {
    InLane* lane = LanesOf(peer).in;
    if (order == verbs::DataOrder::kNone || !lane::Next(lane->state, Event::kWake, &lane->state)) {
      return;
    }
    ++counters_.lane_wakes;
    return AskOf(lane, Mode::kSilent);
  }
  const uint32_t window = peer->receive.window();
  if (window > kMaxWindow) return;
  const uint32_t slots = std::clamp(window + 2, lane::kMinSlots, options_.lane_slots);
  const uint64_t bytes = uint64_t{slots} * options_.lane_slot_bytes;
  const uint64_t size_bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (lane_bytes_ + size_bytes > options_.lane_memory_bytes ||
      (free_lanes_.empty() && lanes_.size() == lane::kMaxLanes)) {
    return CloseIdleLane();  // who is still busy then asks again
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
  const bool blocks = ReceptionOf(*peer).data->write_order() == verbs::DataOrder::kBlocks128;
  lane->ask.grant = {.generation = lane_generations_,
                     .slots = slots,
                     .slot_bytes = options_.lane_slot_bytes,
                     .secret = static_cast<uint32_t>(random_.Next64()),
                     .lane = number,
                     .layout = blocks ? lane::Layout::kBlocks : lane::Layout::kWhole};
  NeedLanes(peer);
  LanesOf(peer).in = lane;
  // In memory of its own, with a key of its own, both never anybody else's: what is written there late harms nobody.
  auto status = std::make_shared<absl::Status>();
  commands_.Submit(
      [this, lane, status] {
        auto memory = memory::Slab::Create(api_, device_.pd(), lane->size_bytes,
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
  const bool in_order = ReceptionOf(*lane->peer).data->write_order() != verbs::DataOrder::kNone;
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

// When memory is short. Since somebody last asked in vain, that one has sent many messages.
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

void EndpointImpl::AskOf(InLane* lane, Mode mode) {
  lane->ask.mode = mode;
  ++lane->ask.turn;
  lane->written.reset();
  LanesOf(lane->peer).owes_ask = true;
  OweLaneWords(lane->peer);
  Watch(lane);
}

void EndpointImpl::OnLaneAnswer(Peer* peer, peer::Bytes body) {
  const auto answer = lane::LoadAnswer(body);
  if (!answer.has_value()) {
    ++counters_.dropped_malformed;
    return;
  }
  InLane* lane = peer->lanes == 0 ? nullptr : LanesOf(peer).in;
  if (lane == nullptr || !lane->reader.has_value() ||
      answer->generation != lane->ask.grant.generation) {
    return;  // of a lane that has ended here
  }
  if (answer->mode == Mode::kLost) return LoseLane(lane);
  if (answer->turn != lane->ask.turn || answer->mode != lane->ask.mode) return;
  if (answer->mode == Mode::kSilent) {
    lane::Next(lane->state, Event::kAnswered, &lane->state);
    return;
  }
  lane->written = answer->written;
  Drain(peer, lane);
}

// ---- The pass

void EndpointImpl::Watch(InLane* lane) {
  if (lane->watched_at != kNotWatched) return;
  lane->watched_at = static_cast<uint32_t>(watched_.size());
  lane->idle_sweeps = 0;
  watched_.push_back(
      {.stamp = lane->reader->stamp(), .value = lane->reader->value(), .lane = lane});
  rearrange_ = true;
}

void EndpointImpl::Unwatch(InLane* lane) {
  if (lane->watched_at == kNotWatched) return;
  watched_[lane->watched_at] = {.stamp = &kNothingThere};
  lane->watched_at = kNotWatched;
  rearrange_ = true;
  if (!looking_) RearrangeLanes();
}

// The busy ones first.
void EndpointImpl::RearrangeLanes() {
  rearrange_ = false;
  std::erase_if(watched_, [](const Watched& watched) { return watched.lane == nullptr; });
  const auto busy = std::partition(watched_.begin(), watched_.end(), [](const Watched& watched) {
    return watched.lane->idle_sweeps == 0;
  });
  often_ = static_cast<uint32_t>(busy - watched_.begin());
  for (uint32_t i = 0; i < watched_.size(); ++i) watched_[i].lane->watched_at = i;
}

int EndpointImpl::LookAtLanes() {
  if (looking_) return 0;
  if (++lane_passes_ % kSweepPasses == 0) SweepLanes();
  if (rearrange_) RearrangeLanes();
  const size_t end = lane_passes_ % kSeldomPasses == 0 ? watched_.size() : often_;
  int count = 0;
  looking_ = true;
  for (size_t i = 0; i < end; ++i) {
    const Watched& watched = watched_[i];
    if (!lane::Reader::Ready(watched.stamp, watched.value)) continue;
    InLane* lane = watched.lane;
    rearrange_ = rearrange_ || lane->idle_sweeps != 0;
    lane->idle_sweeps = 0;
    count += Drain(lane->peer, lane);
  }
  looking_ = false;
  return count;
}

void EndpointImpl::SweepLanes() {
  for (const Watched& watched : watched_) {
    InLane* lane = watched.lane;
    if (lane == nullptr) continue;
    const uint32_t taken = lane->reader->taken();
    if (std::exchange(lane->seen, taken) != taken) {
      lane->idle_sweeps = 0;
    } else if (++lane->idle_sweeps >= kIdleSweeps) {
      Hush(lane);
    }
  }
  rearrange_ = true;
}

// Whatever is next, from the lane or held back. Nonsense in the lane, and each handler, may end the peer; its lane is without
// a peer then, and still there.
int EndpointImpl::Drain(Peer* peer, InLane* lane) {
  if (draining_) return 0;
  draining_ = true;
  PeerLanes& lanes = LanesOf(peer);
  const auto stands = [=] { return lane->peer == peer && peer->state == peer::State::kUp; };
  int count = 0;
  // What is there now, and not what comes meanwhile: the answers to it leave before more is looked at, so that both sides
  // work at the same time.
  uint32_t there = lane->reader.has_value() ? lane->reader->ReadyAhead(kMaxTurn) : 0;
  for (; stands(); ++count) {
    if (there != 0 && TakeNext(peer, lane)) {
      --there;
    } else if (!stands() || lanes.held.empty() || !TakeHeld(peer)) {
      break;
    }
  }
  draining_ = false;
  if (!stands()) return count;
  if (lanes.goodbye.has_value() && InTurn(*peer, *lanes.goodbye)) {
    OnGoodbye(peer);
  } else if (lane->written.has_value()) {
    CheckEmpty(lane);
  }
  return count;
}

bool EndpointImpl::TakeNext(Peer* peer, InLane* lane) {
  uint32_t size_bytes = 0;
  switch (lane->reader->Look(lane_message_.data(), &size_bytes)) {
    case lane::Reader::Found::kNothing:
      return false;
    case lane::Reader::Found::kGarbage:
      Fail(peer, LaneGarbage(*peer, "a message that is longer than its slot, or empty"));
      return false;
    case lane::Reader::Found::kMessage:
      break;
  }
  peer::Prefix prefix;
  if (!peer::LoadPrefix(lane_message_.data(), size_bytes, &prefix) ||
      prefix.kind != peer::Kind::kData || prefix.peer_index != peer->index() ||
      prefix.token != peer->token) {
    Fail(peer, LaneGarbage(*peer, "a message with a prefix that is not its own"));
    return false;
  }
  if (!InTurn(*peer, prefix.number)) return false;  // one that was sent comes first
  lane->reader->Take();
  if (lane->watched_at != kNotWatched) {
    watched_[lane->watched_at].stamp = lane->reader->stamp();
    watched_[lane->watched_at].value = lane->reader->value();
  }
  ++counters_.lane_received;
  if (Hear(peer, prefix)) {
    OnData(peer, lane_message_.data() + peer::kPrefixBytes,
           size_bytes - static_cast<uint32_t>(peer::kPrefixBytes));
  }
  return true;
}

bool EndpointImpl::TakeHeld(Peer* peer) {
  std::vector<PeerLanes::Held>& held = LanesOf(peer).held;
  const auto it = std::find_if(held.begin(), held.end(), [peer](const PeerLanes::Held& one) {
    return InTurn(*peer, one.number);
  });
  if (it == held.end()) return false;
  const ibv_wc wc = it->wc;
  held.erase(it);
  const auto index = static_cast<uint32_t>(wc.wr_id);
  receive::ReceiveQueue& queue = QueueOf(wc);
  OnData(peer, queue.buffer(index) + peer::kPrefixBytes,
         wc.byte_len - static_cast<uint32_t>(peer::kPrefixBytes));
  queue.Recycle(index);
  return true;
}

// A message that was sent, from a peer that has lanes.
void EndpointImpl::OnSentData(Peer* peer, uint16_t number, const ibv_wc& wc) {
  const uint32_t token = peer->token;
  const auto index = static_cast<uint32_t>(wc.wr_id);
  receive::ReceiveQueue& queue = QueueOf(wc);
  const auto ahead = [&] {
    return peer->token == token && peer->state == peer::State::kUp && peer->lanes != 0 &&
           LanesOf(peer).in != nullptr && !InTurn(*peer, number);
  };
  if (ahead()) Drain(peer, LanesOf(peer).in);
  if (ahead()) {
    // No more than it has credits.
    if (LanesOf(peer).held.size() < peer->receive.window()) {
      LanesOf(peer).held.push_back({wc, number});
      ++counters_.lane_held;
      return;
    }
    Fail(peer, LaneGarbage(*peer, "messages that others should have come before"));
  }
  if (peer->token == token && peer->state == peer::State::kUp) {
    OnData(peer, queue.buffer(index) + peer::kPrefixBytes,
           wc.byte_len - static_cast<uint32_t>(peer::kPrefixBytes));
  }
  queue.Recycle(index);
  if (peer->token == token && peer->lanes != 0 && LanesOf(peer).in != nullptr) {
    Drain(peer, LanesOf(peer).in);
  }
  if (lanes_wanted_) CountForLane(peer, token);
}

// A goodbye must not pass what was written before it. False: it waits.
bool EndpointImpl::AfterLane(Peer* peer, uint16_t number) {
  if (peer->lanes == 0 || LanesOf(peer).in == nullptr || InTurn(*peer, number)) return true;
  LanesOf(peer).goodbye = number;
  Drain(peer, LanesOf(peer).in);
  return false;
}

// A message in a lane, by its completion.
void EndpointImpl::OnAnnounced(uint32_t immediate, uint32_t tenant) {
  const uint32_t number = immediate >> (32 - lane::kLaneBits);
  InLane* lane = number < lanes_.size() ? lanes_[number].get() : nullptr;
  if (lane == nullptr || lane->peer == nullptr || lane->peer->tenant != tenant ||
      !lane->reader.has_value()) {
    ++counters_.dropped_unknown;
    return;
  }
  Peer* peer = lane->peer;
  const uint32_t token = peer->token;
  if (lane->reader->Announce(immediate)) ++counters_.lane_announced;
  Drain(peer, lane);
  CountForLane(peer, token);
}

absl::Status EndpointImpl::LaneGarbage(const Peer& peer, const char* what) {
  return base::Error(absl::StatusCode::kUnavailable, "the peer wrote nonsense into its lane",
                     {.layer = "endpoint",
                      .peer = peer.address(),
                      .operation = "receive",
                      .cause = what,
                      .remedy = "run the same release of Sluice on both sides"});
}

// ---- Sleep

void EndpointImpl::Hush(InLane* lane) {
  if (!lane::Next(lane->state, Event::kHush, &lane->state)) return;
  ++counters_.lane_hushes;
  AskOf(lane, Mode::kAnnounced);
}

// Who wants to sleep is not busy.
void EndpointImpl::HushAll() {
  ++period_;
  if (watched_.empty()) {
    hushed_ns_ = -1;
    return;
  }
  if (hushed_ns_ < 0) hushed_ns_ = clock_.NowNs();
  for (size_t i = 0; i < watched_.size(); ++i) {
    if (watched_[i].lane != nullptr) Hush(watched_[i].lane);
  }
  SayLaneWords();
}

// How long a sleep may be while something may be written of which no completion tells; -1: as long as it likes.
int64_t EndpointImpl::NapNs() const {
  if (watched_.empty()) return -1;
  if (hushed_ns_ < 0 || clock_.NowNs() - hushed_ns_ < kShortNapsNs) return kShortNapNs;
  return kLongNapNs;
}

// All that was written before the answer has been taken?
void EndpointImpl::CheckEmpty(InLane* lane) {
  if (!lane->written.has_value()) return;
  if (static_cast<int32_t>(lane->reader->taken() - *lane->written) < 0) return;
  if (lane->state == State::kClosing && !LanesOf(lane->peer).held.empty()) return;
  if (!lane::Next(lane->state, Event::kEmpty, &lane->state)) return;
  if (lane->state == State::kAnnounced) return Unwatch(lane);
  ++counters_.lanes_closed;
  FreeLane(lane);
}

// ---- The end

// Nothing of it is read any more. What was sent meanwhile and held back will be sent again, if the peer lives.
void EndpointImpl::LoseLane(InLane* lane) {
  const bool made = lane->state != State::kMaking;
  lane::Next(lane->state, Event::kLost, &lane->state);
  if (made) ++counters_.lanes_lost;
  FreeLane(lane, made);
}

void EndpointImpl::FreeLane(InLane* lane, bool made) {
  Unwatch(lane);
  PeerLanes& lanes = LanesOf(lane->peer);
  for (const PeerLanes::Held& held : lanes.held) {
    QueueOf(held.wc).Recycle(static_cast<uint32_t>(held.wc.wr_id));
  }
  lanes.held.clear();
  lanes.in = nullptr;
  lane->peer = nullptr;
  if (made) ReleaseLane(lane);  // else when it is
}

// Once the key is taken back, nothing can be written there any more.
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
  peer_lanes_[peer->lanes - 1].reset();
  free_peer_lanes_.push_back(peer->lanes);
  peer->lanes = 0;
}

}  // namespace sluice::endpoint
