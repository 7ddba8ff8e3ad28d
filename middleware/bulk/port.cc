// SPDX-License-Identifier: Apache-2.0
//
// Passes and sleeps of a port. Peers: peers.cc. Transfers of this side: transfers.cc. Transfers of peers: arrivals.cc.
#include "middleware/bulk/port.h"

#include <algorithm>
#include <utility>

#include "middleware/bulk/peer.h"
#include "middleware/bulk/refusal.h"

namespace sluice::bulk {
namespace {

// Number of passes between two reads of the device's event descriptor, which cost a system call each.
constexpr uint64_t kEventPasses = 16;

}  // namespace

absl::StatusOr<std::unique_ptr<Port>> Port::Create(device::Device& device, base::Clock& clock,
                                                   base::Random& random, poller::Commands& commands,
                                                   PortUser& user, const PortOptions& options) {
  const bool whole = options.piece_bytes != 0 && options.piece_bytes % 4096 == 0;
  if (!whole || options.piece_bytes > kMaxPieceBytes || options.max_peers == 0 ||
      options.max_signed_peers == 0 || options.max_leases == 0 || options.max_transfers == 0 ||
      options.max_pieces_in_flight == 0 || options.max_pieces_in_flight > (1u << 14) ||
      options.patience_ns < 0 || options.dead_peer_ns <= 0 || options.join_ns <= 0 ||
      options.watch_ns <= 0) {
    return Refused(absl::StatusCode::kInvalidArgument, "invalid port options",
                   whole ? "a limit is zero or too large"
                         : "pieces of " + std::to_string(options.piece_bytes) +
                               " bytes are not whole blocks of 4096");
  }
  const uint64_t number = random.Next64() | 1;  // not 0
  std::unique_ptr<Port> port(new Port(device, clock, commands, user, options, number));
  absl::Status status = port->Init(random);
  if (!status.ok()) return status;
  return port;
}

Port::Port(device::Device& device, base::Clock& clock, poller::Commands& commands, PortUser& user,
           const PortOptions& options, uint64_t number)
    : device_(device),
      clock_(clock),
      commands_(commands),
      user_(user),
      options_(options),
      number_(number),
      leases_(device, commands, user, number, options.max_leases),
      peers_(options.max_peers) {
  for (auto& peer : peers_) peer = std::make_unique<Peer>(*this);
  for (uint32_t i = 0; i < peers_.size(); ++i) peers_[i]->id.index = i;
}

absl::Status Port::Init(base::Random& random) {
  auto poller = poller::Poller::Create();
  if (!poller.ok()) return poller.status();
  poller_ = *std::move(poller);
  auto announcements = integrity::Announcements::Create(device_);
  if (!announcements.ok()) return announcements.status();
  announcements_ = *std::move(announcements);
  auto mover = onesided::Mover::Create(device_, commands_, random, *this,
                                       {.max_peers = options_.max_peers,
                                        .max_pieces = options_.max_pieces_in_flight,
                                        .dead_peer_ns = options_.dead_peer_ns,
                                        .channel = announcements_->channel()});
  if (!mover.ok()) return mover.status();
  mover_ = *std::move(mover);
  if (options_.offload && device_.capabilities().Has(verbs::Feature::kSignature)) {
    auto support = integrity::SignatureSupport::Ask(device_);
    if (!support.ok()) return support.status();
    support_.emplace(*support);
  }
  // The last two watches only wake the thread: the pass that follows checks everything.
  absl::Status status = poller_->Watch(announcements_->fd(), [this] { announcements_->Drain(); });
  if (status.ok()) status = poller_->Watch(device_.async_fd(), [] {});
  if (status.ok() && commands_.fd() >= 0) status = poller_->Watch(commands_.fd(), [] {});
  return status;
}

Port::~Port() = default;

absl::Status Port::Health() const {
  return mover_->health().ok() ? device_.Usable() : mover_->health();
}

void Port::PollEvents(int64_t now_ns) {
  const bool watch = now_ns >= watch_at_ns_;
  if (watch) watch_at_ns_ = Later(now_ns, options_.watch_ns);
  if (!watch && !look_at_fds_ && ++passes_ % kEventPasses != 0) return;
  device_.ReadAsyncEvents([this](const device::DeviceEvent& event) {
    mover_->OnDeviceEvent(event);
    for (const auto& peer : peers_) {
      if (peer->polled()) peer->way.queue->OnDeviceEvent(event);
    }
  });
  if (!watch) return;
  if (mover_->busy()) mover_->Watch(now_ns);
  for (const auto& peer : peers_) {
    if (peer->polled()) peer->way.queue->Watch();
  }
}

// Arms first: completions after the pass below raise an event, and the pass finds earlier completions.
bool Port::PrepareToSleep() {
  for (const auto& peer : peers_) {
    if (peer->polled()) peer->way.queue->Arm();
  }
  mover_->Arm();
  look_at_fds_ = true;
  const bool nothing = Poll() == 0;
  look_at_fds_ = true;
  return nothing;
}

int64_t Port::SleepLimitNs() const {
  int64_t wake_ns = leases_.NextEndNs();
  const auto sooner = [&wake_ns](int64_t ns) {
    if (ns != 0 && (wake_ns == 0 || ns < wake_ns)) wake_ns = ns;
  };
  if (mover_->busy()) sooner(watch_at_ns_);
  sooner(room_at_ns_);
  const int64_t now_ns = clock_.NowNs();
  for (const auto& peer : peers_) {
    if (peer->polled() && peer->way.queue->open() != 0) sooner(watch_at_ns_);
    if (now_ns < peer->way.close_by_ns) sooner(peer->way.close_by_ns);
    // Transfers of a disconnected peer end by completions. Their deadlines no longer count.
    if (peer->state != Peer::State::kUp) continue;
    sooner(peer->join_by_ns);
    for (const Outgoing* out : peer->outgoing) {
      sooner(out->status.ok() ? out->request.deadline_ns : out->patience_end_ns);
    }
  }
  return wake_ns == 0 ? -1 : std::max<int64_t>(wake_ns - now_ns, 0);
}

int Port::Poll() {
  if (look_at_fds_) poller_->Check();
  int done = commands_.Drain();
  const int64_t now_ns = clock_.NowNs();
  leases_.Poll(now_ns);
  PollEvents(now_ns);
  look_at_fds_ = false;
  // Each pass starts with another peer: shared resources are often scarce, and the first peer takes as much as it can.
  first_ = (first_ + 1) % peers_.size();
  for (size_t i = 0, at = first_; i < peers_.size(); ++i) {
    const auto& peer = peers_[at];
    at = at + 1 == peers_.size() ? 0 : at + 1;
    if (peer->state == Peer::State::kUp) {
      CheckTime(*peer, now_ns);
      PumpSigned(*peer);
      done += AdvanceSigned(*peer);  // before plain notices use up the grant of the peer
      PumpPlain(*peer);
    }
    if (!peer->polled()) continue;
    peer->way.queue->Flush();
    done += peer->way.queue->Poll();
  }
  done += mover_->Poll();
  done += MakeRoom(now_ns);  // answers received above are in time, even if this thread was delayed
  for (const auto& peer : peers_) {
    if (peer->state == Peer::State::kFree || peer->state == Peer::State::kBuried) continue;
    done += EndQueue(*peer);
    if (peer->Parted()) peer->state = Peer::State::kDown;
    Sweep(*peer);
    if (peer->state == Peer::State::kDown) Bury(*peer);
  }
  return done;
}

}  // namespace sluice::bulk
