// SPDX-License-Identifier: Apache-2.0
//
// Outbox: the send slots of messages to one peer that it has not acknowledged, in the order of sending.
//
// Purpose       A list through one table of links for all peers of an endpoint, with one link for each send slot. A peer costs twelve
//               bytes, and sending a message allocates nothing.
// Ownership     The session of the peer. The table belongs to Sessions.
// Threads       The polling thread.
// Limits        The endpoint's send buffers and the peer's credits.
#ifndef SLUICE_MIDDLEWARE_SESSION_OUTBOX_H_
#define SLUICE_MIDDLEWARE_SESSION_OUTBOX_H_

#include <cstdint>
#include <vector>

namespace sluice::session {

// The links of all lists: for each slot, the slot after it.
class Links {
 public:
  // Creates the link of a slot at its first use.
  void Cover(uint32_t slot) {
    if (slot >= covered_) [[unlikely]]
      Grow(slot);
  }
  // Cover() must have been called for the slot.
  uint32_t& operator[](uint32_t slot) { return next_[slot]; }
  uint32_t operator[](uint32_t slot) const { return next_[slot]; }

 private:
  [[gnu::noinline, gnu::cold]] void Grow(uint32_t slot) {
    covered_ = slot + 1;
    next_.resize(covered_);
  }

  std::vector<uint32_t> next_;
  uint32_t covered_ = 0;  // its size
};

class Outbox {
 public:
  uint32_t size() const { return size_; }
  void PushBack(Links& links, uint32_t slot) {
    links.Cover(slot);
    if (size_++ == 0) {
      first_ = slot;
    } else {
      links[last_] = slot;
    }
    last_ = slot;
  }
  // Call only if the outbox is not empty.
  uint32_t PopFront(const Links& links) {
    const uint32_t slot = first_;
    first_ = links[slot];  // undefined after the last slot; PushBack() sets it
    --size_;
    return slot;
  }
  // Removes the first `count` slots, at most size(), and calls `take(slot)` for each.
  template <typename Take>
  void PopFront(const Links& links, uint32_t count, Take take) {
    uint32_t slot = first_;
    size_ -= count;
    for (; count != 0; --count) {
      const uint32_t next = links[slot];
      take(slot);
      slot = next;
    }
    first_ = slot;
  }
  template <typename Visit>
  void ForEach(const Links& links, Visit visit) const {
    uint32_t slot = first_;
    for (uint32_t i = 0; i < size_; ++i, slot = links[slot]) visit(slot);
  }

 private:
  uint32_t first_ = 0;
  uint32_t last_ = 0;
  uint32_t size_ = 0;
};

}  // namespace sluice::session

#endif  // SLUICE_MIDDLEWARE_SESSION_OUTBOX_H_
