// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/sim/node.h"

#include <algorithm>

namespace sluice::softdc::sim {

uint32_t NodeNumbers::Allocate(SimPort* holder) {
  constexpr uint32_t kCount = kFirstReserved - kFirst;
  if (reissue_freed_) next_ = kFirst;
  for (uint32_t tries = 0; tries < kCount; ++tries) {
    const uint32_t number = next_;
    next_ = next_ + 1 == kFirstReserved ? kFirst : next_ + 1;
    const uint32_t index = number - kFirst;
    if (index >= holders_.size()) holders_.resize(index + 1, nullptr);
    if (holders_[index] != nullptr) continue;
    holders_[index] = holder;
    return number;
  }
  return kNoNumber;
}

uint32_t NodeNumbers::AllocateReserved() {
  return next_reserved_ == kEnd ? kNoNumber : next_reserved_++;
}

bool NodeNumbers::Free(uint32_t number, const SimPort* holder) {
  if (number < kFirst || HolderOf(number) != holder) return false;
  holders_[number - kFirst] = nullptr;
  return true;
}

void NodeNumbers::BeginLife(bool reissue) {
  std::fill(holders_.begin(), holders_.end(), nullptr);
  if (!reissue) return;
  next_ = kFirst;
  next_reserved_ = kFirstReserved;
}

}  // namespace sluice::softdc::sim
