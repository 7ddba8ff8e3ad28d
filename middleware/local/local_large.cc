// SPDX-License-Identifier: Apache-2.0
//
// LocalEndpoint: large messages. Lent memory belongs to this endpoint; fetched memory is a copy.
#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

#include "middleware/local/local_endpoint.h"

namespace sluice::local {

using endpoint::PeerId;

absl::StatusOr<endpoint::LargeBuffer> LocalEndpoint::Lend(PeerId id, uint64_t bytes, bool waits) {
  std::lock_guard lock(network_->mutex_);
  Peer* peer = Find(id);
  if (dead_ || peer == nullptr || peer->state != Peer::kUp) {
    return absl::UnavailableError("no such peer");
  }
  if (bytes > options_.large_memory_bytes) return absl::InvalidArgumentError("over the limit");
  CollectHeld();
  if (lent_bytes_ + bytes > options_.large_memory_bytes) {
    peer->lend_waits = peer->lend_waits || waits;
    return absl::ResourceExhaustedError("no memory for large messages");
  }
  if (fail_lending_) return absl::AbortedError("mmap failed");
  lent_bytes_ += bytes;
  const uint32_t number = next_large_++;
  Large& large = lent_[number];
  large = {.peer = id,
           .data = std::make_shared_for_overwrite<std::byte[]>(bytes),
           .bytes = bytes,
           .known = !slow_lending_};
  return endpoint::LargeBuffer{large.data.get(), bytes, number};
}

std::optional<endpoint::RemoteMemory> LocalEndpoint::WhereLent(uint32_t number) {
  std::lock_guard lock(network_->mutex_);
  const Large& large = lent_.at(number);
  if (!large.known) return std::nullopt;
  return endpoint::RemoteMemory{.address = 0, .bytes = large.bytes, .key = number};
}

void LocalEndpoint::EndLoan(uint32_t number) {
  std::lock_guard lock(network_->mutex_);
  if (!held_lent_.EndLoan(number)) FreeLent(number);
}

void LocalEndpoint::FreeLent(uint32_t number) {
  const auto large = lent_.find(number);
  assert(large != lent_.end());
  lent_bytes_ -= large->second.bytes;
  lent_.erase(large);
  for (uint32_t i = 0; i < peers_.size(); ++i) {
    if (!std::exchange(peers_[i].lend_waits, false)) continue;
    Event event;
    event.kind = Event::kWritable;
    event.peer = {i, peers_[i].generation};
    Post(std::move(event));
  }
}

absl::StatusOr<uint32_t> LocalEndpoint::Fetch(PeerId id, const endpoint::RemoteMemory& from) {
  std::lock_guard lock(network_->mutex_);
  const Peer* peer = Find(id);
  if (dead_ || peer == nullptr || peer->state != Peer::kUp) {
    return absl::UnavailableError("no such peer");
  }
  if (from.bytes == 0 || from.bytes > options_.max_large_bytes) {
    return absl::InvalidArgumentError("over the limit");
  }
  const uint32_t number = next_large_++;
  fetches_[number] = {.peer = id, .from = from, .status = fail_fetches_};
  if (!hold_fetches_) PostFetched(number);
  return number;
}

void LocalEndpoint::PostFetched(uint32_t number) {
  Event event;
  event.kind = Event::kFetched;
  event.peer = fetches_.at(number).peer;
  event.number = number;
  Post(std::move(event));
}

absl::StatusOr<endpoint::LargeBuffer> LocalEndpoint::Read(uint32_t number) {
  const auto ended = fetches_.extract(number);
  const Fetching& fetch = ended.mapped();
  if (!fetch.status.ok()) return fetch.status;
  const Peer* peer = Find(fetch.peer);
  const auto refused = absl::PermissionDeniedError("the peer has not lent that memory");
  if (peer == nullptr || peer->remote == nullptr) return refused;
  const auto source = peer->remote->lent_.find(fetch.from.key);
  if (source == peer->remote->lent_.end() || !(source->second.peer == peer->remote_id) ||
      fetch.from.address > source->second.bytes ||
      fetch.from.bytes > source->second.bytes - fetch.from.address) {
    return refused;
  }
  Large& large = fetched_[number];
  large = {.peer = fetch.peer,
           .data = std::make_shared_for_overwrite<std::byte[]>(fetch.from.bytes),
           .bytes = fetch.from.bytes};
  std::copy_n(source->second.data.get() + fetch.from.address, fetch.from.bytes, large.data.get());
  return endpoint::LargeBuffer{large.data.get(), large.bytes, number};
}

void LocalEndpoint::CancelFetch(uint32_t number) {
  std::lock_guard lock(network_->mutex_);
  const auto fetch = fetches_.find(number);
  if (fetch == fetches_.end()) return;
  fetch->second.status = absl::CancelledError("the receiver no longer waits for it");
  if (hold_fetches_) PostFetched(number);
}

void LocalEndpoint::GiveBack(uint32_t number) {
  std::lock_guard lock(network_->mutex_);
  fetched_.erase(number);
}

endpoint::HeldMemory LocalEndpoint::HoldLent(uint32_t number) {
  std::lock_guard lock(network_->mutex_);
  const Large& large = lent_.at(number);
  return held_lent_.Hold(large.data.get(), large.bytes, number, Owner(large.peer), /*lent=*/true);
}

bool LocalEndpoint::LendHeld(PeerId id, const endpoint::HeldMemory& memory) {
  std::lock_guard lock(network_->mutex_);
  const Peer* peer = Find(id);
  return !dead_ && peer != nullptr && peer->state == Peer::kUp && memory.owner() == Owner(id) &&
         held_lent_.Owns(memory) && !lent_.at(memory.number()).failed && held_lent_.Lend(memory);
}

endpoint::HeldMemory LocalEndpoint::HoldFetched(uint32_t number) {
  std::lock_guard lock(network_->mutex_);
  const Large& large = fetched_.at(number);
  if (held_fetched_.bytes() + large.bytes > options_.large_memory_bytes / 2) return {};
  return held_fetched_.Hold(large.data.get(), large.bytes, number, Owner(large.peer),
                            /*lent=*/false);
}

void LocalEndpoint::CollectHeld() {
  if (held_lent_.changed()) held_lent_.Collect([this](uint32_t number) { FreeLent(number); });
  if (held_fetched_.changed()) {
    held_fetched_.Collect([this](uint32_t number) { fetched_.erase(number); });
  }
}

size_t LocalEndpoint::large_out() const {
  std::lock_guard lock(network_->mutex_);
  return lent_.size() + fetched_.size();
}

void LocalEndpoint::set_slow_lending(bool slow) {
  std::lock_guard lock(network_->mutex_);
  slow_lending_ = slow;
}

void LocalEndpoint::set_fail_lending(bool fail) {
  std::lock_guard lock(network_->mutex_);
  fail_lending_ = fail;
}

void LocalEndpoint::FinishLending(const absl::Status& status) {
  std::lock_guard lock(network_->mutex_);
  for (auto& [number, large] : lent_) {
    if (std::exchange(large.known, status.ok())) continue;
    large.failed = !status.ok();
    Event event;
    event.kind = Event::kLent;
    event.peer = large.peer;
    event.number = number;
    event.why = status;
    Post(std::move(event));
  }
}

void LocalEndpoint::set_hold_fetches(bool hold) {
  std::lock_guard lock(network_->mutex_);
  hold_fetches_ = hold;
  if (hold) return;
  for (const auto& [number, fetch] : fetches_) PostFetched(number);
}

void LocalEndpoint::LetFetch(size_t which) {
  std::lock_guard lock(network_->mutex_);
  assert(which < fetches_.size());
  PostFetched(std::next(fetches_.begin(), static_cast<std::ptrdiff_t>(which))->first);
}

void LocalEndpoint::set_fail_fetches(const absl::Status& status) {
  std::lock_guard lock(network_->mutex_);
  fail_fetches_ = status;
}

}  // namespace sluice::local
