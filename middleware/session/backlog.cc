// SPDX-License-Identifier: Apache-2.0
#include "middleware/session/backlog.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace sluice::session {

std::byte* Backlog::Push(uint32_t size_bytes) {
  assert(size_bytes > 0);
  if (count_ == max_messages_ || size_bytes > max_bytes_ - bytes_) return nullptr;
  if (count_ == ring_.size()) Grow();
  auto& place = ring_[(head_ + count_) % ring_.size()];
  place.resize(size_bytes);
  ++count_;
  bytes_ += size_bytes;
  return place.data();
}

void Backlog::Pop() {
  assert(count_ > 0);
  bytes_ -= ring_[head_].size();
  head_ = static_cast<uint32_t>((head_ + 1) % ring_.size());
  --count_;
}

void Backlog::Grow() {
  const size_t places = std::min<size_t>(std::max<size_t>(16, ring_.size() * 2), max_messages_);
  std::vector<std::vector<std::byte>> grown(places);
  for (uint32_t i = 0; i < count_; ++i) grown[i] = std::move(ring_[(head_ + i) % ring_.size()]);
  ring_ = std::move(grown);
  head_ = 0;
}

}  // namespace sluice::session
