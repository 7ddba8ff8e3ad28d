// SPDX-License-Identifier: Apache-2.0
#include "middleware/local/local_endpoint.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::local {

using endpoint::PeerId;
using endpoint::PeerInfo;
using endpoint::Room;
using endpoint::SendBuffer;

std::unique_ptr<LocalEndpoint> LocalNetwork::Create(endpoint::Handler* handler, base::Clock* clock,
                                                    Options options) {
  return std::unique_ptr<LocalEndpoint>(new LocalEndpoint(this, handler, clock, options));
}

void LocalNetwork::set_silent(bool silent) {
  std::lock_guard lock(mutex_);
  silent_ = silent;
}

LocalEndpoint::LocalEndpoint(LocalNetwork* network, endpoint::Handler* handler, base::Clock* clock,
                             LocalNetwork::Options options)
    : network_(network),
      handler_(handler),
      clock_(clock),
      options_(options),
      event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (event_fd_ < 0) abort();
}

LocalEndpoint::~LocalEndpoint() {
  {
    std::lock_guard lock(network_->mutex_);
    Leave(absl::UnavailableError("the other end is gone"));
  }
  held_lent_.Leave([this](uint32_t number) { return lent_.at(number).data; });
  held_fetched_.Leave([this](uint32_t number) { return fetched_.at(number).data; });
  close(event_fd_);
}

// ---- Faults

void LocalEndpoint::Kill() {
  std::lock_guard lock(network_->mutex_);
  Leave(absl::UnavailableError("the other end was killed"));
}

void LocalEndpoint::Leave(const absl::Status& why) {
  if (dead_) return;
  for (uint32_t i = 0; i < peers_.size(); ++i) DropPeer({i, peers_[i].generation}, why);
  for (const std::string& address : listening_) network_->listeners_.erase(address);
  inbox_.clear();
  batch_.clear();
  dead_ = true;
}

void LocalEndpoint::set_drop(bool drop) {
  std::lock_guard lock(network_->mutex_);
  drop_ = drop;
}

void LocalEndpoint::set_withhold_credits(bool withhold) {
  std::lock_guard lock(network_->mutex_);
  withhold_ = withhold;
  if (withhold) return;
  for (const auto& [index, count] : std::exchange(withheld_, {})) {
    ReturnCredits({index, peers_[index].generation}, count, /*taken=*/true);
  }
}

void LocalEndpoint::set_tamper(std::function<int(std::vector<std::byte>&)> tamper) {
  std::lock_guard lock(network_->mutex_);
  tamper_ = std::move(tamper);
}

void LocalEndpoint::set_before_sleep(std::function<void()> run) {
  std::lock_guard lock(network_->mutex_);
  before_sleep_ = std::move(run);
}

void LocalEndpoint::set_after_wake(std::function<void()> run) {
  std::lock_guard lock(network_->mutex_);
  after_wake_ = std::move(run);
}

void LocalEndpoint::set_fail_reserves(int count) {
  std::lock_guard lock(network_->mutex_);
  fail_reserves_ = count;
}

void LocalEndpoint::WaitUntilArmed() {
  std::unique_lock lock(network_->mutex_);
  changed_.wait(lock, [this] { return armed_; });
}

bool LocalEndpoint::PollsWithin(absl::Duration time) {
  std::unique_lock lock(network_->mutex_);
  const uint64_t before = polls_;
  return changed_.wait_for(lock, std::chrono::nanoseconds(absl::ToInt64Nanoseconds(time)),
                           [&] { return polls_ != before; });
}

int LocalEndpoint::credits_out() const {
  std::lock_guard lock(network_->mutex_);
  int out = 0;
  for (const Peer& peer : peers_) {
    if (peer.state == Peer::kUp) out += options_.credits - peer.credits;
  }
  return out;
}

// ---- Peers

PeerId LocalEndpoint::NewPeer(const std::string& address) {
  uint32_t index = 0;
  while (index < peers_.size() && peers_[index].state != Peer::kFree) ++index;
  if (index == peers_.size()) peers_.emplace_back();
  Peer& peer = peers_[index];
  const uint32_t generation = peer.generation + 1;
  peer = Peer();
  peer.generation = generation;
  peer.state = Peer::kConnecting;
  peer.address = address;
  return {index, generation};
}

LocalEndpoint::Peer* LocalEndpoint::Find(PeerId id) {
  if (id.index >= peers_.size() || peers_[id.index].generation != id.generation ||
      peers_[id.index].state == Peer::kFree) {
    return nullptr;
  }
  return &peers_[id.index];
}

void LocalEndpoint::Signal() {
  if (signalled_) return;
  signalled_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof(one));
}

