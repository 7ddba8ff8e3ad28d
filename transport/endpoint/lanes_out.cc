// SPDX-License-Identifier: Apache-2.0
//
// Lanes that this side writes, and messages of both sides about lanes.
#include <algorithm>
#include <array>
#include <memory>

#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {

using lane::Mode;

// Changes the request of a message to a WRITE into the lane, if possible. Otherwise it stays a SEND. The message has its prefix already.
void EndpointImpl::WriteIntoLane(Peer* peer, queue::Slot* slot) {
  if (!LanesOf(peer).out.has_value()) return;
  OutLane& out = *LanesOf(peer).out;
  if (out.mode != Mode::kSilent && out.mode != Mode::kAnnounced) return;
  if (out.ring != nullptr) return;  // it did not fit into a cell, or no cell was free
  // The message that used this lane slot before is acknowledged, and also the message after it.
  const uint32_t under_way = peer->send.under_way(peer->remote_window);
  if (under_way + 1 >= out.writer.grant().slots) return;
  if (!out.writer.Fits(slot->length_bytes, options_.lane_slot_bytes)) return;
  const lane::Write write = out.writer.Put(slot->data, slot->length_bytes);
  slot->operation =
      out.mode == Mode::kSilent ? queue::Operation::kWrite : queue::Operation::kWriteAnnounced;
  slot->write = {.address = write.address,
                 .rkey = write.rkey,
                 .immediate = write.immediate,
                 .offset_bytes = write.offset_bytes,
                 .length_bytes = write.length_bytes};
  ++counters_.lane_sent;
}

void EndpointImpl::NeedLanes(Peer* peer) {
  if (peer->lanes != 0) return;
  if (free_peer_lanes_.empty()) {
    peer_lanes_.emplace_back();
    free_peer_lanes_.push_back(static_cast<uint16_t>(peer_lanes_.size()));
  }
  peer->lanes = free_peer_lanes_.back();
  free_peer_lanes_.pop_back();
  peer_lanes_[peer->lanes - 1] = std::make_unique<PeerLanes>();
}

void EndpointImpl::OnLaneAsk(Peer* peer, peer::Bytes body) {
  const auto ask = lane::LoadAsk(body);
  if (!ask.has_value()) {
    ++counters_.dropped_malformed;
    return EndSender(peer);
  }
  if (peer->lanes == 0 && free_peer_lanes_.empty() && peer_lanes_.size() == UINT16_MAX) {
    // No record is left for this lane: the peer is told that it is lost, if it may take a control slot.
    std::array<std::byte, lane::kAnswerBytes> refusal;
    lane::Store(lane::Answer{.generation = ask->grant.generation,
                             .turn = ask->turn,
                             .mode = Mode::kLost,
                             .written = 0},
                refusal.data());
    PostBody(peer, peer::Kind::kLaneAnswer, refusal);
    return;
  }
  NeedLanes(peer);
  std::optional<OutLane>& out = LanesOf(peer).out;
  if (out.has_value()) {
    // A message whose request failed at its sender may still arrive late, with outdated content.
    const uint32_t generation = out->writer.grant().generation;
    const auto newer = static_cast<int32_t>(ask->grant.generation - generation);
    if (newer < 0 || (newer == 0 && static_cast<int32_t>(ask->turn - out->turn) < 0)) return;
  }
  if (!out.has_value() || out->writer.grant().generation != ask->grant.generation) {
    if (out.has_value()) CloseRing(&*out, /*write_rest=*/true);
    out.emplace(ask->grant);
    out->mode = ask->mode;
    OpenRing(peer, &*out);
  } else if (out->mode == Mode::kSilent || out->mode == Mode::kAnnounced) {
    if (out->ring != nullptr) WriteCells(out->ring);  // in the previous mode
    out->mode = ask->mode;                            // a lost or closed lane is not written again
  }
  if (out->mode != Mode::kSilent && out->mode != Mode::kAnnounced) {
    CloseRing(&*out, /*write_rest=*/true);
  }
  out->turn = ask->turn;
  LanesOf(peer).answer_due = true;
  OweLaneWords(peer);
}

void EndpointImpl::OweLaneWords(Peer* peer) {
  if (LanesOf(peer).listed) return;
  LanesOf(peer).listed = true;
  lane_words_.push_back(peer->id());
}

void EndpointImpl::SayLaneWords() {
  size_t kept = 0;
  for (const PeerId id : lane_words_) {
    Peer* peer = Find(id);
    if (peer == nullptr || peer->lanes == 0) continue;
    if (!SayLaneWords(peer)) {
      lane_words_[kept++] = id;  // it may take no control slot: retried later
    } else {
      LanesOf(peer).listed = false;
    }
  }
  lane_words_.resize(kept);
}

bool EndpointImpl::SayLaneWords(Peer* peer) {
  if (peer->state != peer::State::kUp) return true;
  PeerLanes& lanes = LanesOf(peer);
  if (lanes.answer_due && lanes.out.has_value()) {
    std::array<std::byte, lane::kAnswerBytes> body;
    lane::Store(lane::Answer{.generation = lanes.out->writer.grant().generation,
                             .turn = lanes.out->turn,
                             .mode = lanes.out->mode,
                             .written = lanes.out->writer.written()},
                body.data());
    if (!PostBody(peer, peer::Kind::kLaneAnswer, body)) return false;
  }
  lanes.answer_due = false;
  if (lanes.ask_due && lanes.in != nullptr) {
    std::array<std::byte, lane::kAskBytes> body;
    lane::Store(lanes.in->ask, body.data());
    if (!PostBody(peer, peer::Kind::kLaneAsk, body)) return false;
  }
  lanes.ask_due = false;
  return true;
}

// Called after requests to the peer failed. WRITEs into its lane may be missing, or arrive late, so the lane is never written again
// (docs/decisions/0024). Requests of this side about its own lane may be lost, so they are repeated.
void EndpointImpl::RenewLaneWords(Peer* peer) {
  PeerLanes& lanes = LanesOf(peer);
  if (lanes.out.has_value()) {
    CloseRing(&*lanes.out, /*write_rest=*/false);
    lanes.out->mode = Mode::kLost;
    lanes.answer_due = true;
  }
  if (lanes.in != nullptr && lanes.in->reader.has_value()) lanes.ask_due = true;
  OweLaneWords(peer);
}

}  // namespace sluice::endpoint
