// SPDX-License-Identifier: Apache-2.0
//
// Peers of a device without DC: each has an RC queue pair, whose number is in its hello or welcome (docs/decisions/0068).
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "transport/base/error.h"
#include "transport/device/own_address.h"
#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {
namespace {

// Access rights of a peer that has proved its secret: READs of large messages, WRITEs into lanes.
int RightsOf(const Options& options, bool lanes) {
  return (options.max_large_bytes != 0 ? IBV_ACCESS_REMOTE_READ : 0) |
         (lanes ? IBV_ACCESS_REMOTE_WRITE : 0);
}

}  // namespace

// Protection domains isolate tenants. RC queue pairs send from the common buffers, so all are in the domain of these buffers.
absl::Status EndpointImpl::CheckRcOptions() const {
  if (options_.tenants.size() <= 1) return absl::OkStatus();
  return base::Error(
      absl::StatusCode::kInvalidArgument,
      "there are " + std::to_string(options_.tenants.size()) + " tenants",
      {.layer = "endpoint",
       .operation = "create",
       .cause = device_.name() + " has RC queue pairs instead of DC, which all are in one "
                                 "protection domain: tenants would not be kept apart",
       .remedy = "use a device with DC, or an endpoint for each tenant"});
}

std::string EndpointImpl::UnlikeTransports(bool server_rc) {
  return server_rc ? "the server has RC queue pairs, the client DC"
                   : "the server has DC, the client RC queue pairs";
}

// Returns whether a completion is of the peer's queue pair, so that no peer can send as another peer.
bool EndpointImpl::IsOfPeer(const ibv_wc& wc, const Peer& peer) const {
  return queue::RcQueues::IsAttached(peer.target) && rc_->number(peer.target) == wc.qp_num;
}

// Creates a queue pair before the peer is dialled, because the hello contains its number.
void EndpointImpl::MakeQueueToDial(Peer* peer) {
  auto made = std::make_shared<absl::StatusOr<verbs::SharedRc>>();
  ++peer->commands;
  commands_.Submit(
      [this, made, srq = ReceptionOf(*peer).data->srq()] {
        *made = rc_->Make(receive_cq_.get(), srq);
      },
      [this, peer, made] {
        --peer->commands;
        if (peer->state != peer::State::kConnecting) {
          // Freeing it may block.
          commands_.Submit([made] { *made = absl::CancelledError(""); }, [] {});
          return EndLater(peer);
        }
        absl::Status status = made->status();
        if (status.ok()) status = rc_->Attach(&peer->target, *std::move(*made));
        if (!status.ok()) {
          return Fail(peer, base::Prefix(status, "connect to " + peer->target.name.str()));
        }
        peer->in_queue = true;
        timers_.Cancel(&peer->passage->timer);  // the connection keeps the deadline
        status = Dial(peer, *last_secrets_);
        if (!status.ok()) Fail(peer, status);
      });
}