void LocalEndpoint::Post(Event event) {
  if (dead_) return;
  inbox_.push_back(std::move(event));
  if (armed_) Signal();
}

void LocalEndpoint::DropPeer(PeerId id, const absl::Status& tell_remote) {
  Peer* peer = Find(id);
  if (peer == nullptr) return;
  peer->state = Peer::kFree;
  std::erase_if(fetches_, [&](const auto& fetch) { return fetch.second.peer == id; });
  withheld_.erase(id.index);
  LocalEndpoint* const remote = std::exchange(peer->remote, nullptr);
  if (remote == nullptr) return;
  Event down;
  down.kind = Event::kDown;
  down.peer = peer->remote_id;
  down.why = tell_remote;
  remote->Post(std::move(down));
  if (Peer* there = remote->Find(peer->remote_id)) there->remote = nullptr;
}

absl::StatusOr<uint16_t> LocalEndpoint::Listen(const std::string& host, uint16_t port) {
  std::lock_guard lock(network_->mutex_);
  if (port == 0) port = network_->next_port_++;
  const std::string address = absl::StrCat(host, ":", port);
  if (!network_->listeners_.emplace(address, this).second) {
    return absl::AlreadyExistsError(absl::StrCat(address, " is in use"));
  }
  listening_.push_back(address);
  return port;
}

absl::StatusOr<PeerId> LocalEndpoint::Connect(const std::string& host, uint16_t port,
                                              int64_t deadline_ns) {
  std::lock_guard lock(network_->mutex_);
  const std::string address = absl::StrCat(host, ":", port);
  const PeerId id = NewPeer(address);
  Peer& peer = peers_[id.index];
  peer.connect_deadline_ns = deadline_ns;
  if (network_->silent_) return id;
  const auto listener = network_->listeners_.find(address);
  if (listener == network_->listeners_.end()) {
    Event down;
    down.kind = Event::kDown;
    down.peer = id;
    down.why = absl::UnavailableError(absl::StrCat("connect to ", address, " refused"));
    Post(std::move(down));
    return id;
  }
  LocalEndpoint* remote = listener->second;
  const PeerId remote_id = remote->NewPeer("local-client");
  Peer& there = remote->peers_[remote_id.index];
  const uint32_t limit = std::min(options_.max_message_bytes, remote->options_.max_message_bytes);
  const uint64_t large = std::min(options_.max_large_bytes, remote->options_.max_large_bytes);
  const auto join = [limit, large](LocalEndpoint* self, PeerId self_id, LocalEndpoint* other,
                                   PeerId other_id, bool inbound) {
    Peer& at = self->peers_[self_id.index];
    at.remote = other;
    at.remote_id = other_id;
    at.credits = self->options_.credits;
    at.max_message_bytes = limit;
    Event up;
    up.kind = Event::kUp;
    up.peer = self_id;
    up.info = PeerInfo{at.address, inbound, limit, large};
    self->Post(std::move(up));
  };
  there.state = Peer::kConnecting;
  join(this, id, remote, remote_id, false);
  join(remote, remote_id, this, id, true);
  return id;
}

absl::StatusOr<endpoint::PeerReport> LocalEndpoint::Report(PeerId id) const {
  std::lock_guard lock(network_->mutex_);
  const Peer* peer = Find(id);
  if (peer == nullptr) return absl::UnavailableError("no such peer");
  endpoint::PeerReport report;
  report.address = peer->address;
  report.up = peer->state == Peer::kUp;
  return report;
}

void LocalEndpoint::Disconnect(PeerId id) {
  std::lock_guard lock(network_->mutex_);
  FlushLocked();
  Peer* peer = Find(id);
  if (dead_ || peer == nullptr || peer->state == Peer::kLeaving) return;
  DropPeer(id, absl::UnavailableError("the other end disconnected"));
  peer->state = Peer::kLeaving;  // until its handler has been told
  Event down;
  down.kind = Event::kDown;
  down.peer = id;
  down.why = absl::CancelledError("disconnected by this side");
  Post(std::move(down));
}

void LocalEndpoint::Close() {
  std::lock_guard lock(network_->mutex_);
  FlushLocked();
  Leave(absl::UnavailableError("the other end disconnected"));
}

// ---- Sending

