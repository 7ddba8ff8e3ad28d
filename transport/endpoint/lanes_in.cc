// SPDX-License-Identifier: Apache-2.0
//
// Lanes that this side reads: the pass over watched lanes, and the order of messages from lanes and receive queues
// (docs/decisions/0024).
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/base/error.h"
#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {
namespace {

// Maximum number of messages that are taken from one lane in one pass.
constexpr uint32_t kMaxTurn = 32;

// Returns whether the sender of a lane may announce a message: it was asked to announce, each message is announced at most once and in
// order, and its WRITE came before its completion. `most_behind`: more messages than can be taken before the completion is read, so
// that nobody saves up announcements.
bool MayAnnounce(InLane* lane, uint32_t immediate, uint32_t most_behind) {
  const int32_t ahead = lane->reader->Ahead(immediate);
  const uint32_t value = lane->reader->value() + static_cast<uint32_t>(ahead);
  if (!lane->unannounced.has_value() || static_cast<int32_t>(value - *lane->unannounced) < 0) {
    return false;
  }
  if (ahead < 0 && static_cast<uint32_t>(-ahead) > most_behind) return false;
  const auto up_to = static_cast<uint32_t>(ahead + 1);
  if (ahead >= 0 && lane->reader->ReadyAhead(up_to) != up_to) return false;
  lane->unannounced = value + 1;
  return true;
}

}  // namespace

bool EndpointImpl::InTurn(const Peer& peer, uint16_t number) {
  return static_cast<int16_t>(number - static_cast<uint16_t>(peer.receive.consumed())) <= 0;
}

int EndpointImpl::LookAtLanes() {
  using Seat = lane::Watch::Seat;
  return watch_.Look(
      [this](Seat* seat) {
        auto* lane = static_cast<InLane*>(seat);
        return Drain(lane->peer, lane);
      },
      [this](Seat* seat) { Hush(static_cast<InLane*>(seat)); });
}

// Delivers messages in order, from the lane and from the held list. An invalid message, or a handler, may end the peer. The record of
// its lane still exists then.
int EndpointImpl::Drain(Peer* peer, InLane* lane) {
  if (draining_) return 0;
  draining_ = true;
  PeerLanes& lanes = LanesOf(peer);
  const auto stands = [=] { return lane->peer == peer && peer->state == peer::State::kUp; };
  int count = 0;
  // Takes only the messages that are present now. Their answers leave before later messages are read, so that both sides work at the
  // same time.
  uint32_t there = lane->reader.has_value() ? lane->reader->ReadyAhead(kMaxTurn) : 0;
  // Grants are cumulative, so only the grant of the newest message is needed.
  uint32_t granted = 0;
  if (there > 1 && stands() &&
      lane->reader->Peek(there - 1, offsetof(peer::Prefix, granted), &granted)) {
    TakeGrant(peer, granted);
  }
  if (there != 0 && stands() && !closed_) {
    const uint32_t taken = TakeRun(peer, lane, there);
    there -= taken;
    count += static_cast<int>(taken);
  }
  for (; stands(); ++count) {
    if (there != 0 && TakeNext(peer, lane)) {
      --there;
    } else if (!stands() || lanes.held.empty() || !TakeHeld(peer)) {
      break;
    }
  }
  draining_ = false;
  if (lane->reader.has_value()) watch_.Moved(*lane);
  if (!stands()) return count;
  if (lanes.goodbye.has_value() && InTurn(*peer, *lanes.goodbye)) {
    OnGoodbye(peer);
  } else if (lane->written.has_value()) {
    CheckEmpty(lane);
  }
  return count;
}

