// SPDX-License-Identifier: Apache-2.0
//
// Handshakes: the four messages of docs/decisions/0011, and refusals of clients.
#include <algorithm>
#include <memory>
#include <utility>

#include "transport/base/error.h"
#include "transport/cm/address.h"
#include "transport/endpoint/endpoint_impl.h"
#include "transport/peer/refusal.h"
#include "transport/peer/source.h"
#include "transport/peer/wire.h"

namespace sluice::endpoint {
namespace {

absl::Status NotProven(const char* cause, const char* remedy) {
  return base::Error(absl::StatusCode::kUnauthenticated, "not authenticated",
                     {.layer = "peer", .operation = "handshake", .cause = cause, .remedy = remedy});
}

// Maximum number of cookies that a client returns: a name with several addresses has a server at each.
constexpr uint8_t kMostCookies = 3;

}  // namespace

// ---- Secrets

// Calls `next` with secrets that are read after this call. A helper thread reads them, because a file may block. Without a source,
// calls `next` at once.
void EndpointImpl::WithSecrets(std::function<void(const peer::Keyring&)> next) {
  if (secrets_ == nullptr) return next(*last_secrets_);
  awaiting_secrets_.push_back(std::move(next));
  if (!reading_secrets_) ReadSecrets();
}

// Reads the secrets once for all waiting callers. Later callers wait for the next read, because a secret may have changed since.
void EndpointImpl::ReadSecrets() {
  struct Look {
    std::vector<std::function<void(const peer::Keyring&)>> next;
    std::shared_ptr<const peer::Keyring> found;
  };
  auto look = std::make_shared<Look>();
  look->next.swap(awaiting_secrets_);
  reading_secrets_ = true;
  commands_.SubmitSlow(
      [secrets = secrets_, look, &clock = clock_] { look->found = secrets->Read(clock); },
      [this, look] {
        reading_secrets_ = false;
        last_secrets_ = look->found;
        if (!awaiting_secrets_.empty()) ReadSecrets();
        for (const auto& next : look->next) next(*look->found);
      },
      poller::Slow::kSecrets);
}

// ---- Client: hello

absl::StatusOr<PeerId> EndpointImpl::Connect(const std::string& host, uint16_t port,
                                             int64_t deadline_ns) {
  auto made = NewPeer(peer::Event::kConnect, /*tenant=*/0);
  if (!made.ok()) return made.status();
  Peer* peer = *made;
  peer->target.name = cm::HostPort(host, port);
  peer->handshake()->deadline_ns = deadline_ns;
  peer->handshake()->host = host;
  peer->handshake()->port = port;
  if (secrets_ == nullptr && rc_ == nullptr) {
    absl::Status status = Dial(peer, peer::Keyring({}));
    if (status.ok()) return peer->id();
    peer->told_down = 1;  // Connect() returns the error
    Fail(peer, status);
    return status;
  }
  DialLater(peer);
  return peer->id();
}

void EndpointImpl::DialLater(Peer* peer) {
  SetTimer(peer, peer->handshake()->deadline_ns);
  ++peer->commands;
  WithSecrets([this, peer](const peer::Keyring& secrets) {
    --peer->commands;
    if (peer->state != peer::State::kConnecting) return EndLater(peer);
    if (rc_ != nullptr && !queue::RcQueues::IsAttached(peer->target)) return MakeQueueToDial(peer);
    timers_.Cancel(&peer->passage->timer);  // from here on the connection keeps the deadline
    absl::Status status = Dial(peer, secrets);
    if (!status.ok()) Fail(peer, status);
  });
}

absl::Status EndpointImpl::Dial(Peer* peer, const peer::Keyring& secrets) {
  const auto secret = secrets.own();
  if (!secret.ok()) return base::Prefix(secret.status(), "connect to " + peer->target.name.str());
  Handshake& handshake = *peer->handshake();
  handshake.secret = *secret;
  peer->old_targets = false;  // the hello contains the latest control DCT
  peer::Greeting greeting = MakeGreeting(secret->id, *peer);
  if (handshake.cookie.has_value()) greeting.Bring(*handshake.cookie);
  handshake.hello = peer::EncodeHello(greeting, handshake.secret);
  auto connection = connections_->Connect(handshake.host, handshake.port, handshake.deadline_ns,
                                          handshake.hello, handshake.cookie.has_value());
  if (!connection.ok()) return connection.status();
  Bind(peer, *connection);
  return absl::OkStatus();
}

// Dials again with the cookie that a loaded server sent in its refusal. Returns false if there is no cookie, after too many cookies,
// or after a welcome.
bool EndpointImpl::DialAgain(Peer* peer, peer::Bytes reject_data) {
  if (peer->inbound || peer->state != peer::State::kConnecting) return false;
  // After a welcome the path is being acquired, or present. The record has room for one path.
  if (peer->commands != 0 || peer->profile != nullptr || peer->target.ah != nullptr ||
      peer->has_path) {
    return false;
  }
  const auto cookie = peer::CookieIn(reject_data);
  if (!cookie.has_value() || ++peer->handshake()->cookies > kMostCookies) return false;
  peer->handshake()->cookie = cookie;
  DialLater(peer);
  return true;
}

peer::Greeting EndpointImpl::MakeGreeting(peer::SecretId secret, const Peer& peer) {
  const uint32_t number =
      rc_ != nullptr ? rc_->qp(peer.target)->qp_num : receptions_[peer.tenant].control->dctn();
  return {.epoch = epoch_,
          .secret_id = secret,
          .control_dctn = number,
          .nonce = peer::DrawNonce(random_),
          .rc = rc_ != nullptr};
}

// ---- Server: checks of a hello

void EndpointImpl::OnRequest(cm::ConnectionId id, std::span<const std::byte> private_data,
                             const cm::PathInfo& path, const std::string& from) {
  if (closed_) {
    return connections_->Reject(id,
                                peer::EncodeRefusal(peer::RefusalCode::kShutdown, "shutting down"));
  }
  Request request{.connection = id,
                  .greeting = {},
                  .hello = {},
                  .path = path,
                  .from = from,
                  .source = peer::SourceOf(from)};
  const int64_t now_ns = clock_.NowNs();
  const auto greeting = peer::DecodeHello(private_data);
  if (!greeting.ok()) {
    request.charged = limiter_.Take(request.source, now_ns);
    return RefuseFailed(request, greeting.status(), &handshakes_.garbage);
  }
  request.greeting = *greeting;
  std::copy_n(private_data.begin(), peer::kHelloBytes, request.hello.begin());
  // A client without DC gets a QP number for half a minute without a further proof. So a recorded hello must not be enough.
  if ((greeting->without_dc() || Strained(request.source)) && !MayPass(request, now_ns)) {
    return AskForCookie(id, request.source);
  }
  request.charged = limiter_.Take(request.source, now_ns);
  WithSecrets([this, request = std::move(request)](const peer::Keyring& secrets) {
    Admit(request, secrets);
  });
}

peer::Cookies& EndpointImpl::TheCookies() {
  if (!cookies_.has_value()) {
    std::array<std::byte, peer::Key::kBytes> bytes;
    if (options_.desk != nullptr) {
      bytes = options_.desk->Seed(random_);
    } else {
      for (size_t i = 0; i < bytes.size(); i += 8) peer::Store(&bytes[i], random_.Next64());
    }
    peer::Key seed;
    std::copy(bytes.begin(), bytes.end(), seed.data());
    peer::Wipe(bytes.data(), bytes.size());
    cookies_.emplace(seed);
  }
  return *cookies_;
}

// Returns whether the hello has a valid cookie. A cookie counts only under a valid MAC, because any process at the source can get one.
// If the last read did not contain the secret, only another read can check the MAC: refused while the connections are crowded.
bool EndpointImpl::MayPass(const Request& request, int64_t now_ns) {
  if (!request.greeting.has_cookie) return false;
  const auto secret = last_secrets_->Find(request.greeting.secret_id);
  if (secret.has_value() && !peer::Proven(request.hello, secret->secret)) return false;
  if (!TheCookies().Good(request.greeting.cookie(), request.source, now_ns)) return false;
  return secret.has_value() || !connections_->crowded();
}

// Returns whether a hello needs a cookie. Hellos without a cookie may be recordings, and get only a part of each limited resource.
bool EndpointImpl::Strained(const std::string& source) {
  return half_open_.half_taken() || !limiter_.Has(source, clock_.NowNs()) ||
         connections_->crowded() || numbers_->scarce();
}

void EndpointImpl::AskForCookie(cm::ConnectionId id, const std::string& source) {
  ++handshakes_.asked_again;
  connections_->Reject(id, peer::EncodeRefusal(TheCookies().For(source, clock_.NowNs())));
}

// Refuses a failed handshake. If its source had no token, the refusal does not contain the cause, and nothing is logged. Another
// version is always reported.
void EndpointImpl::RefuseFailed(const Request& request, const absl::Status& why, uint64_t* count) {
  if (request.charged || absl::IsFailedPrecondition(why)) {
    ++*count;
    LogRefused(request.from, why);
    return Refuse(request.connection, why);
  }
  ++handshakes_.too_often;
  connections_->Reject(
      request.connection,
      peer::EncodeRefusal(peer::RefusalCode::kTooOften,
                          "too many handshakes from this address failed recently"));
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
  // The connection may have timed out while the secrets were read, and another connection may use its index now.
  if (!connections_->AwaitsAnswer(id)) return;
  const auto found = secrets.Find(request.greeting.secret_id);
  if (!found.has_value() && !secrets.Check().ok()) {
    // The client does not learn the cause. Tenants whose secrets were read are served nevertheless.
    ++handshakes_.no_secrets;
    const absl::Status why = secrets.Check();
    log_.Say(
        base::Severity::kError, "no secrets", request.from,
        "caller refused, since this side's secrets can't be read: " + std::string(why.message()));
    return connections_->Reject(
        id, peer::EncodeRefusal(peer::RefusalCode::kInternal, "the server can't read its secrets"));
  }
  const absl::Status proven = CheckSecret(request, secrets);
  if (!proven.ok()) return RefuseFailed(request, proven, &handshakes_.unauthenticated);
  const int64_t now_ns = clock_.NowNs();
  // The cookie counts from here on, because the MAC covers it.
  const bool fresh = request.greeting.has_cookie &&
                     TheCookies().Good(request.greeting.cookie(), request.source, now_ns);
  // If the hello was used before, it is a recording, or the client repeats this attempt. A client with the secret makes another hello.
  if (fresh && !used_hellos_->Add(peer::Load<uint64_t>(peer::MacIn(request.hello).data()),
                                  peer::Cookies::BucketOf(now_ns))) {
    return AskForCookie(id, request.source);
  }
  if (request.greeting.without_dc()) {
    if (!fresh) return AskForCookie(id, request.source);
    ++handshakes_.without_dc;
    if (request.charged) limiter_.GiveBack(request.source, now_ns);
    return WelcomeWithoutDc(request, found->secret);
  }
  if (request.greeting.rc != (rc_ != nullptr)) {
    const std::string why = UnlikeTransports(rc_ != nullptr);
    LogRefused(request.from, absl::FailedPreconditionError(why));
    return connections_->Reject(id, peer::EncodeRefusal(peer::RefusalCode::kTransport, why));
  }
  // Other clients may have arrived while the secrets were read.
  Reception& reception = receptions_[found->tenant];
  if (!fresh &&
      (half_open_.half_taken() || reception.half_taken() || reception.queue_pairs_full())) {
    return AskForCookie(id, request.source);
  }
  MakeRoom(request.source, reception);
  if (half_open_.full()) {
    ++handshakes_.full;
    const std::string why = std::to_string(half_open_.taken()) +
                            " handshakes are in progress, the maximum (max_half_open)";
    LogRefused(request.from, absl::ResourceExhaustedError(why));
    return connections_->Reject(id, peer::EncodeRefusal(peer::RefusalCode::kFull, why));
  }
  auto made = NewPeer(peer::Event::kRequest, found->tenant);
  if (!made.ok()) {
    ++handshakes_.full;
    LogRefused(request.from, made.status());
    Refuse(id, made.status());
    // A recorded hello must not send other clients away. If queue pairs that are ending take the place, it becomes free by itself.
    if (fresh && reception.queue_pairs_full()) handler_->OnNoPlace(/*refused=*/true);
    return;
  }
  Peer* peer = *made;
  peer->handshake()->source = request.source;
  peer->handshake()->charged = request.charged;
  peer->handshake()->fresh = fresh;
  peer->handshake()->half_open = true;
  half_open_.Enter(request.source, peer->index());
  reception.half_open.Enter(request.source, peer->index());
  peer->target.name = request.from;
  peer->epoch = request.greeting.epoch;
  peer->handshake()->secret = found->secret;
  peer->handshake()->hello = request.hello;
  peer->target.dctn[1] = request.greeting.control_dctn;
  Bind(peer, id);
  SetTimer(peer, clock_.NowNs() + options_.accept_timeout_ns);
  AcquirePath(peer, request.path);
}

// Evicts clients to free a half-open place, and a place of the tenant. Sources share the places that proved peers leave.
void EndpointImpl::MakeRoom(const std::string& source, const Reception& reception) {
  if (const auto surplus = half_open_.Surplus(source)) Evict(&peers_[*surplus]);
  if (!reception.full()) return;
  if (const auto oldest = reception.half_open.Oldest(source)) Evict(&peers_[*oldest]);
}

// Frees the places of a client at once. Its peer ends later in this pass.
void EndpointImpl::Evict(Peer* peer) {
  ++handshakes_.unfinished;
  LeaveHalfOpen(peer);
  peer->evicted = true;
  ++ReceptionOf(*peer).evicted;
  Fail(peer, absl::ResourceExhaustedError(
                 "its source address has more than its share of half-open handshakes"));
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
        base::Error(
            absl::StatusCode::kFailedPrecondition,
            "connect to " + peer->target.name.str() + ": the server has no DC transport",
            {.layer = "peer",
             .peer = peer->address(),
             .operation = "handshake",
             .cause = "the server's device has no DC transport, so it only answers handshakes",
             .remedy =
                 "run the server on a device with DC transport; sluice_info lists such devices"}));
  }
  if (welcome->greeting.rc != (rc_ != nullptr)) {
    return Fail(peer, peer::RefusalStatus(peer::RefusalCode::kTransport, peer->target.name.str(),
                                          UnlikeTransports(welcome->greeting.rc)));
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
  peer->old_targets = false;  // the welcome contains the latest control DCT
  const peer::ControlAccess access{
      .key = rc_ != nullptr ? 0 : ReceptionOf(*peer).control->access_key(),
      .peer_index = peer->index(),
      .token = peer->token};
  connections_->Accept(peer->connection,
                       peer::EncodeWelcome(MakeGreeting(handshake.secret.id, *peer), access,
                                           handshake.hello, handshake.secret, &handshake.keys),
                       peer->profile == nullptr ? ibv_ece{} : peer->profile->accepted);
}

