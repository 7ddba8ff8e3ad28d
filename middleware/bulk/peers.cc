// SPDX-License-Identifier: Apache-2.0
//
// The ways to other ports: joining them, finding them, and their end.
#include <algorithm>
#include <string>
#include <utility>

#include "middleware/bulk/peer.h"
#include "middleware/bulk/port.h"
#include "middleware/bulk/refusal.h"

namespace sluice::bulk {
namespace {

// Buffers for notices. More than the peer may have under way: it goes on while this side looks at what came.
uint32_t NoticeBuffers(const PortOptions& options) {
  constexpr uint32_t kMost = 1024;
  return std::max(options.max_pieces_in_flight, std::min(16 * options.max_pieces_in_flight, kMost));
}

}  // namespace

Port::Peer* Port::Find(PeerId id) const {
  if (id.index >= peers_.size() || id.generation == 0) return nullptr;
  Peer* peer = peers_[id.index].get();
  return peer->living() && peer->id == id ? peer : nullptr;
}

// A free place; else the peer that was not used for the longest time and has nothing open is given up, and its
// place is free a little later.
absl::StatusOr<Port::Peer*> Port::NewPeer() {
  Peer* free = nullptr;
  Peer* oldest = nullptr;
  for (const auto& peer : peers_) {
    if (peer->state == Peer::State::kFree) free = peer.get();
    const bool idle =
        peer->state == Peer::State::kUp && peer->outgoing.empty() && peer->incoming.empty();
    if (idle && (oldest == nullptr || peer->used < oldest->used)) oldest = peer.get();
  }
  if (free == nullptr) {
    if (oldest != nullptr) {
      ++counters_.evicted;
      GiveUp(*oldest,
             Refused(absl::StatusCode::kUnavailable, "this peer was given up",
                     "it was not used for the longest time", "join the ports again"),
             /*goodbye=*/true);
    }
    return Refused(absl::StatusCode::kResourceExhausted,
                   "all " + std::to_string(peers_.size()) + " ways to peers are taken",
                   oldest == nullptr ? "all of them are in use" : "one is being given up",
                   "try again soon, or raise max_peers");
  }
  auto queue = integrity::SignedQueue::Create(device_, commands_, *free,
                                              {.max_open = options_.max_pieces_in_flight,
                                               .max_replies = NoticeBuffers(options_),
                                               .max_transfer_bytes = options_.piece_bytes,
                                               .peer = "port " + std::to_string(free->id.index),
                                               .offload = options_.offload,
                                               .pipelining = options_.pipelining,
                                               .channel = announcements_->channel()});
  if (!queue.ok()) return queue.status();
  free->queue = *std::move(queue);
  if (++free->id.generation == 0) ++free->id.generation;
  free->state = Peer::State::kOffered;
  free->queue_ended = free->way_ended = false;
  free->why = absl::OkStatus();
  free->used = ++uses_;
  free->next_number = free->next_arrival = 0;
  return free;
}

absl::Status Port::Connect(Peer& peer, const Ticket& ticket) {
  absl::Status status = peer.queue->Connect({.number = ticket.qp_number, .gid = ticket.way.gid});
  if (status.ok()) status = mover_->Connect(peer.id.index, ticket.way);
  if (!status.ok()) return status;
  peer.number = ticket.port;
  peer.notices = ticket.notices;
  peer.state = Peer::State::kUp;
  return absl::OkStatus();
}

absl::StatusOr<PeerId> Port::Offer(std::string* ticket) {
  auto peer = NewPeer();
  if (!peer.ok()) return peer.status();
  *ticket = ToBytes(Ticket{.port = number_,
                           .qp_number = (*peer)->queue->address().number,
                           .notices = options_.max_pieces_in_flight,
                           .way = mover_->Open((*peer)->id.index)});
  return (*peer)->id;
}

absl::StatusOr<PeerId> Port::Accept(std::string_view ticket, std::string* answer) {
  auto theirs = LoadTicket(ticket);
  if (!theirs.ok()) return theirs.status();
  auto id = Offer(answer);
  if (!id.ok()) return id.status();
  Peer& peer = *Find(*id);
  absl::Status status = Connect(peer, *theirs);
  if (!status.ok()) {
    GiveUp(peer, status);
    return status;
  }
  return *id;
}

absl::Status Port::Complete(PeerId id, std::string_view ticket) {
  Peer* peer = Find(id);
  if (peer == nullptr) return NoPeer();
  if (peer->state != Peer::State::kOffered) {
    return Refused(absl::StatusCode::kFailedPrecondition, "this peer is joined already");
  }
  auto theirs = LoadTicket(ticket);
  if (!theirs.ok()) return theirs.status();
  absl::Status status = Connect(*peer, *theirs);
  if (!status.ok()) GiveUp(*peer, status);
  return status;
}

absl::Status Port::Disconnect(PeerId id) {
  Peer* peer = Find(id);
  if (peer == nullptr) return NoPeer();
  GiveUp(*peer, Refused(absl::StatusCode::kUnavailable, "this side has left the peer"),
         /*goodbye=*/true);
  return absl::OkStatus();
}

integrity::Mode Port::mode(PeerId id) const {
  const Peer* peer = Find(id);
  return peer == nullptr ? integrity::Mode::kSoftware : peer->queue->mode();
}

// Both of its ways end; it is down when they have.
void Port::GiveUp(Peer& peer, const absl::Status& why, bool goodbye) {
  if (!peer.living()) return;
  peer.state = Peer::State::kLeaving;
  peer.why = why;
  mover_->Close(peer.id.index, why, goodbye);
  if (!peer.queue_ended) peer.queue->Fail(why);
}

void Port::Parted(Peer& peer) {
  if (peer.queue_ended && peer.way_ended) peer.state = Peer::State::kDown;
}

void Port::OnWord(uint32_t place, std::span<const std::byte> word) {
  OnNotice(*peers_[place], word);
}

void Port::OnDown(uint32_t place, const absl::Status& why) {
  Peer& peer = *peers_[place];
  peer.way_ended = true;
  GiveUp(peer, why);
  Parted(peer);
}

// What is left of a queue is freed where that may block.
void Port::Bury(Peer& peer) {
  peer.state = Peer::State::kBuried;
  peer.incoming.clear();
  commands_.Submit([queue = std::move(peer.queue)]() mutable { queue.reset(); },
                   [&peer] { peer.state = Peer::State::kFree; });
  user_.OnPeerDown(peer.id, peer.why);
}

}  // namespace sluice::bulk