// Takes at most `most` messages like TakeNext(), while they are in sequence and of the common form. Returns their number. At least one
// is there. Does the work of Hear() and Deliver() without what such messages do not need. Grants are cumulative, and Drain() has taken
// that of the last message.
uint32_t EndpointImpl::TakeRun(Peer* peer, InLane* lane, uint32_t most) {
  lane::Reader& reader = *lane->reader;
  const PeerId id = peer->id();
  const uint64_t own = uint64_t{peer->token} << 32 | peer->index();
  std::byte* const bytes = lane_message_.data();
  uint32_t count = 0;
  while (count < most) {
    const uint32_t size_bytes = reader.LookPlainly(bytes);
    if (size_bytes == 0) break;
    static_assert(peer::kPrefixBytes == 2 * sizeof(uint64_t));
    uint64_t words[2];
    std::memcpy(words, bytes, sizeof(words));
    const auto what = static_cast<uint32_t>(words[1] >> 32);  // kind, flags and number
    constexpr uint32_t kAsks = uint32_t{peer::kReportSoon} << 8;
    const uint32_t next = peer->receive.consumed() << 16 | static_cast<uint32_t>(peer::Kind::kData);
    if (words[0] != own || (what & ~kAsks) != next) break;
    reader.TakePlainly();
    ++count;
    if ((what & kAsks) != 0) [[unlikely]]
      peer->report_requested_by_peer = true;
    if (most == 1 && peer->send.IsNews(static_cast<uint32_t>(words[1]), peer->remote_window)) {
      TakeGrant(peer, static_cast<uint32_t>(words[1]));
      if (peer->generation != id.generation || peer->state != peer::State::kUp) break;
    }
    peer->receive.LeaveLook();
    peer->receive.Consumed();
    const bool taken = handler_->OnMessage(
        id, {bytes + peer::kPrefixBytes, size_bytes - size_t{peer::kPrefixBytes}});
    if (peer->generation != id.generation || peer->state != peer::State::kUp) break;
    if (!taken || peer->receive.overdrawn()) [[unlikely]] {
      if (!Judge(peer, taken)) break;
    }
    if (peer->report_requested_by_peer || peer->receive.ReportIsDue()) QueueCreditReport(peer);
    if (lane->peer != peer || closed_) break;
  }
  // Something that cannot be taken is no sign of life: it may lie there for ever.
  if (count != 0 && peer->generation == id.generation) peer->active_since_last_look = true;
  counters_.lane_received += count;
  counters_.messages_received += count;
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
    Fail(peer, LaneGarbage(*peer, "a message with a wrong prefix"));
    return false;
  }
  if (!InTurn(*peer, prefix.number)) return false;  // a sent message comes first
  lane->reader->Take();
  ++counters_.lane_received;
  if (Hear(peer, prefix)) {
    peer->receive.LeaveLook();
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

// Handles a data message from a receive queue, whose sender has lanes.
void EndpointImpl::OnSentData(Peer* peer, uint16_t number, const ibv_wc& wc) {
  const uint32_t token = peer->token;
  const auto index = static_cast<uint32_t>(wc.wr_id);
  receive::ReceiveQueue& queue = QueueOf(wc);
  const auto ahead = [&] {
    return peer->token == token && peer->state == peer::State::kUp && peer->lanes != 0 &&
           !InTurn(*peer, number);
  };
  if (ahead() && LanesOf(peer).in != nullptr) Drain(peer, LanesOf(peer).in);
  if (ahead()) {
    // Earlier messages were in a lane that was lost when requests of its sender failed. They and this message are retransmitted.
    if (LanesOf(peer).in == nullptr) {
      ++counters_.dropped_unknown;
      queue.Recycle(index);
      return;
    }
    // At most as many as the peer can have credits.
    if (LanesOf(peer).held.size() < nominal_window_) {
      LanesOf(peer).held.push_back({wc, number});
      ++counters_.lane_held;
      return;
    }
    Fail(peer, LaneGarbage(*peer, "a message arrived before earlier ones"));
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

// Returns whether all messages before a goodbye have been taken. Otherwise stores the goodbye until then.
bool EndpointImpl::AfterLane(Peer* peer, uint16_t number) {
  if (peer->lanes == 0 || LanesOf(peer).in == nullptr || InTurn(*peer, number)) return true;
  LanesOf(peer).goodbye = number;
  Drain(peer, LanesOf(peer).in);
  return false;
}

// Handles the completion of a message in a lane. With DC, any peer of the tenant may have caused it, and the completion does not
// identify the peer, so it is charged to no peer. Messages of the lane are charged when they are taken (docs/decisions/0054).
// With RC, the peer is known, and each completion took a receive of the shared queue. So a peer that announces anything but the
// messages that it has written is ended. A completion that was not read yet holds one of `arrivals_size_` receives.
void EndpointImpl::OnAnnounced(const ibv_wc& wc) {
  const uint32_t immediate = be32toh(wc.imm_data);
  const uint32_t number = immediate >> (32 - lane::kLaneBits);
  InLane* lane = number < lanes_.size() ? lanes_[number].get() : nullptr;
  if (lane == nullptr || lane->peer == nullptr || lane->peer->tenant != wc.wr_id >> 33 ||
      !lane->reader.has_value() ||
      (rc_ != nullptr && (!IsOfPeer(wc, *lane->peer) ||
                          !MayAnnounce(lane, immediate, 2 * arrivals_size_ + kMaxTurn)))) {
    ++counters_.dropped_unknown;
    return EndSender(wc);
  }
  Peer* peer = lane->peer;
  const uint32_t token = peer->token;
  if (lane->reader->Announce(immediate)) ++counters_.lane_announced;
  Drain(peer, lane);
  CountForLane(peer, token);
}

absl::Status EndpointImpl::LaneGarbage(const Peer& peer, const char* what) {
  return base::Error(absl::StatusCode::kUnavailable, "invalid message in the lane of the peer",
                     {.layer = "endpoint",
                      .peer = peer.address(),
                      .operation = "receive",
                      .cause = what,
                      .remedy = "run the same release of Sluice on both sides"});
}

}  // namespace sluice::endpoint