// Answers a client without DC. It learns that this is a Sluice endpoint with the secret, and how the
// connection was made. This side keeps no record, and closes the connection when it is established.
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
    return;  // the proof came first
  }
  if (peer->inbound) return;
  SetTimer(peer, peer->handshake()->deadline_ns);
  SayTerms(peer);
}

// ---- End of a handshake

void EndpointImpl::GoUp(Peer* peer) {
  if (!peer::Next(peer->state, peer::Event::kProven, &peer->state)) return;
  const uint64_t max_large_bytes = peer->handshake()->max_large_bytes;
  if (peer->inbound) {
    ++handshakes_.completed;
    LeaveHalfOpen(peer);
    if (peer->handshake()->charged) limiter_.GiveBack(peer->handshake()->source, clock_.NowNs());
    timers_.Cancel(&peer->passage->timer);
  } else {
    EndHandshake(peer);
  }
  peer->told_up = true;
  ++ups_;
  --beginners_;
  PlaceCommands();
  if (peer->old_targets) OweTargets(peer);
  // The window of the peer can be recalled from now on, and other peers may wait for that.
  if (ReceptionOf(*peer).waiting != 0) windows_.work = WindowWork::kNow;
  StartSweep();
  if (closed_) return;
  const Reception& reception = ReceptionOf(*peer);
  const bool inbound = peer->inbound;
  handler_->OnPeerUp(peer->id(), {.address = peer->target.name.str(),
                                  .inbound = peer->inbound,
                                  .max_message_bytes = peer->max_message_bytes,
                                  .max_large_bytes = max_large_bytes,
                                  .tenant = ReceptionOf(*peer).tenant});
  if (inbound && !closed_ && reception.queue_pairs_full()) handler_->OnNoPlace(/*refused=*/false);
}

