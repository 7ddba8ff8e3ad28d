// SPDX-License-Identifier: Apache-2.0
#include "transport/lane/reader.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "transport/lane/writer.h"

namespace sluice::lane {
namespace {

uint64_t* LastWord(std::byte* end) { return reinterpret_cast<uint64_t*>(end - kStampBytes); }

uint64_t LoadStamp(std::byte* block_end) {
  return std::atomic_ref(*LastWord(block_end)).load(std::memory_order_acquire);
}

}  // namespace

Reader::Reader(const Geometry& geometry, std::byte* memory, uint32_t secret, bool in_order)
    : geometry_(geometry),
      memory_(memory),
      stamp_(LastWord(memory + geometry.slot_bytes)),
      value_(secret),
      left_(geometry.slots),
      first_value_(secret) {
  assert(reinterpret_cast<uintptr_t>(memory) % kBlockBytes == 0 && IsSlotSize(geometry.slot_bytes));
  if (!in_order) announced_.resize(geometry.slots);
  if (in_order && geometry.layout == Layout::kWhole) {
    const uint32_t longest = std::min(geometry.slot_bytes - kStampBytes, kMostPlainBytes);
    plain_lengths_ = longest - kShortest + 1;
  }
}

uint32_t Reader::ReadyAhead(uint32_t most) const {
  most = std::min(most, geometry_.slots);
  const size_t step = geometry_.slot_bytes / kStampBytes;
  const uint64_t* at = stamp_;
  uint32_t to_end = left_;
  uint32_t count = 0;
  while (count < most && Ready(at, value_ + count)) {
    ++count;
    at = --to_end == 0 ? at - step * (geometry_.slots - 1) : at + step;
  }
  return count;
}

bool Reader::Peek(uint32_t ahead, uint32_t offset_bytes, uint32_t* word) const {
  if (geometry_.layout != Layout::kWhole || !announced_.empty() || ahead >= geometry_.slots) {
    return false;
  }
  uint32_t slot = this->slot() + ahead;
  if (slot >= geometry_.slots) slot -= geometry_.slots;
  std::byte* const end = memory_ + size_t{slot + 1} * geometry_.slot_bytes;
  const uint64_t stamp = LoadStamp(end);
  const uint32_t bytes = StampLength(stamp);
  if (StampValue(stamp) != value_ + ahead || bytes > geometry_.slot_bytes ||
      EncodedBytes(Layout::kWhole, bytes) > geometry_.slot_bytes ||
      uint64_t{offset_bytes} + sizeof(*word) > bytes) {
    return false;
  }
  std::memcpy(word, end - EncodedBytes(Layout::kWhole, bytes) + offset_bytes, sizeof(*word));
  return true;
}

Reader::Found Reader::Look(std::byte* to, uint32_t* length_bytes) const {
  const uint64_t stamp = std::atomic_ref(*stamp_).load(std::memory_order_acquire);
  if (StampValue(stamp) != value_ || stamp == kScrubbed) return Found::kNothing;
  if (!announced_.empty() && !announced_[slot()]) return Found::kNothing;
  // The length can be any value, because the sender may be faulty.
  const uint32_t bytes = StampLength(stamp);
  if (bytes == 0 || bytes > geometry_.slot_bytes ||
      EncodedBytes(geometry_.layout, bytes) > geometry_.slot_bytes) {
    return Found::kGarbage;
  }
  *length_bytes = bytes;
  if (geometry_.layout == Layout::kBlocks) return LookAtBlocks(stamp, to);
  std::memcpy(to, slot_end() - kStampBytes - WordsUp(bytes), bytes);
  return Found::kMessage;
}

// Blocks can arrive in any order, so each block's stamp is checked.
Reader::Found Reader::LookAtBlocks(uint64_t stamp, std::byte* to) const {
  const uint32_t padded_bytes = WordsUp(StampLength(stamp));
  std::byte* end = slot_end();
  uint32_t left = padded_bytes;
  while (left != 0) {
    if (LoadStamp(end) != stamp) return Found::kNothing;
    const uint32_t here = left < kBlockPayloadBytes ? left : kBlockPayloadBytes;
    left -= here;
    std::memcpy(to + left, end - kStampBytes - here, here);
    end -= kBlockBytes;
  }
  return Found::kMessage;
}

void Reader::Take() {
  // No later lap may find this stamp, even after values have wrapped.
  std::atomic_ref(*stamp_).store(kScrubbed, std::memory_order_relaxed);
  if (geometry_.layout == Layout::kBlocks) {
    std::byte* const begin = slot_end() - geometry_.slot_bytes;
    for (std::byte* end = slot_end() - kBlockBytes; end != begin; end -= kBlockBytes) {
      std::atomic_ref(*LastWord(end)).store(kScrubbed, std::memory_order_relaxed);
    }
  }
  if (!announced_.empty()) announced_[slot()] = false;
  Next();
}

int32_t Reader::Ahead(uint32_t low_bits) const {
  return static_cast<int32_t>((low_bits - value_) << kLaneBits) >> kLaneBits;
}

bool Reader::Announce(uint32_t low_bits) {
  const int32_t ahead = Ahead(low_bits);
  if (ahead < 0 || static_cast<uint32_t>(ahead) >= geometry_.slots) return false;
  if (!announced_.empty()) {
    announced_[(slot() + static_cast<uint32_t>(ahead)) % geometry_.slots] = true;
  }
  return true;
}

}  // namespace sluice::lane