absl::StatusOr<SendBuffer> LocalEndpoint::Reserve(PeerId id, uint32_t size_bytes) {
  std::lock_guard lock(network_->mutex_);
  Peer* peer = Find(id);
  if (dead_ || peer == nullptr || peer->state != Peer::kUp)
    return absl::UnavailableError("no such peer");
  if (size_bytes > peer->max_message_bytes) return absl::InvalidArgumentError("over the limit");
  if (fail_reserves_ > 0) {
    --fail_reserves_;
    peer->starved = true;
    MakeWritable(id);
    return absl::ResourceExhaustedError("told to say so");
  }
  if (peer->credits == 0) {
    peer->starved = true;
    return absl::ResourceExhaustedError("no credit");
  }
  const Room room = TakeRoom(peer, size_bytes);
  return SendBuffer{.data = room.data, .capacity_bytes = room.capacity_bytes, .slot = room.slot};
}

Room LocalEndpoint::TryReserve(PeerId id, uint32_t size_bytes) {
  std::lock_guard lock(network_->mutex_);
  Peer* peer = Find(id);
  if (dead_ || peer == nullptr || peer->state != Peer::kUp ||
      size_bytes > peer->max_message_bytes || fail_reserves_ > 0 || peer->credits == 0) {
    return {};
  }
  return TakeRoom(peer, size_bytes);
}

Room LocalEndpoint::TakeRoom(Peer* peer, uint32_t size_bytes) {
  --peer->credits;
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<uint32_t>(send_memory_.size()));
    send_memory_.emplace_back();
  }
  const uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  // Exactly the requested size, so that the address sanitizer detects a write of one byte too many.
  send_memory_[slot].assign(size_bytes, std::byte{0xee});
  return {.data = send_memory_[slot].data(), .capacity_bytes = size_bytes, .slot = slot};
}

void LocalEndpoint::Commit(PeerId id, SendBuffer buffer, uint32_t length_bytes, bool) {
  std::lock_guard lock(network_->mutex_);
  assert(length_bytes <= buffer.capacity_bytes);
  send_memory_[buffer.slot].resize(length_bytes);
  const Peer* peer = Find(id);
  if (peer == nullptr || !peer->broken) batch_.push_back({id, send_memory_[buffer.slot]});
}

void LocalEndpoint::Repost(PeerId id, uint32_t slot) {
  std::lock_guard lock(network_->mutex_);
  batch_.push_back({id, send_memory_[slot]});
}

void LocalEndpoint::Release(uint32_t slot) {
  std::lock_guard lock(network_->mutex_);
  free_slots_.push_back(slot);
}

size_t LocalEndpoint::slots_out() const {
  std::lock_guard lock(network_->mutex_);
  return send_memory_.size() - free_slots_.size();
}

void LocalEndpoint::FailRequests(PeerId id) {
  std::lock_guard lock(network_->mutex_);
  Peer* peer = Find(id);
  if (peer == nullptr || peer->broken) return;
  peer->broken = true;
  std::erase_if(batch_, [&](const Pending& pending) { return pending.peer == id; });
  if (peer->remote != nullptr) {
    std::erase_if(peer->remote->inbox_, [&](const Event& event) {
      return event.kind == Event::kMessage && event.peer == peer->remote_id;
    });
  }
  Event event;
  event.kind = Event::kResend;
  event.peer = id;
  Post(std::move(event));
}

void LocalEndpoint::Cancel(PeerId id, SendBuffer buffer) {
  std::lock_guard lock(network_->mutex_);
  free_slots_.push_back(buffer.slot);
  if (Peer* peer = Find(id)) ++peer->credits;
}

void LocalEndpoint::Flush() {
  std::lock_guard lock(network_->mutex_);
  FlushLocked();
}

void LocalEndpoint::FlushLocked() {
  for (Pending& pending : std::exchange(batch_, {})) {
    Peer* peer = Find(pending.peer);
    if (dead_ || drop_ || peer == nullptr || peer->remote == nullptr) continue;
    int copies = 1;
    if (tamper_) copies = tamper_(pending.message);
    for (int i = 0; i < copies; ++i) {
      Event event;
      event.kind = Event::kMessage;
      event.peer = peer->remote_id;
      event.message = pending.message;
      peer->remote->Post(std::move(event));
    }
  }
}

// Returns the credits of `count` messages from `from` that the handler has consumed.
void LocalEndpoint::ReturnCredits(PeerId from, int count, bool taken) {
  Peer* peer = Find(from);
  if (peer == nullptr || peer->remote == nullptr) return;
  Peer* there = peer->remote->Find(peer->remote_id);
  if (there == nullptr) return;
  if (taken) there->acknowledged += static_cast<uint32_t>(count);
  // A duplicated message returns only one credit.
  there->credits = std::min(there->credits + count, peer->remote->options_.credits);
  if (there->starved) peer->remote->MakeWritable(peer->remote_id);
}

void LocalEndpoint::MakeWritable(PeerId id) {
  Peer* peer = Find(id);
  if (peer == nullptr || !peer->starved) return;
  peer->starved = false;
  Event event;
  event.kind = Event::kWritable;
  event.peer = id;
  Post(std::move(event));
}

