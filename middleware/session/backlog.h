// SPDX-License-Identifier: Apache-2.0
//
// Backlog: encoded messages to one peer that wait for a credit, first in, first out.
//
// Purpose       A bounded queue of byte strings. The memory of a place is kept for the next message that waits there, so a queue that has
//               been used before allocates nothing.
// Ownership     The engine that sends to the peer.
// Threads       The polling thread.
// Limits        Messages and bytes, set by the owner. At a limit Push() refuses the message, and the owner decides what to do.
#ifndef SLUICE_MIDDLEWARE_SESSION_BACKLOG_H_
#define SLUICE_MIDDLEWARE_SESSION_BACKLOG_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice::session {

class Backlog {
 public:
  Backlog(uint32_t max_messages, uint64_t max_bytes)
      : max_messages_(max_messages), max_bytes_(max_bytes) {}

  // Appends a message of `size_bytes`, at least 1, and returns its memory, valid until the next Push(). Returns nullptr at a limit.
  std::byte* Push(uint32_t size_bytes);

  bool empty() const { return count_ == 0; }
  uint32_t size() const { return count_; }
  uint64_t size_bytes() const { return bytes_; }

  // Call Front() and Pop() only if the backlog is not empty.
  std::span<const std::byte> Front() const { return ring_[head_]; }
  void Pop();

 private:
  void Grow();

  const uint32_t max_messages_;
  const uint64_t max_bytes_;
  std::vector<std::vector<std::byte>> ring_;  // grows by doubling up to max_messages_
  uint32_t head_ = 0;
  uint32_t count_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace sluice::session

#endif  // SLUICE_MIDDLEWARE_SESSION_BACKLOG_H_
