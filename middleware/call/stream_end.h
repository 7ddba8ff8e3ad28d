// SPDX-License-Identifier: Apache-2.0
//
// StreamEnd: one end of a streaming call: two windows, and the received messages that were not read.
//
// Purpose       Messages may be sent while the window of the other end has room. The window is a cumulative count, so a repeated report of
//               it is harmless. Received messages wait here until they are read; reading makes room. So a reader that does not read
//               stops its own writer and no other. A message counts once for each MiB begun, but at most as half of the smallest window:
//               the messages that were read and not reported are less than the other half. The receiver selects its window
//               (SetWindow()), and reports it to the sender.
// Ownership     A ServerCall, or the caller's stream (middleware/api).
// Threads       The thread that drives the engine.
// Limits        As many messages as the window, of as many MiB together, or an eighth as many larger messages. The memory of a place is
//               kept for the next message if it is small, and until Reset() if there are more than kWindow places.
#ifndef SLUICE_MIDDLEWARE_CALL_STREAM_END_H_
#define SLUICE_MIDDLEWARE_CALL_STREAM_END_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "middleware/frame/frame.h"

namespace sluice::call {

enum class ReadResult : uint8_t {
  kMessage,
  kNothing,    // so far
  kEnd,        // nothing follows
  kMalformed,  // a message that is none of this type; it is gone
};

class StreamEnd {
 public:
  // The smallest window, and what each end may send before it has heard of another.
  static constexpr uint32_t kWindow = frame::kInitialStreamWindow;
  static constexpr uint32_t kMaxWindow = 1u << 16;
  static constexpr size_t kBytesOfOne = 1 << 20;
  // What a message counts as.
  static constexpr uint32_t CostOf(size_t bytes) {
    if (bytes <= kBytesOfOne) return 1;
    if (bytes > kWindow / 2 * kBytesOfOne) return kWindow / 2;
    return static_cast<uint32_t>((bytes + kBytesOfOne - 1) / kBytesOfOne);
  }
  // A peer that grants more than this at once is broken.
  static constexpr uint32_t kMaxGrant = 1u << 20;

  // As new; memory is kept.
  void Reset();
  // Of this end, kWindow to kMaxWindow; before anything has come in.
  void SetWindow(uint32_t window) { window_ = window; }
  uint32_t window() const { return window_; }

  // ---- Sending
  bool HasRoom(size_t bytes) const {
    return static_cast<int32_t>(may_send_ - sent_) >= static_cast<int32_t>(CostOf(bytes));
  }
  void CountSent(size_t bytes) { sent_ += CostOf(bytes); }
  // The window as the peer says it. False: it can't have said that.
  bool Grant(uint32_t total) {
    const uint32_t ahead = total - may_send_;
    if (static_cast<int32_t>(ahead) <= 0) return true;  // an old one
    if (ahead > kMaxGrant) return false;
    may_send_ = total;
    return true;
  }

  // ---- Receiving
  // False: there was no room for it.
  bool Receive(std::span<const std::byte> message);
  // Nothing follows what has come in.
  void SetEnd() { end_ = true; }
  bool end() const { return end_; }
  bool empty() const { return inbox_in_ == inbox_out_; }
  // Messages that have come in and were not read.
  uint32_t unread() const { return inbox_in_ - inbox_out_; }
  // The other end can't send even a small message before this end reads.
  bool full() const { return received_ - read_ >= window_; }
  ReadResult Read(google::protobuf::MessageLite* message);
  // True: half of the window has been read since it was last said.
  bool WindowIsDue() const { return !end_ && read_ + window_ - said_ >= window_ / 2; }
  // To be said in the next message of this end.
  uint32_t SayWindow() { return said_ = read_ + window_; }
  // The other end does not know it, and nothing has been read.
  bool FirstWindowIsDue() const { return window_ != kWindow; }

 private:
  static void Drop(std::string& bytes);
  std::string& Place(uint32_t number) { return inbox_[number % inbox_.size()]; }
  void Grow();

  uint32_t window_ = kWindow;
  uint32_t sent_ = 0;
  uint32_t may_send_ = kWindow;
  uint32_t received_ = 0;
  uint32_t read_ = 0;
  uint32_t said_ = kWindow;
  bool end_ = false;
  // Messages, not what they count as.
  uint32_t inbox_in_ = 0;
  uint32_t inbox_out_ = 0;
  std::vector<std::string>
      inbox_;  // a ring, Place(); 0 places, or a power of two that has been needed
};

// What a message of a stream that is not sent ends its call with, of what the engine's Write() said. There RESOURCE_EXHAUSTED
// means later; over the limit, where it says INVALID_ARGUMENT, the call ends with RESOURCE_EXHAUSTED as one with such a request
// or reply does.
absl::Status WriteFault(const absl::Status& said);

// What a message of the client's stream that is none of the `type` of the method's requests ends its call with: INVALID_ARGUMENT, as a
// request that is not streamed does.
absl::Status ReadFault(const std::string& method, const std::string& type);

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_STREAM_END_H_