void EndpointImpl::OnHandshakeTimeout(Peer* peer) {
  if (peer->inbound) {
    ++handshakes_.unfinished;
    LogRefused(peer->target.name.str(), absl::DeadlineExceededError("no proof arrived in time"));
  }
  const char* cause = "the client has not proved the secret";
  if (peer->state == peer::State::kConnecting) cause = "this side's secrets were not read in time";
  if (peer->state == peer::State::kProving) cause = "the server has not answered the proof";
  Fail(peer, base::Error(absl::StatusCode::kDeadlineExceeded, "the handshake did not end in time",
                         {.layer = "peer",
                          .peer = peer->address(),
                          .operation = "connect",
                          .cause = cause,
                          .remedy = "check the peer; allow more time if the peer is busy",
                          .retry_safe = true}));
}

void EndpointImpl::EndHandshake(Peer* peer) {
  if (peer->handshake() == nullptr) return;
  if (peer->handshake()->unsaid) std::erase(unsaid_, peer);
  LeaveHalfOpen(peer);
  EndPassage(peer);
}

void EndpointImpl::LeaveHalfOpen(Peer* peer) {
  if (!std::exchange(peer->handshake()->half_open, false)) return;
  half_open_.Leave(peer->handshake()->source, peer->index());
  ReceptionOf(*peer).half_open.Leave(peer->handshake()->source, peer->index());
}

HandshakeCounts EndpointImpl::Handshakes() const {
  HandshakeCounts counts = handshakes_;
  counts.under_way = half_open_.taken();
  return counts;
}

}  // namespace sluice::endpoint
