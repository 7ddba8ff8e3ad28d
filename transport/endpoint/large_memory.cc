// SPDX-License-Identifier: Apache-2.0
#include "transport/endpoint/large_memory.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <memory>
#include <utility>

namespace sluice::endpoint {
namespace {

constexpr uint64_t kLeastBytes = 64 << 10;
// A kept buffer that is more than this many times larger than needed is not used.
constexpr uint64_t kWaste = 4;

// Rounds up, so that messages of similar size share buffers. The loss is at most an eighth of `bytes`, or less than kLeastBytes.
uint64_t SizeClass(uint64_t bytes) {
  const uint64_t step = std::max(std::bit_floor(bytes) / 8, kLeastBytes);
  return (bytes + step - 1) / step * step;
}

}  // namespace

LargeMemory::LargeMemory(const verbs::VerbsApi& api, ibv_pd* pd, poller::Commands& commands,
                         uint64_t limit_bytes, int access, User user)
    : api_(api),
      pd_(pd),
      commands_(commands),
      limit_bytes_(limit_bytes),
      access_(access),
      user_(std::move(user)) {}

uint64_t LargeMemory::SizeFor(uint64_t bytes) const {
  return std::min(SizeClass(bytes), limit_bytes_);
}

uint32_t LargeMemory::Take(uint64_t owner, uint64_t bytes, ibv_pd* domain) {
  assert(bytes <= limit_bytes_);
  // Prefers the buffer that was returned last, because most of it may be in the cache.
  for (size_t i = kept_.size(); i-- > 0;) {
    const uint32_t number = kept_[i];
    const Buffer& buffer = buffers_[number];
    const uint64_t size = buffer.slab.size_bytes();
    if (buffer.owner != owner || size < bytes || size / kWaste > std::max(bytes, kLeastBytes) ||
        IsOverShare(owner, size)) {
      continue;
    }
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(i));
    return Count(number);
  }
  const uint64_t size = SizeFor(bytes);
  if (IsOverShare(owner, size)) return kOverShare;
  if (bytes_ + size > limit_bytes_) {
    for (uint64_t gone = 0; !kept_.empty() && bytes_ + size > limit_bytes_ + gone;) {
      gone += buffers_[kept_.front()].slab.size_bytes();
      const uint32_t eldest = kept_.front();
      kept_.pop_front();
      Discard(eldest);
    }
    return kNone;  // there is room when these buffers are freed
  }
  auto slab = memory::Slab::Map(size);
  if (!slab.ok()) {
    last_error_ = slab.status();
    return kFailed;
  }
  uint32_t number = static_cast<uint32_t>(buffers_.size());
  if (free_.empty()) {
    buffers_.emplace_back();
  } else {
    number = free_.back();
    free_.pop_back();
  }
  bytes_ += slab->size_bytes();
  buffers_[number] = {
      .owner = owner, .domain = domain == nullptr ? pd_ : domain, .slab = std::move(*slab)};
  Register(number);
  return Count(number);
}

bool LargeMemory::IsOverShare(uint64_t owner, uint64_t size) const {
  if (owner == kEverybody) return false;
  const auto has = taken_by_.find(owner);
  if (has == taken_by_.end()) return false;
  const uint64_t others = taken_ - has->second;
  return has->second + size > (limit_bytes_ - others) / kShareOfRest;
}

uint32_t LargeMemory::Count(uint32_t number) {
  Buffer& buffer = buffers_[number];
  buffer.taken = true;
  taken_ += buffer.slab.size_bytes();
  taken_by_[buffer.owner] += buffer.slab.size_bytes();
  return number;
}

void LargeMemory::Uncount(Buffer* buffer) {
  if (!std::exchange(buffer->taken, false)) return;
  const uint64_t size = buffer->slab.size_bytes();
  taken_ -= size;
  const auto has = taken_by_.find(buffer->owner);
  has->second -= size;
  if (has->second == 0) taken_by_.erase(has);
}

void LargeMemory::Register(uint32_t number) {
  Buffer& buffer = buffers_[number];
  buffer.state = State::kRegistering;
  auto status = std::make_shared<absl::Status>();
  commands_.Submit([this, slab = &buffer.slab, domain = buffer.domain,
                    status] { *status = slab->Register(api_, domain, access_); },
                   [this, number, &buffer, status] {
                     buffer.state = status->ok() ? State::kReady : State::kFailed;
                     if (buffer.discarded) return Discard(number);
                     if (buffer.revoked) Revoke(number);
                     user_.ready(number, *status);
                   });
}

void LargeMemory::Revoke(uint32_t number) {
  Buffer& buffer = buffers_[number];
  buffer.revoked = true;
  if (buffer.state != State::kReady) return;  // revoked when it is registered
  buffer.state = State::kRevoking;
  commands_.Submit([slab = &buffer.slab] { slab->Unregister(); },
                   [this, number, &buffer] {
                     buffer.state = State::kFailed;
                     if (buffer.discarded) Discard(number);
                   });
}

std::shared_ptr<void> LargeMemory::Abandon(uint32_t number) {
  Buffer& buffer = buffers_[number];
  buffer.slab.Unregister();
  return std::make_shared<memory::Slab>(std::move(buffer.slab));
}

void LargeMemory::Give(uint32_t number) {
  if (buffers_[number].state != State::kReady) return Discard(number);
  Uncount(&buffers_[number]);
  kept_.push_back(number);
  user_.room();
}

void LargeMemory::Discard(uint32_t number) {
  Buffer& buffer = buffers_[number];
  Uncount(&buffer);
  buffer.discarded = true;
  if (buffer.state == State::kRegistering || buffer.state == State::kRevoking) return;
  buffer.state = State::kGoing;
  const uint64_t size = buffer.slab.size_bytes();
  auto slab = std::make_shared<memory::Slab>(std::move(buffer.slab));
  commands_.Submit([slab] { *slab = memory::Slab(); },
                   [this, number, size] {
                     buffers_[number] = Buffer();
                     free_.push_back(number);
                     bytes_ -= size;
                     user_.room();
                   });
}

void LargeMemory::Forget(uint64_t owner) {
  for (size_t i = kept_.size(); i-- > 0;) {
    const uint32_t number = kept_[i];
    if (buffers_[number].owner != owner) continue;
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(i));
    Discard(number);
  }
}

}  // namespace sluice::endpoint
