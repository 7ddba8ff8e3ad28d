// SPDX-License-Identifier: Apache-2.0
//
// Connections to other ports: join, find, disconnect.
#include <algorithm>
#include <string>
#include <utility>

#include "middleware/bulk/peer.h"
#include "middleware/bulk/port.h"
#include "middleware/bulk/refusal.h"

namespace sluice::bulk {
Port::Peer* Port::Find(PeerId id) const {
  if (id.index >= peers_.size() || id.generation == 0) return nullptr;
  Peer* peer = peers_[id.index].get();
  return peer->living() && peer->id == id ? peer : nullptr;
}

// Returns a free place. Without a free place, disconnects the least recently used peer that has no open transfer, and
// returns RESOURCE_EXHAUSTED: the place of that peer is free a little later.
absl::StatusOr<Port::Peer*> Port::NewPeer() {
  if (!mover_->health().ok()) return mover_->health();
  Peer* free = nullptr;
  Peer* oldest = nullptr;
  bool leaving = false;
  for (const auto& peer : peers_) {
    if (peer->state == Peer::State::kFree) free = peer.get();
    leaving |= peer->state != Peer::State::kFree && !peer->living();
    // This includes offers that were not accepted: their tickets may be lost.
    const bool idle = peer->living() && peer->outgoing.empty() && peer->incoming.empty();
    if (idle && (oldest == nullptr || peer->used < oldest->used)) oldest = peer.get();
  }
  if (free == nullptr) {
    // Disconnects one peer at a time, even if the caller retries in between.
    if (oldest != nullptr && !leaving) {
      ++counters_.evicted;
      GiveUp(*oldest,
             Refused(absl::StatusCode::kUnavailable,
                     "this peer was disconnected to admit another peer",
                     "of all peers, it was unused for the longest time", "join the ports again"));
    }
    return Refused(
        absl::StatusCode::kResourceExhausted,
        "all " + std::to_string(peers_.size()) + " places for peers are taken",
        oldest == nullptr && !leaving ? "all of them are in use" : "one peer is being disconnected",
        "retry soon, or raise max_peers");
  }
  if (++free->id.generation == 0) ++free->id.generation;
  free->state = Peer::State::kOffered;
  free->piece_bytes = options_.piece_bytes;  // words may come before the other side's ticket
  free->way = {};
  free->moved_out = false;
  free->join_by_ns = 0;
  free->why = absl::OkStatus();
  free->used = ++uses_;
  free->next_number = free->next_arrival = 0;
  return free;
}

absl::Status Port::Connect(Peer& peer, const Ticket& ticket, bool last) {
  absl::Status status = mover_->Connect(peer.id.index, ticket.way, last);
  if (!status.ok()) return status;
  peer.number = ticket.port;
  peer.piece_bytes = std::min(options_.piece_bytes, ticket.piece_bytes);
  peer.token = ticket.way.token;
  peer.gid = ticket.way.gid;
  peer.lid = ticket.way.lid;
  peer.state = Peer::State::kUp;
  return absl::OkStatus();
}

absl::StatusOr<LeaseId> Port::Lend(std::span<std::byte> memory, uint8_t rights, int64_t end_ns,
                                   PeerId id) {
  const Peer* peer = Find(id);
  if (peer == nullptr) return NoPeer();
  if (peer->domain == nullptr) {
    return Refused(absl::StatusCode::kFailedPrecondition,
                   "memory can't be lent for this peer alone",
                   "the peer was joined with Reach::kShared, and reaches what others reach",
                   "join the peer with Reach::kOwn");
  }
  return leases_.Lend(memory, rights, end_ns, peer->domain);
}

// Without a place for a peer, it creates nothing at the device.
absl::StatusOr<PeerId> Port::Offer(std::string* ticket, Reach reach) {
  auto peer = NewPeer();
  if (!peer.ok()) return peer.status();
  auto way = OpenWay(**peer, reach);
  if (!way.ok()) {
    (*peer)->domain = nullptr;
    (*peer)->state = Peer::State::kFree;
    return base::Prefix(way.status(), "no queue can be made for another peer");
  }
  *ticket =
      ToBytes(Ticket{.port = number_, .piece_bytes = options_.piece_bytes, .way = *std::move(way)});
  return (*peer)->id;
}

absl::StatusOr<onesided::Address> Port::OpenWay(Peer& peer, Reach reach) {
  peer.domain = nullptr;
  if (reach == Reach::kOwn) {
    auto domain = mover_->MakeDomain();
    if (!domain.ok()) return domain.status();
    peer.domain = *std::move(domain);
  }
  return mover_->Open(peer.id.index, peer.domain);
}

absl::StatusOr<PeerId> Port::Accept(std::string_view ticket, std::string* answer, Reach reach) {
  auto theirs = LoadTicket(ticket);
  if (!theirs.ok()) return theirs.status();
  // Two local peers with one ticket would use the same place and token at the remote port. The goodbye of the first would end the
  // second.
  for (const auto& peer : peers_) {
    if (peer->state == Peer::State::kUp && peer->token == theirs->way.token) {
      return Refused(absl::StatusCode::kFailedPrecondition, "this ticket has been accepted already",
                     "a ticket joins two ports once",
                     "use the peer and the answer of the first time, or another ticket");
    }
  }
  auto id = Offer(answer, reach);
  if (!id.ok()) return id.status();
  Peer& peer = *Find(*id);
  absl::Status status = Connect(peer, *theirs, /*last=*/false);
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
  absl::Status status = Connect(*peer, *theirs, /*last=*/true);
  if (!status.ok()) GiveUp(*peer, status);
  return status;
}

absl::Status Port::Disconnect(PeerId id) {
  Peer* peer = Find(id);
  if (peer == nullptr) return NoPeer();
  GiveUp(*peer, Refused(absl::StatusCode::kUnavailable, "this side has left the peer"));
  return absl::OkStatus();
}

// Ends the peer's place at the mover and its queue pair; the peer is down when both have ended. The mover always sends a goodbye,
// because a living peer learns of the disconnect in no other way.
void Port::GiveUp(Peer& peer, const absl::Status& why) {
  if (!peer.living()) return;
  peer.state = Peer::State::kLeaving;
  peer.why = why;
  mover_->Close(peer.id.index, why, /*goodbye=*/true);
  if (peer.way.queue != nullptr && !peer.way.busy) peer.way.queue->Fail(why);
}

// Disconnects a peer that breaks the protocol. Also destroys its DCT, so that the keys that it knows give no access.
void Port::GiveUpBroken(Peer& peer, std::string_view cause) {
  GiveUp(peer, Broken(cause));
  mover_->CutOff(peer.id.index);
}

void Port::OnDown(uint32_t place, const absl::Status& why) {
  Peer& peer = *peers_[place];
  // Notices that have arrived by the queue pair were sent before the goodbye.
  if (peer.living()) ReadQueue(peer);
  peer.moved_out = true;
  GiveUp(peer, why);
}

bool Port::Say(Peer& peer, const PortWord& word) {
  if (!mover_->CanSay(peer.id.index)) return false;
  mover_->Say(peer.id.index, ToBytes(word));
  return true;
}

void Port::OnWord(uint32_t place, std::span<const std::byte> bytes) {
  Peer& peer = *peers_[place];
  const auto word = LoadPortWord(bytes);
  if (!word) return GiveUpBroken(peer, "it is none");
  if (word->kind != PortWord::Kind::kNotice) return OnQueueWord(peer, *word);
  // A protected transfer may be cancelled before it has a queue pair. Its pieces move only over a queue pair.
  const Notice& notice = word->notice;
  if (!IsPlain(notice.protection) && notice.outcome != Outcome::kCancelled) {
    return GiveUpBroken(peer,
                        "it is about a protected piece, and did not arrive by the queue pair");
  }
  TakeNotice(peer, notice);
}

// Frees the queue and the domain in a command, because this blocks.
void Port::Bury(Peer& peer) {
  peer.state = Peer::State::kBuried;
  peer.incoming.clear();
  peer.early = 0;
  SignedWay way = std::exchange(peer.way, {});  // ends each wait for an answer of the peer
  if (way.queue != nullptr) --signed_made_;
  commands_.Submit(
      [queue = std::move(way.queue), domain = std::move(peer.domain)]() mutable {
        queue.reset();
        domain.reset();
      },
      [&peer] { peer.state = Peer::State::kFree; });
  user_.OnPeerDown(peer.id, peer.why);
}

}  // namespace sluice::bulk
