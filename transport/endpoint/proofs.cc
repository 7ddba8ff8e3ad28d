// SPDX-License-Identifier: Apache-2.0
//
// The second half of a handshake, over the control DCTs: the client's proof and the server's answer, each with
// the terms of its sender (docs/decisions/0011).
#include <string>
#include <utility>

#include "transport/base/error.h"
#include "transport/endpoint/endpoint_impl.h"
#include "transport/peer/refusal.h"

namespace sluice::endpoint {

peer::Terms EndpointImpl::OwnTerms(const Peer& peer) const {
  // The targets that belong to the control DCT in the hello or the welcome.
  peer::TenantTargets targets;
  if (rc_ != nullptr) {
    targets.data_dctn = rc_->qp(peer.target)->qp_num;
  } else {
    targets = receptions_[peer.tenant].TargetsOf(peer.old_targets);
  }
  return {.data_dctn = targets.data_dctn,
          .max_message_bytes = options_.max_message_bytes,
          .data_key = targets.data_key,
          .control_key = targets.control_key,
          .peer_index = peer.index(),
          .token = peer.token,
          .credits = nominal_window_,
          .window = peer.receive.window(),
          .reads = device_.path().max_rd_atomic,
          .mtu = static_cast<uint8_t>(device_.path().mtu),
          .service_level = static_cast<uint8_t>(peer.service_level),
          .max_large_bytes = options_.max_large_bytes};
}

void EndpointImpl::Adopt(Peer* peer, const peer::Terms& remote) {
  const peer::Agreement agreed = peer::Agree(OwnTerms(*peer), remote);
  peer->max_message_bytes = agreed.max_message_bytes;
  peer->reads = agreed.reads;
  peer->mtu = remote.mtu;
  peer->remote_index = remote.peer_index;
  peer->remote_token = remote.token;
  peer->remote_window = remote.credits;
  ReceptionOf(*peer).Widen(remote.credits);
  peer->send.Start(remote.credits, remote.window);
  peer->target.dctn[0] = remote.data_dctn;
  peer->target.key[0] = remote.data_key;
  peer->target.key[1] = remote.control_key;
  peer->authenticated = peer->handshake()->secret.id != 0;
  peer->handshake()->proven = true;
  peer->handshake()->max_large_bytes = agreed.max_large_bytes;
}

// Sends the client's proof, or the server's answer. At the server the peer is up then: data follows on the same stream.
void EndpointImpl::SayTerms(Peer* peer) {
  Handshake& handshake = *peer->handshake();
  const bool posted = peer->inbound ? PostAnswer(peer)
                                    : PostTerms(peer, peer::Kind::kProof, OwnTerms(*peer),
                                                handshake.keys.proof, false);
  if (!posted) {
    handshake.unsaid = true;
    unsaid_.push_back(peer);  // until a control slot is free
    return;
  }
  if (peer->inbound) GoUp(peer);
}

bool EndpointImpl::PostAnswer(Peer* peer) {
  return PostTerms(peer, peer::Kind::kAnswer, OwnTerms(*peer), peer->handshake()->keys.answer,
                   /*notify=*/true);
}

// Sends as many as there are free slots. If many peers wait, a check of each peer in every pass would
// cost more than the handshakes.
void EndpointImpl::SayUnsaid() {
  while (!unsaid_.empty() && slots_->free_control() != 0) {
    Peer* peer = unsaid_.front();
    unsaid_.pop_front();
    peer->handshake()->unsaid = false;
    if (peer->state != peer::State::kDraining) SayTerms(peer);
  }
}

// `message` begins with its prefix, whose index and token are valid.
void EndpointImpl::OnHandshakeMessage(Peer* peer, peer::Kind kind, peer::Bytes message) {
  const bool inbound_wants =
      peer->state == peer::State::kAccepting || peer->state == peer::State::kUnproven;
  if (kind == peer::Kind::kProof && inbound_wants && peer->has_path && !peer->handshake()->proven) {
    return OnProof(peer, message);
  }
  if (kind == peer::Kind::kAnswer && peer->state == peer::State::kProving) {
    return OnAnswer(peer, message);
  }
  ++counters_.dropped_unproven;
  EndSender(peer);
}

void EndpointImpl::OnProof(Peer* peer, peer::Bytes message) {
  // The proof can overtake the event that the connection is established.
  if (peer->state == peer::State::kAccepting) connections_->NoteTraffic(peer->connection);
  const auto terms =
      peer::OpenTerms(message.subspan(peer::kPrefixBytes), peer->handshake()->keys.proof,
                      message.first(peer::kPrefixBytes));
  if (!terms.ok()) {
    ++handshakes_.unauthenticated;
    LogRefused(peer->target.name.str(), terms.status());
    return Fail(peer, terms.status());
  }
  Adopt(peer, *terms);
  if (const peer::Terms own = OwnTerms(*peer); terms->mtu != own.mtu) {
    LogRefused(peer->target.name.str(),
               peer::RefusalStatus(peer::RefusalCode::kPathMtu, peer->target.name.str(),
                                   peer::UnlikeMtus(own.mtu_bytes(), terms->mtu_bytes())));
    return RefuseProof(peer, {.credits = own.mtu_bytes(), .refusal = peer::RefusalCode::kPathMtu});
  }
  FirstWindow(peer);
  if (rc_ != nullptr && (options_.max_large_bytes != 0 || lanes_wanted_)) return AllowAccess(peer);
  SayTerms(peer);
}

// Sends the cause in the answer. The peer ends when the answer is sent, or after a timeout.
void EndpointImpl::RefuseProof(Peer* peer, const peer::Terms& answer) {
  peer::Next(peer->state, peer::Event::kRefused, &peer->state);
  const bool posted = PostTerms(peer, peer::Kind::kAnswer, answer, peer->handshake()->keys.answer,
                                /*notify=*/true);
  EndHandshake(peer);
  if (posted) {
    SetTimer(peer, clock_.NowNs() + 2 * options_.dead_peer_ns);
  } else {
    peer::Next(peer->state, peer::Event::kGoodbyeSent, &peer->state);
    EndLater(peer);
  }
}

void EndpointImpl::OnAnswer(Peer* peer, peer::Bytes message) {
  const auto terms =
      peer::OpenTerms(message.subspan(peer::kPrefixBytes), peer->handshake()->keys.answer,
                      message.first(peer::kPrefixBytes));
  if (!terms.ok()) {
    return Fail(peer, base::Prefix(terms.status(), "connect to " + peer->target.name.str()));
  }
  const peer::Terms own = OwnTerms(*peer);
  const auto refused = [&](peer::RefusalCode code, const std::string& cause) {
    Fail(peer, peer::RefusalStatus(code, peer->target.name.str(), cause));
  };
  if (terms->refusal == peer::RefusalCode::kPathMtu) {
    return refused(terms->refusal, peer::UnlikeMtus(own.mtu_bytes(), terms->credits));
  }
  if (terms->refusal != peer::RefusalCode::kNone) {
    return refused(terms->refusal, "the server says so in its answer");
  }
  if (terms->mtu != own.mtu) {
    return refused(peer::RefusalCode::kPathMtu,
                   peer::UnlikeMtus(own.mtu_bytes(), terms->mtu_bytes()));
  }
  Adopt(peer, *terms);
  GoUp(peer);
}

}  // namespace sluice::endpoint