// ---- Polling

int LocalEndpoint::Poll() {
  std::unique_lock lock(network_->mutex_);
  ++polls_;
  armed_ = false;
  changed_.notify_all();
  if (signalled_) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(event_fd_, &count, sizeof(count));
    signalled_ = false;
  }
  if (dead_) return 0;
  CollectHeld();
  for (uint32_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (peer.state != Peer::kConnecting || peer.remote != nullptr ||
        peer.connect_deadline_ns == 0 || clock_->NowNs() < peer.connect_deadline_ns) {
      continue;
    }
    peer.connect_deadline_ns = 0;
    Event down;
    down.kind = Event::kDown;
    down.peer = {i, peer.generation};
    down.why =
        absl::DeadlineExceededError(absl::StrCat("connect to ", peer.address, ": no answer"));
    inbox_.push_back(std::move(down));
  }
  // Events that the handlers cause are handled in the next pass.
  int done = 0;
  for (size_t left = inbox_.size(); left > 0 && !inbox_.empty(); --left) {
    const Event event = std::move(inbox_.front());
    inbox_.pop_front();
    Peer* peer = Find(event.peer);
    if (peer == nullptr || (peer->state == Peer::kLeaving && event.kind != Event::kDown)) continue;
    ++done;
    if (event.kind == Event::kUp) peer->state = Peer::kUp;
    if (event.kind == Event::kDown) {
      peer->state = Peer::kFree;
      std::erase_if(fetches_, [&](const auto& fetch) { return fetch.second.peer == event.peer; });
      withheld_.erase(event.peer.index);
    }
    if (event.kind == Event::kFetched && !fetches_.contains(event.number)) continue;
    if (event.kind == Event::kResend) peer->broken = false;
    // Only an event from the peer carries its acknowledgement.
    const bool acknowledged = peer->acknowledged != peer->told && event.kind != Event::kResend;
    const uint32_t total = peer->acknowledged;
    if (acknowledged) peer->told = total;
    bool taken = true;
    absl::StatusOr<endpoint::LargeBuffer> fetched = absl::UnknownError("");
    if (event.kind == Event::kFetched) fetched = Read(event.number);
    lock.unlock();
    if (acknowledged && event.kind != Event::kDown) handler_->OnAcknowledged(event.peer, total);
    switch (event.kind) {
      case Event::kUp:
        handler_->OnPeerUp(event.peer, event.info);
        break;
      case Event::kDown:
        handler_->OnPeerDown(event.peer, event.why);
        break;
      case Event::kMessage: {
        // A copy of exactly the size of the message, for the address sanitizer.
        const std::vector<std::byte> exact(event.message.begin(), event.message.end());
        taken = handler_->OnMessage(event.peer, exact);
        break;
      }
      case Event::kWritable:
        handler_->OnWritable(event.peer);
        break;
      case Event::kResend:
        handler_->OnResend(event.peer);
        break;
      case Event::kLent:
        handler_->OnLent(event.peer, event.number, event.why);
        break;
      case Event::kFetched:
        handler_->OnFetched(event.peer, fetched, event.number);
        break;
    }
    lock.lock();
    if (event.kind != Event::kMessage) continue;
    if (withhold_) {
      if (Find(event.peer) != nullptr) ++withheld_[event.peer.index];
    } else {
      ReturnCredits(event.peer, 1, taken);
    }
  }
  FlushLocked();
  return done;
}

bool LocalEndpoint::PrepareToSleep() {
  std::unique_lock lock(network_->mutex_);
  if (before_sleep_) {
    const std::function<void()> run = before_sleep_;
    lock.unlock();
    run();
    lock.lock();
  }
  if (!inbox_.empty() || !held_lent_.PrepareToSleep() || !held_fetched_.PrepareToSleep()) {
    return false;
  }
  armed_ = true;
  changed_.notify_all();
  return true;
}

int64_t LocalEndpoint::SleepLimitNs() const {
  std::lock_guard lock(network_->mutex_);
  int64_t limit = -1;
  for (const Peer& peer : peers_) {
    if (peer.state != Peer::kConnecting || peer.remote != nullptr || peer.connect_deadline_ns == 0)
      continue;
    const int64_t left = std::max<int64_t>(peer.connect_deadline_ns - clock_->NowNs(), 0);
    limit = limit < 0 ? left : std::min(limit, left);
  }
  return limit;
}

void LocalEndpoint::Wake() {
  std::function<void()> run;
  {
    std::lock_guard lock(network_->mutex_);
    Signal();
    run = after_wake_;
  }
  if (run) run();
}

}  // namespace sluice::local
