// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/client_group.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

#include "transport/base/error.h"

namespace sluice::call {

// ---- GroupEndpoint: the endpoint with the engine's own numbers of its peers

GroupEndpoint::GroupEndpoint(ClientGroup* group, ClientEngine* engine)
    : group_(group), engine_(engine) {}

GroupEndpoint::~GroupEndpoint() { assert(left_ || pass_ == 0); }

endpoint::PeerId GroupEndpoint::SharedOf(endpoint::PeerId peer) const {
  if (peer.index >= slots_.size() || slots_[peer.index].generation != peer.generation) return {};
  return slots_[peer.index].shared;
}

void GroupEndpoint::Forget(uint32_t index) {
  slots_[index] = {};
  unused_.push_back(index);
  --live_;
}

absl::StatusOr<uint16_t> GroupEndpoint::Listen(const std::string& host, uint16_t) {
  return base::Error(absl::StatusCode::kFailedPrecondition, "channels of a runtime do not listen",
                     {.layer = "call",
                      .peer = host,
                      .operation = "listen",
                      .cause = "the endpoint of a group of channels only connects",
                      .remedy = "listen with a Server or a Messenger",
                      .retry_safe = true});
}

absl::StatusOr<endpoint::PeerId> GroupEndpoint::Connect(const std::string& host, uint16_t port,
                                                        int64_t deadline_ns) {
  auto shared = group_->endpoint_->Connect(host, port, deadline_ns);
  if (!shared.ok()) return shared;
  if (unused_.empty()) {
    unused_.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const endpoint::PeerId own{unused_.back(), next_generation_};
  unused_.pop_back();
  if (++next_generation_ == 0) next_generation_ = 1;
  slots_[own.index] = {.shared = *shared, .generation = own.generation};
  ++live_;
  if (shared->index >= group_->routes_.size()) group_->routes_.resize(shared->index + 1);
  group_->routes_[shared->index] = {this, shared->generation, own};
  return own;
}

absl::StatusOr<endpoint::SendBuffer> GroupEndpoint::Reserve(endpoint::PeerId peer,
                                                            uint32_t size_bytes) {
  return group_->endpoint_->Reserve(SharedOf(peer), size_bytes);
}

void GroupEndpoint::Commit(endpoint::PeerId peer, endpoint::SendBuffer buffer,
                           uint32_t length_bytes, bool report_soon) {
  group_->endpoint_->Commit(SharedOf(peer), buffer, length_bytes, report_soon);
}

endpoint::Room GroupEndpoint::TryReserve(endpoint::PeerId peer, uint32_t size_bytes) {
  return group_->endpoint_->TryReserve(SharedOf(peer), size_bytes);
}

void GroupEndpoint::CommitRoom(endpoint::PeerId peer, endpoint::Room room, uint32_t length_bytes,
                               bool report_soon) {
  group_->endpoint_->CommitRoom(SharedOf(peer), room, length_bytes, report_soon);
}

endpoint::Endpoint::SlotRange GroupEndpoint::NeverReleased() const {
  return group_->endpoint_->NeverReleased();
}

void GroupEndpoint::Repost(endpoint::PeerId peer, uint32_t slot) {
  group_->endpoint_->Repost(SharedOf(peer), slot);
}

void GroupEndpoint::Release(uint32_t slot) { group_->endpoint_->Release(slot); }

void GroupEndpoint::Cancel(endpoint::PeerId peer, endpoint::SendBuffer buffer) {
  group_->endpoint_->Cancel(SharedOf(peer), buffer);
}

void GroupEndpoint::Flush() { group_->endpoint_->Flush(); }

absl::StatusOr<endpoint::LargeBuffer> GroupEndpoint::Lend(endpoint::PeerId peer, uint64_t bytes,
                                                          bool waits) {
  return group_->endpoint_->Lend(SharedOf(peer), bytes, waits);
}

std::optional<endpoint::RemoteMemory> GroupEndpoint::WhereLent(uint32_t number) {
  return group_->endpoint_->WhereLent(number);
}

void GroupEndpoint::EndLoan(uint32_t number) { group_->endpoint_->EndLoan(number); }

absl::StatusOr<uint32_t> GroupEndpoint::Fetch(endpoint::PeerId peer,
                                              const endpoint::RemoteMemory& from) {
  return group_->endpoint_->Fetch(SharedOf(peer), from);
}

void GroupEndpoint::CancelFetch(uint32_t number) { group_->endpoint_->CancelFetch(number); }
void GroupEndpoint::GiveBack(uint32_t number) { group_->endpoint_->GiveBack(number); }

endpoint::HeldMemory GroupEndpoint::HoldLent(uint32_t number) {
  return group_->endpoint_->HoldLent(number);
}

bool GroupEndpoint::LendHeld(endpoint::PeerId peer, const endpoint::HeldMemory& memory) {
  return group_->endpoint_->LendHeld(SharedOf(peer), memory);
}

endpoint::HeldMemory GroupEndpoint::HoldFetched(uint32_t number) {
  return group_->endpoint_->HoldFetched(number);
}

int GroupEndpoint::fd() const { return group_->endpoint_->fd(); }
void GroupEndpoint::Wake() { group_->endpoint_->Wake(); }

absl::StatusOr<endpoint::PeerReport> GroupEndpoint::Report(endpoint::PeerId peer) const {
  return group_->endpoint_->Report(SharedOf(peer));
}

endpoint::HandshakeCounts GroupEndpoint::Handshakes() const {
  return group_->endpoint_->Handshakes();
}
absl::Status GroupEndpoint::Health() const { return group_->endpoint_->Health(); }
endpoint::ConnectionCounts GroupEndpoint::Connections() const {
  return group_->endpoint_->Connections();
}
endpoint::Counters GroupEndpoint::Counts() const { return group_->endpoint_->Counts(); }
std::vector<endpoint::QueueReport> GroupEndpoint::Queues() const {
  return group_->endpoint_->Queues();
}

void GroupEndpoint::Disconnect(endpoint::PeerId peer) {
  group_->endpoint_->Disconnect(SharedOf(peer));
}

void GroupEndpoint::Close() {
  for (const Slot& slot : slots_) {
    if (slot.generation != 0) group_->endpoint_->Disconnect(slot.shared);
  }
}

// ---- ClientGroup

// Marks the engine's time as stale, and adds the member to all lists.
void ClientGroup::EnterPass(GroupEndpoint* member) {
  if (member->left_) return;
  member->pass_ = pass_;
  member->engine_->BeginPass(quiet_passes_ >= kQuietPasses);
  if (!std::exchange(member->entered_, true)) entered_.push_back(member);
  if (!std::exchange(member->calling_, true)) calling_.push_back(member);
  if (!std::exchange(member->timed_, true)) timed_.push_back(member);
}

void ClientGroup::Leave(GroupEndpoint* member) {
  assert(member->gone());
  for (auto* list : {&entered_, &calling_, &timed_, &working_}) std::erase(*list, member);
  member->left_ = true;
}

int ClientGroup::Poll() {
  ++pass_;
  int done = 0;
  if (!entered_.empty()) {
    // Their Poll() may enter other members, and these members again.
    working_.swap(entered_);
    for (GroupEndpoint* member : working_) member->entered_ = false;
    for (GroupEndpoint* member : working_) {
      if (!member->engine_->HasWork()) continue;
      Enter(member);
      done += 1 + member->engine_->Poll();
    }
    working_.clear();
  }
  const int events = endpoint_->Poll();
  done += events;
  quiet_passes_ = events == 0 ? quiet_passes_ + 1 : 0;
  const bool due = done == 0 ? ++idle_passes_ % kIdlePassesPerClockRead == 0
                             : ++busy_passes_ % kBusyPassesPerClockRead == 0;
  if (due) {
    RefreshNow();
    done += FireTimers();
  }
  ++pass_;  // a call that starts from now on reads the clock
  return done;
}

bool ClientGroup::IsIdle(GroupEndpoint* member) {
  return member->engine_->outstanding() == 0 && member->engine_->SleepLimitNs() < 0;
}

int ClientGroup::FireTimers() {
  int fired = 0;
  for (size_t i = 0; i < timed_.size();) {
    GroupEndpoint* const member = timed_[i];
    if (const int own = member->engine_->AfterSleep(); own > 0) {
      fired += own;
      Enter(member);
    }
    if (!IsIdle(member)) {
      ++i;
      continue;
    }
    member->timed_ = false;
    member->pass_ = 0;  // the next call to the engine enters it again
    timed_[i] = timed_.back();
    timed_.pop_back();
  }
  return fired;
}

int64_t ClientGroup::SleepLimitNs() {
  RefreshNow();
  ++pass_;  // a sleep follows, and a call may start before AfterSleep()
  int64_t limit_ns = endpoint_->SleepLimitNs();
  for (size_t i = 0; i < timed_.size();) {
    GroupEndpoint* const member = timed_[i];
    const int64_t own_ns = member->engine_->SleepLimitNs();
    if (own_ns >= 0) limit_ns = limit_ns < 0 ? own_ns : std::min(limit_ns, own_ns);
    if (own_ns >= 0 || member->engine_->outstanding() != 0) {
      ++i;
      continue;
    }
    member->timed_ = false;
    timed_[i] = timed_.back();
    timed_.pop_back();
  }
  return limit_ns;
}

int ClientGroup::AfterSleep() {
  ++pass_;
  RefreshNow();
  return FireTimers();
}

bool ClientGroup::HasCalls() {
  while (!calling_.empty()) {
    GroupEndpoint* const member = calling_.back();
    if (member->engine_->outstanding() != 0) return true;
    member->calling_ = false;
    member->pass_ = 0;  // the next call to the engine enters it again
    calling_.pop_back();
  }
  return false;
}

void ClientGroup::OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) {
  const Route* const route = RouteOf(peer);
  if (route == nullptr) return endpoint_->Disconnect(peer);
  const endpoint::PeerId own = route->own;
  route->member->engine_->handler()->OnPeerUp(own, info);
}

// Copies the route: the handler may connect to a peer, which may move the routes.
void ClientGroup::OnPeerDown(endpoint::PeerId peer, const absl::Status& why) {
  const Route* const found = RouteOf(peer);
  if (found == nullptr) return;
  const Route route = *found;
  GroupEndpoint* const member = route.member;
  // Cleared before the handler runs: an endpoint may give the index to a peer that the handler connects.
  routes_[peer.index] = {};
  member->engine_->handler()->OnPeerDown(route.own, why);
  member->Forget(route.own.index);
  if (member->gone() && member->when_gone_) std::exchange(member->when_gone_, nullptr)();
}

bool ClientGroup::OnMessage(endpoint::PeerId peer, std::span<const std::byte> bytes) {
  const Route* const route = RouteOf(peer);
  return route != nullptr && route->member->engine_->handler()->OnMessage(route->own, bytes);
}

void ClientGroup::OnAcknowledged(endpoint::PeerId peer, uint32_t total) {
  if (const Route* const route = RouteOf(peer); route != nullptr) {
    route->member->engine_->handler()->OnAcknowledged(route->own, total);
  }
}

bool ClientGroup::OnResend(endpoint::PeerId peer) {
  const Route* const route = RouteOf(peer);
  return route != nullptr && route->member->engine_->handler()->OnResend(route->own);
}

void ClientGroup::OnWritable(endpoint::PeerId peer) {
  if (const Route* const route = RouteOf(peer); route != nullptr) {
    route->member->engine_->handler()->OnWritable(route->own);
  }
}

void ClientGroup::OnLent(endpoint::PeerId peer, uint32_t number, const absl::Status& status) {
  if (const Route* const route = RouteOf(peer); route != nullptr) {
    route->member->engine_->handler()->OnLent(route->own, number, status);
  }
}

void ClientGroup::OnFetched(endpoint::PeerId peer,
                            const absl::StatusOr<endpoint::LargeBuffer>& buffer, uint32_t number) {
  if (const Route* const route = RouteOf(peer); route != nullptr) {
    route->member->engine_->handler()->OnFetched(route->own, buffer, number);
  }
}

}  // namespace sluice::call