// Moves the peer's queue pair to RTS; a server creates it first. OnPath() follows, as after an address handle was acquired.
void EndpointImpl::AcquireQueue(Peer* peer, const cm::PathInfo& path) {
  struct Result {
    absl::Status place;
    absl::StatusOr<verbs::SharedRc> made;
    absl::Status connected;
    verbs::DataOrder order = verbs::DataOrder::kNone;
  };
  const peer::Psns psns = peer::PsnsOf(peer->handshake()->hello);
  const verbs::RcRoute route{.ah = path.ah,
                             .number = peer->target.dctn[1],
                             .receive_psn = peer->inbound ? psns.client : psns.server,
                             .send_psn = peer->inbound ? psns.server : psns.client};
  ibv_qp* const own = peer->inbound ? nullptr : rc_->qp(peer->target);
  auto result = std::make_shared<Result>();
  commands_.Submit(
      [this, own, route, result, srq = ReceptionOf(*peer).data->srq()] {
        result->place = device::CheckOwnAddress(device_, route.ah);
        if (!result->place.ok()) return;
        ibv_qp* qp = own;
        if (own == nullptr) {
          result->made = rc_->Make(receive_cq_.get(), srq);
          result->connected = result->made.status();
          if (!result->made.ok()) return;
          qp = result->made->get();
        }
        result->connected = rc_->Connect(qp, route);
        if (!result->connected.ok()) return;
        // The answer for another queue pair, or an earlier state, need not be the same (man ibv_query_qp_data_in_order).
        if (lanes_wanted_) result->order = verbs::QueryDataOrder(api_, qp, IBV_WR_RDMA_WRITE);
        // The server's welcome has a MAC of the secret.
        const int rights = RightsOf(options_, lanes_wanted_);
        if (own != nullptr && rights != 0) result->connected = rc_->Allow(own, rights);
      },
      [this, peer, result] {
        --peer->commands;
        peer->rc_order = static_cast<uint8_t>(result->order) & 3;
        absl::Status status = result->place.ok() ? result->connected : result->place;
        if (status.ok() && peer->inbound) {
          status = rc_->Attach(&peer->target, *std::move(result->made));
          if (status.ok()) peer->in_queue = true;
        }
        if (!status.ok()) {
          commands_.Submit([result] { result->made = absl::CancelledError(""); }, [] {});
          return OnPath(peer, status, /*wrong_place=*/!result->place.ok());
        }
        OnPath(peer, path::Route{}, /*wrong_place=*/false);
      });
}

// Destroys stopped queue pairs. The unread completions of a destroyed queue pair are lost, and its number may be reused. So all received
// messages are handled first.
int EndpointImpl::EndQueues() {
  int count = 1;
  while (arrivals_taken()) count += Receive();
  if (TakeArrivals()) {
    while (arrivals_taken()) count += Receive();
  }
  rc_->DestroyStopped();
  return count;
}

// At a server: allows READs and WRITEs of a client that has proved its secret. Then sends the answer.
void EndpointImpl::AllowAccess(Peer* peer) {
  auto allowed = std::make_shared<absl::Status>();
  ++peer->commands;
  commands_.Submit([this, qp = rc_->qp(peer->target),
                    allowed] { *allowed = rc_->Allow(qp, RightsOf(options_, lanes_wanted_)); },
                   [this, peer, allowed] {
                     --peer->commands;
                     if (peer->state == peer::State::kDraining) return EndLater(peer);
                     if (!allowed->ok()) return Fail(peer, *allowed);
                     SayTerms(peer);
                   });
}

// Ends the peer that sent a message which no correct peer sends. Without RC nothing happens.
void EndpointImpl::EndSender(const ibv_wc& wc) {
  if (rc_ == nullptr) return;
  const queue::Target* target = rc_->Find(wc.qp_num);
  if (target != nullptr) EndSender(&peers_[target->cookie]);
}

// Ends a peer that sent an invalid message: the message took a buffer of the shared receive queue without a credit. No effect without
// RC.
void EndpointImpl::EndSender(Peer* peer) {
  if (rc_ == nullptr) return;
  const bool up = peer->state == peer::State::kUp;
  if (!up && peer->state != peer::State::kAccepting && peer->state != peer::State::kUnproven &&
      peer->state != peer::State::kProving) {
    return;  // the peer ends already
  }
  const absl::Status why = base::Error(
      absl::StatusCode::kUnavailable, "the peer sent an invalid message",
      {.layer = "endpoint",
       .peer = peer->address(),
       .operation = "receive",
       .cause = up ? "a message of its queue pair names another peer, has invalid content, or "
                     "announces what was not written"
                   : "something else than the proof of its secret came through its queue pair",
       .remedy = "run the same release of Sluice on both sides; a peer that does this "
                 "on purpose holds the secret: replace the secret"});
  if (!up) ++handshakes_.unauthenticated;
  log_.Say(base::Severity::kWarning, "invalid message", peer->address(),
           std::string(why.message()));
  Fail(peer, why);
}

}  // namespace sluice::endpoint
