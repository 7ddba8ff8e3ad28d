// SPDX-License-Identifier: Apache-2.0
//
// Letting peers in: the four messages of docs/decisions/0011, and who is turned away.
#include <algorithm>
#include <memory>
#include <utility>

#include "transport/base/error.h"
#include "transport/cm/address.h"
#include "transport/endpoint/endpoint_impl.h"
#include "transport/peer/refusal.h"

namespace sluice::endpoint {
namespace {

absl::Status NotProven(const char* cause, const char* remedy) {
  return base::Error(absl::StatusCode::kUnauthenticated, "not authenticated",
                     {.layer = "peer", .operation = "handshake", .cause = cause, .remedy = remedy});
}

}  // namespace

// ---- Secrets

// Read again for each handshake: a file may block, so off the polling thread. Without a source, at
// once.
void EndpointImpl::WithSecrets(std::function<void(const peer::Keyring&)> next) {
  if (secret_sources_.empty()) return next(peer::Keyring::Read({}));
  auto result = std::make_shared<peer::Keyring>();
  commands_.Submit([this, result] { *result = peer::Keyring::Read(secret_sources_); },
                   [next = std::move(next), result] { next(*result); });
}

// ---- Client: hello

absl::StatusOr<PeerId> EndpointImpl::Connect(const std::string& host, uint16_t port,
                                             int64_t deadline_ns) {
  auto made = NewPeer(peer::Event::kConnect, /*tenant=*/0);
  if (!made.ok()) return made.status();
  Peer* peer = *made;
  peer->target.name = cm::HostPort(host, port);
  peer->handshake()->deadline_ns = deadline_ns;
  if (secret_sources_.empty()) {
    absl::Status status = Dial(peer, host, port, deadline_ns, peer::Keyring::Read({}));
    if (status.ok()) return peer->id();
    peer->told_down = true;  // the caller is told here
    Fail(peer, status);
    return status;
  }
  SetTimer(peer, deadline_ns);
  ++peer->commands;
  WithSecrets([this, peer, host, port, deadline_ns](const peer::Keyring& secrets) {
    --peer->commands;
    if (peer->state != peer::State::kConnecting) return CheckQuiet(peer);
    timers_.Cancel(&peer->passage->timer);  // the connection keeps the deadline until it is there
    absl::Status status = Dial(peer, host, port, deadline_ns, secrets);
    if (!status.ok()) Fail(peer, status);
  });
  return peer->id();
}

absl::Status EndpointImpl::Dial(Peer* peer, const std::string& host, uint16_t port,
                                int64_t deadline_ns, const peer::Keyring& secrets) {
  const auto secret = secrets.own();
  if (!secret.ok()) return base::Prefix(secret.status(), "connect to " + peer->target.name.str());
  Handshake& handshake = *peer->handshake();
  handshake.secret = *secret;
  handshake.hello =
      peer::EncodeHello(MakeGreeting(secret->id, ReceptionOf(*peer)), handshake.secret);
  auto connection = connections_->Connect(host, port, deadline_ns, handshake.hello);
  if (!connection.ok()) return connection.status();
  Bind(peer, *connection);
  return absl::OkStatus();
}

peer::Greeting EndpointImpl::MakeGreeting(peer::SecretId secret, const Reception& reception) {
  return {.epoch = epoch_,
          .secret_id = secret,
          .control_dctn = reception.control->dctn(),
          .nonce = peer::DrawNonce(random_)};
}

// ---- Server: is it a hello, and whose?

void EndpointImpl::OnRequest(cm::ConnectionId id, std::span<const std::byte> private_data,
                             const cm::PathInfo& path, const std::string& from) {
  if (closed_) {
    return connections_->Reject(id,
                                peer::EncodeRefusal(peer::RefusalCode::kShutdown, "shutting down"));
  }
  if (!limiter_.Allowed(from, clock_.NowNs())) {
    ++handshakes_.too_often;
    LogRefused(from, absl::UnavailableError("too many handshakes from there have failed lately"));
    return connections_->Reject(
        id, peer::EncodeRefusal(peer::RefusalCode::kTooOften,
                                "too many handshakes from this address have failed lately"));
  }
  const auto greeting = peer::DecodeHello(private_data);
  if (!greeting.ok()) {
    ++handshakes_.garbage;
    limiter_.Failed(from, clock_.NowNs());
    LogRefused(from, greeting.status());
    return Refuse(id, greeting.status());
  }
  Request request{.connection = id, .greeting = *greeting, .hello = {}, .path = path, .from = from};
  std::copy_n(private_data.begin(), peer::kHelloBytes, request.hello.begin());
  WithSecrets([this, request = std::move(request)](const peer::Keyring& secrets) {
    Admit(request, secrets);
  });
}

void EndpointImpl::LogRefused(const std::string& from, const absl::Status& why) {
  if (!log_.listens()) return;
  log_.Say(base::Severity::kWarning, "caller refused", from,
           "caller " + from + " refused: " + std::string(why.message()));
}

void EndpointImpl::Refuse(cm::ConnectionId id, const absl::Status& why) {
  connections_->Reject(id, peer::EncodeRefusal(why));
}

absl::Status EndpointImpl::CheckSecret(const Request& request, const peer::Keyring& secrets) {
  const auto found = secrets.Find(request.greeting.secret_id);
  if (found.has_value()) {
    if (peer::Proven(request.hello, found->secret)) return absl::OkStatus();
    return NotProven("the MAC of the request is wrong", "it was changed on its way");
  }
  if (!secrets.demanded()) {
    return NotProven("the client has a secret, the server has none", "give the server the same");
  }
  if (request.greeting.secret_id == 0) {
    return NotProven("the server demands a secret, the client has none", "give it the same");
  }
  return NotProven("the server does not know the client's secret", "give both the same");
}

void EndpointImpl::Admit(const Request& request, const peer::Keyring& secrets) {
  const cm::ConnectionId id = request.connection;
  if (closed_) return connections_->Close(id);
  const auto found = secrets.Find(request.greeting.secret_id);
  if (!found.has_value() && !secrets.Check().ok()) {
    // What is wrong with them is not the client's business. A tenant whose secrets are in order is
    // served all the same.
    ++handshakes_.no_secrets;
    const absl::Status why = secrets.Check();
    log_.Say(
        base::Severity::kError, "no secrets", request.from,
        "caller refused, since this side's secrets can't be read: " + std::string(why.message()));
    return connections_->Reject(
        id, peer::EncodeRefusal(peer::RefusalCode::kInternal, "the server can't read its secrets"));
  }
  const absl::Status proven = CheckSecret(request, secrets);
  if (!proven.ok()) {
    ++handshakes_.unauthenticated;
    limiter_.Failed(request.from, clock_.NowNs());
    LogRefused(request.from, proven);
    return Refuse(id, proven);
  }
  if (request.greeting.without_dc()) {
    ++handshakes_.without_dc;
    return WelcomeWithoutDc(request, found->secret);
  }
  if (handshakes_.under_way >= options_.max_half_open) {
    ++handshakes_.full;
    const std::string why =
        std::to_string(handshakes_.under_way) + " handshakes are under way already (max_half_open)";
    LogRefused(request.from, absl::ResourceExhaustedError(why));
    return connections_->Reject(id, peer::EncodeRefusal(peer::RefusalCode::kFull, why));
  }
  auto made = NewPeer(peer::Event::kRequest, found->tenant);
  if (!made.ok()) {
    ++handshakes_.full;
    LogRefused(request.from, made.status());
    return Refuse(id, made.status());
  }
  Peer* peer = *made;
  peer->target.name = request.from;
  peer->epoch = request.greeting.epoch;
  peer->handshake()->secret = found->secret;
  peer->handshake()->hello = request.hello;
  peer->target.dctn[1] = request.greeting.control_dctn;
  Bind(peer, id);
  SetTimer(peer, clock_.NowNs() + options_.accept_timeout_ns);
  AcquirePath(peer, request.path);
}

// ---- Client: welcome

void EndpointImpl::OnResponse(cm::ConnectionId id, std::span<const std::byte> private_data,
                              const cm::PathInfo& path) {
  Peer* peer = FindByConnection(id);
  if (peer == nullptr || peer->state != peer::State::kConnecting) return connections_->Close(id);
  Handshake& handshake = *peer->handshake();
  const auto welcome =
      peer::DecodeWelcome(private_data, handshake.hello, handshake.secret, &handshake.keys);
  if (!welcome.ok()) {
    peer->has_connection = false;
    Refuse(id, welcome.status());
    return Fail(peer, base::Prefix(welcome.status(), "connect to " + peer->target.name.str()));
  }
  if (welcome->greeting.without_dc()) {
    peer->has_connection = false;
    connections_->Close(id);
    return Fail(
        peer,
        base::Error(absl::StatusCode::kFailedPrecondition,
                    "connect to " + peer->target.name.str() + ": the server has no DC transport",
                    {.layer = "peer",
                     .peer = peer->address(),
                     .operation = "handshake",
                     .cause = "its device has none, so the handshake is all it can do",
                     .remedy = "run it on a device with DC: sluice_info lists them"}));
  }
  peer->epoch = welcome->greeting.epoch;
  peer->target.dctn[1] = welcome->greeting.control_dctn;
  peer->target.key[1] = welcome->access.key;
  peer->remote_index = welcome->access.peer_index;
  peer->remote_token = welcome->access.token;
  AcquirePath(peer, path);
}

// ---- Server: welcome

void EndpointImpl::Welcome(Peer* peer) {
  Handshake& handshake = *peer->handshake();
  const Reception& reception = ReceptionOf(*peer);
  const peer::ControlAccess access{
      .key = reception.control->access_key(), .peer_index = peer->index(), .token = peer->token};
  connections_->Accept(peer->connection,
                       peer::EncodeWelcome(MakeGreeting(handshake.secret.id, reception), access,
                                           handshake.hello, handshake.secret, &handshake.keys),
                       peer->profile->accepted);
}

// It learns that this is a Sluice endpoint which holds the secret, and how the connection came about;
// there is no record of it here, and the connection ends once it stands.
void EndpointImpl::WelcomeWithoutDc(const Request& request, const peer::Secret& secret) {
  const peer::Greeting greeting{
      .epoch = epoch_, .secret_id = secret.id, .nonce = peer::DrawNonce(random_)};
  peer::SessionKeys unused;
  connections_->Accept(request.connection,
                       peer::EncodeWelcome(greeting, {}, request.hello, secret, &unused), {});
}

void EndpointImpl::OnUp(cm::ConnectionId id) {
  Peer* peer = FindByConnection(id);
  if (peer == nullptr) return connections_->Close(id);
  if (!peer::Next(peer->state, peer::Event::kEstablished, &peer->state)) {
    return;  // its proof came first
  }
  if (peer->inbound) return;
  SetTimer(peer, peer->handshake()->deadline_ns);
  SayTerms(peer);
}

// ---- The end of it, one way or the other

void EndpointImpl::GoUp(Peer* peer) {
  if (!peer::Next(peer->state, peer::Event::kProven, &peer->state)) return;
  const uint64_t max_large_bytes = peer->handshake()->max_large_bytes;
  if (peer->inbound) {
    ++handshakes_.completed;
    --handshakes_.under_way;
    timers_.Cancel(&peer->passage->timer);
  } else {
    EndHandshake(peer);
  }
  peer->told_up = true;
  StartSweep();
  if (closed_) return;
  handler_->OnPeerUp(peer->id(), {.address = peer->target.name.str(),
                                  .inbound = peer->inbound,
                                  .max_message_bytes = peer->max_message_bytes,
                                  .max_large_bytes = max_large_bytes,
                                  .tenant = ReceptionOf(*peer).tenant});
}

void EndpointImpl::OnHandshakeTimeout(Peer* peer) {
  if (peer->inbound) {
    ++handshakes_.unfinished;
    limiter_.Failed(peer->target.name.str(), clock_.NowNs());
    LogRefused(peer->target.name.str(), absl::DeadlineExceededError("no proof came in time"));
  }
  const char* cause = "the client has not proved the secret";
  if (peer->state == peer::State::kConnecting) cause = "this side's secrets were not read in time";
  if (peer->state == peer::State::kProving) cause = "the server has not answered the proof";
  Fail(peer, base::Error(absl::StatusCode::kDeadlineExceeded, "the handshake did not end in time",
                         {.layer = "peer",
                          .peer = peer->address(),
                          .operation = "connect",
                          .cause = cause,
                          .remedy = "look at the other side; allow more time if it is busy",
                          .retry_safe = true}));
}

void EndpointImpl::EndHandshake(Peer* peer) {
  if (peer->handshake() == nullptr) return;
  if (peer->handshake()->unsaid) std::erase(unsaid_, peer);
  if (peer->inbound && !peer->told_up) --handshakes_.under_way;
  EndPassage(peer);
}

HandshakeCounts EndpointImpl::Handshakes() const { return handshakes_; }

}  // namespace sluice::endpoint
