// SPDX-License-Identifier: Apache-2.0
//
// Life of a peer: creation of its record, path, goodbye, and end of the record.
#include <algorithm>
#include <cassert>
#include <memory>
#include <utility>

#include "transport/base/error.h"
#include "transport/device/own_address.h"
#include "transport/endpoint/endpoint_impl.h"
#include "transport/peer/refusal.h"

namespace sluice::endpoint {

Peer* EndpointImpl::FindByConnection(cm::ConnectionId id) const {
  if (id.index >= peer_of_connection_.size()) return nullptr;
  const uint32_t index = peer_of_connection_[id.index];
  if (index >= peers_.size()) return nullptr;
  Peer* peer = &peers_[index];
  const bool ends = peer->state == peer::State::kDraining;  // its connection is about to be closed
  return !ends && peer->has_connection && peer->connection == id ? peer : nullptr;
}

absl::StatusOr<Peer*> EndpointImpl::NewPeer(peer::Event event, uint32_t tenant) {
  Reception& reception = receptions_[tenant];
  absl::Status place = reception.CheckPlace(rc_ == nullptr ? 0 : rc_->ending());
  if (!place.ok()) return place;
  if (absl::Status health = Health(); !health.ok()) return health;
  uint32_t index;
  if (!free_peers_.empty()) {
    index = free_peers_.back();
    free_peers_.pop_back();
  } else {
    index = static_cast<uint32_t>(peers_.size());
    peers_.Add();
  }
  Peer* peer = &peers_[index];
  const uint32_t generation = peer->generation + 1;
  *peer = Peer();  // clears the state of the previous peer
  peer->generation = generation != 0 ? generation : 1;
  peer->inbound = event == peer::Event::kRequest;
  peer->tenant = static_cast<uint8_t>(tenant);
  peer->token = random_.NonZero32();
  peer->target.cookie = index;
  if (!peer->inbound) FirstWindow(peer);  // inbound peers get it after their proof
  peer->passage = std::make_unique<Passage>(OnPeerTimeout, this, peer);
  peer->passage->handshake = std::make_unique<Handshake>();
  reception.Add(peer->inbound, nominal_window_);
  ++peer_count_;
  ++beginners_;
  PlaceCommands();
  const bool known = peer::Next(peer->state, event, &peer->state);
  assert(known);
  (void)known;
  return peer;
}

void EndpointImpl::Bind(Peer* peer, cm::ConnectionId connection) {
  if (connection.index >= peer_of_connection_.size()) {
    peer_of_connection_.resize(connection.index + 1, 0xffffffff);
  }
  peer_of_connection_[connection.index] = peer->index();
  peer->connection = connection;
  const base::SharedText name = connections_->Peer(connection);
  if (!name.empty()) peer->target.name = name;  // same text, shared; empty if the connection ended
  peer->has_connection = true;
}

absl::StatusOr<uint16_t> EndpointImpl::Listen(const std::string& host, uint16_t port) {
  return connections_->Listen(host, port);
}

void EndpointImpl::AcquirePath(Peer* peer, const cm::PathInfo& path) {
  struct Result {
    const path::Profile* profile = nullptr;
    absl::Status place;
    absl::StatusOr<path::Route> route;
  };
  ++peer->commands;
  offers_.Release(peer->offer);
  peer->offer = offers_.Take({path.remote_ece.vendor_id, path.remote_ece.options});
  peer->service_level = device_.path().service_level.value_or(path.ah.sl);
  if (rc_ != nullptr) return AcquireQueue(peer, path);
  auto result = std::make_shared<Result>();
  commands_.Submit(
      [this, ah = path.ah, ece = path.remote_ece, result] {
        result->profile = profiles_->Of(ece);
        result->place = device::CheckOwnAddress(device_, ah);
        if (!result->place.ok()) {
          result->route = result->place;
          return;
        }
        result->route = handles_->Acquire(ah, result->profile->template_qpn);
      },
      [this, peer, result] {
        --peer->commands;
        peer->profile = result->profile;
        OnPath(peer, result->route, /*wrong_place=*/!result->place.ok());
      });
}

void EndpointImpl::OnPath(Peer* peer, const absl::StatusOr<path::Route>& route, bool wrong_place) {
  if (route.ok()) {
    peer->target.ah = route->handle;
    peer->mapped = route->mapped;
    peer->first_on_handle = route->first;
    peer->map_failed = route->map_error != 0;
  }
  const bool wanted =
      peer->state == peer::State::kConnecting || peer->state == peer::State::kAccepting;
  if (!wanted) return EndLater(peer);
  if (!route.ok()) {
    // The device has no further queue pair: other processes use it too.
    const bool full = rc_ != nullptr && peer->inbound && absl::IsResourceExhausted(route.status());
    const bool fresh = full && peer->handshake()->fresh;
    if (fresh) ++handshakes_.full;
    if (peer->inbound && (wrong_place || fresh)) {
      LogRefused(peer->target.name.str(), route.status());
    }
    if (full && !fresh && peer->has_connection) {
      // As in Admit(): a recorded hello sends no other client away.
      peer->has_connection = false;
      AskForCookie(peer->connection, peer->handshake()->source);
    } else if (peer->inbound && peer->has_connection) {
      peer->has_connection = false;
      connections_->Reject(
          peer->connection,
          peer::EncodeRefusal(wrong_place ? peer::RefusalCode::kPlace
                              : full      ? peer::RefusalCode::kFull
                                          : peer::RefusalCode::kInternal,
                              {route.status().message().data(), route.status().message().size()}));
    }
    Fail(peer, base::Prefix(route.status(), "path to " + peer->target.name.str()));
    if (fresh && !closed_) handler_->OnNoPlace(/*refused=*/true);
    return;
  }
  queue_->Open(&peer->target);
  peer->in_queue = true;
  peer->has_path = true;
  if (peer->inbound) return Welcome(peer);
  connections_->Establish(peer->connection);
}

void EndpointImpl::OnDown(cm::ConnectionId id, const absl::Status& why,
                          std::span<const std::byte> reject_data) {
  Peer* peer = FindByConnection(id);
  if (peer == nullptr) return;
  peer->has_connection = false;
  // Messages that it sent before have arrived already, and are delivered first.
  if (!receiving_) {
    ReceiveAll();
    if (peer->lanes != 0 && LanesOf(peer).in != nullptr) Drain(peer, LanesOf(peer).in);
    if (peer->state == peer::State::kDraining) return;  // one of these messages ended the peer
  }
  if (peer->inbound && peer->handshake() != nullptr && !peer->told_up) {
    ++handshakes_.unfinished;
  }
  if (DialAgain(peer, reject_data)) return;
  Fail(peer,
       reject_data.empty() ? why : peer::DecodeRefusal(reject_data, peer->target.name.str(), why));
}

void EndpointImpl::TellDown(Peer* peer, const absl::Status& why) {
  if (peer->told_down) return;
  peer->told_down = 1;
  if (peer->inbound && !peer->told_up) return;  // the handler does not know it; it was counted
  peer->down_due = 1;
  downs_.push_back({peer->id(), why});
}

// Ends a peer without a goodbye.
void EndpointImpl::Fail(Peer* peer, const absl::Status& why) {
  if (!peer::Next(peer->state, peer::Event::kFailed, &peer->state)) return;
  TellDown(peer, why);
  EndLater(peer);
}

// Puts the peer into the list of EndPeers(), if it is draining. A caller further up may still hold the peer, its lanes or its
// place in another list: all of these stay as they are until then. A peer may be in the list twice.
void EndpointImpl::EndLater(Peer* peer) {
  if (peer->state == peer::State::kDraining) ending_.push_back(peer);
}

// Ends peers, at one point of a pass; calls no handler. A record is freed when no request and no command names it: the end of
// the last request or command puts the peer into the list again.
void EndpointImpl::EndPeers() {
  for (size_t i = 0; i < ending_.size(); ++i) {
    Peer* peer = ending_[i];
    if (peer->state != peer::State::kDraining) continue;  // it was there twice
    Part(peer);
    FreeIfQuiet(peer);
  }
  ending_.clear();
}

// Called by EndPeers() only, perhaps more than once for a peer.
void EndpointImpl::Part(Peer* peer) {
  EndHandshake(peer);
  EndPassage(peer);
  if (peer->blocked) {
    std::erase(blocked_, peer);
    peer->blocked = false;
  }
  if (peer->credit_report_queued) {
    std::erase(credit_reports_, peer);
    peer->credit_report_queued = false;
  }
  if (peer->report_queued) {
    std::erase(report_queue_, peer);
    peer->report_queued = 0;
  }
  EndLarge(peer);
  if (peer->in_queue) queue_->Close(&peer->target);
  // Afterwards: an RC queue pair stops first, so that no WRITE of the peer meets a revoked key and fails there.
  if (peer->lanes != 0) EndLanes(peer);
  if (peer->has_connection) {
    peer->has_connection = false;
    connections_->Close(peer->connection);
  }
}

void EndpointImpl::FreeIfQuiet(Peer* peer) {
  if (peer->commands != 0 || peer->target.posted != 0) return;
  if (!ForgetLarge(*peer)) return;
  if (peer->profile != nullptr) {
    commands_.Submit(
        [this, ah = peer->target.ah, suspect = peer->unanswered, profile = peer->profile] {
          if (ah != nullptr) handles_->Release(ah, suspect);
          profiles_->Release(profile);
        },
        [] {});
    peer->target.ah = nullptr;
    peer->profile = nullptr;
  }
  EndWindows(peer);
  offers_.Release(std::exchange(peer->offer, Offers::kNone));
  if (peer->evicted) --ReceptionOf(*peer).evicted;
  peer->evicted = false;
  --ReceptionOf(*peer).peers;
  --peer_count_;
  --(peer->told_up ? ups_ : beginners_);
  if (beginners_ == 0 && !closed_) commands_.RunInDrain(false);
  peer::Next(peer->state, peer::Event::kQuiet, &peer->state);
  if (!peer->down_due) free_peers_.push_back(peer->index());
}

void EndpointImpl::Disconnect(PeerId id) {
  Peer* peer = Find(id);
  if (peer == nullptr || !peer::Next(peer->state, peer::Event::kDisconnect, &peer->state)) return;
  TellDown(peer,
           base::Error(absl::StatusCode::kCancelled, "disconnected by this side",
                       {.layer = "endpoint", .peer = peer->address(), .operation = "disconnect"}));
  if (!closed_) poller_->Wake();  // the next Poll() calls the handler
  if (peer->state == peer::State::kLeaving) return SayGoodbye(peer);
  EndLater(peer);
}

void EndpointImpl::SayGoodbye(Peer* peer) {
  if (SendRing* ring = RingTo(*peer)) WriteCells(ring);
  if (!PostControl(peer, peer::Kind::kGoodbye, /*notify=*/true, /*most=*/kControlSlots)) {
    peer::Next(peer->state, peer::Event::kGoodbyeSent, &peer->state);
    return EndLater(peer);  // the peer sees only the end of the connection
  }
  if (peer->state != peer::State::kLeaving) return;  // a broken target dropped the goodbye
  SetTimer(peer, clock_.NowNs() + 2 * options_.dead_peer_ns);
}

void EndpointImpl::OnSent(queue::Target* target, uint32_t slot, bool ok) {
  if (IsForLarge(*target)) return OnPiece(target, slot, ok);
  Peer* peer = &peers_[target->cookie];
  if (peer->state == peer::State::kLeaving) {
    if (!IsLastWord(*peer, slot)) return;  // the answer of its handshake; the goodbye follows
    peer::Next(peer->state, peer::Event::kGoodbyeSent, &peer->state);
    return EndLater(peer);
  }
  if (ok) EndHandshake(peer);  // the answer has arrived; otherwise it is sent again
}

// Returns whether a slot has the last message to a peer: its goodbye, or the refusal of a peer that was never up.
bool EndpointImpl::IsLastWord(const Peer& peer, uint32_t slot) const {
  peer::Prefix prefix;
  return !peer.told_up ||
         (peer::LoadPrefix((*slots_)[slot].data, (*slots_)[slot].length_bytes, &prefix) &&
          prefix.kind == peer::Kind::kGoodbye);
}

void EndpointImpl::SetTimer(Peer* peer, int64_t deadline_ns) {
  if (peer->passage == nullptr) {
    peer->passage = std::make_unique<Passage>(OnPeerTimeout, this, peer);
  }
  timers_.Schedule(&peer->passage->timer, deadline_ns);
}

void EndpointImpl::EndPassage(Peer* peer) {
  if (peer->passage == nullptr) return;
  timers_.Cancel(&peer->passage->timer);
  peer->passage.reset();
}

void EndpointImpl::OnPeerTimeout(base::Timer*, void* context) {
  const auto* passage = static_cast<const Passage*>(context);
  Peer* peer = passage->peer;
  EndpointImpl* self = passage->owner;
  if (peer->state == peer::State::kDraining) return;
  if (peer->state == peer::State::kLeaving) {
    peer::Next(peer->state, peer::Event::kGoodbyeSent, &peer->state);
    return self->EndLater(peer);
  }
  self->OnHandshakeTimeout(peer);
}

void EndpointImpl::OnTargetFailed(queue::Target* target, const absl::Status& why) {
  Peer* peer = &PeerOf(*target);
  peer->unanswered = true;
  Fail(peer, why);
}

void EndpointImpl::OnTargetQuiet(queue::Target* target) { EndLater(&PeerOf(*target)); }

}  // namespace sluice::endpoint
