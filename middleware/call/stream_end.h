// SPDX-License-Identifier: Apache-2.0
//
// StreamEnd: one end of a streaming call: two windows, and the received messages that were not read.
//
// Purpose       Messages may be sent while the window of the other end has room. The window is a cumulative count, so a repeated report of
//               it is harmless. Received messages wait here until they are read; reading makes room. So a reader that does not read
//               stops its own writer and no other. A message counts as one for each MiB begun, and at most as half of the smallest window.
//               So a message of any size can be sent: messages that were read but not reported count less than the other half. The
//               receiver selects its window (SetWindow()), and reports it to the sender.
// Ownership     A ServerCall, or the caller's stream (middleware/api).
// Threads       The thread that drives the engine.
// Limits        Unread messages: as many as the window if each has at most 1 MiB, an eighth as many of any size. A place keeps the memory
//               of a small message for the next message. Reset() frees the places if there are more than kWindow.
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
  kNothing,    // no message so far
  kEnd,        // no message follows
  kMalformed,  // the message is not of this type; it was dropped
};

class StreamEnd {
 public:
  // Minimum window, and window of each end before its first report.
  static constexpr uint32_t kWindow = frame::kInitialStreamWindow;
  static constexpr uint32_t kMaxWindow = 1u << 16;
  static constexpr size_t kBytesOfOne = 1 << 20;
  // Returns the number of messages that a message of this size counts as.
  static constexpr uint32_t CostOf(size_t bytes) {
    if (bytes <= kBytesOfOne) return 1;
    if (bytes > kWindow / 2 * kBytesOfOne) return kWindow / 2;
    return static_cast<uint32_t>((bytes + kBytesOfOne - 1) / kBytesOfOne);
  }
  // Maximum increase of the window in one report. A larger increase is a protocol error.
  static constexpr uint32_t kMaxGrant = 1u << 20;

  // Restores the initial state. Keeps the memory of the places, unless there are more than kWindow.
  void Reset();
  // Sets the window of this end. Range: kWindow to kMaxWindow. Call before the first message is received.
  void SetWindow(uint32_t window) { window_ = window; }
  uint32_t window() const { return window_; }

  // ---- Sending
  bool HasRoom(size_t bytes) const {
    return static_cast<int32_t>(may_send_ - sent_) >= static_cast<int32_t>(CostOf(bytes));
  }
  void CountSent(size_t bytes) { sent_ += CostOf(bytes); }
  // Takes the window from a report of the peer. Returns false if the report is invalid.
  bool Grant(uint32_t total) {
    const uint32_t ahead = total - may_send_;
    if (static_cast<int32_t>(ahead) <= 0) return true;  // an old report
    if (ahead > kMaxGrant) return false;
    may_send_ = total;
    return true;
  }

  // ---- Receiving
  // Stores a received message. Returns false if the window has no room for it, or the stream has ended.
  bool Receive(std::span<const std::byte> message);
  // Ends the stream: no further message will be received.
  void SetEnd() { end_ = true; }
  bool end() const { return end_; }
  bool empty() const { return inbox_in_ == inbox_out_; }
  // Returns the number of messages that were received and not read.
  uint32_t unread() const { return inbox_in_ - inbox_out_; }
  // Returns true if the other end can't send even a small message before this end reads.
  bool full() const { return received_ - read_ >= window_; }
  ReadResult Read(google::protobuf::MessageLite* message);
  // Returns true if half of the window has been read since the last report, and the stream has not ended.
  bool WindowIsDue() const { return !end_ && read_ + window_ - said_ >= window_ / 2; }
  // Returns the window for the next message of this end, and records that it was reported.
  uint32_t SayWindow() { return said_ = read_ + window_; }
  // Returns true if the window must be reported at the start: it is not kWindow, which the other end assumes.
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
  // Numbers of messages, regardless of their sizes.
  uint32_t inbox_in_ = 0;
  uint32_t inbox_out_ = 0;
  std::vector<std::string> inbox_;  // ring, see Place(); its size is 0 or a power of two
};

// Returns the status that ends a call if a message of its stream can't be sent. `said`: error of the engine's Write(). INVALID_ARGUMENT
// (over the limit) becomes RESOURCE_EXHAUSTED, as for a request or reply over the limit. Write() uses RESOURCE_EXHAUSTED for "no room
// now".
absl::Status WriteFault(const absl::Status& said);

// Returns the status that ends a call if a message of the client's stream is not of `type`, the type of the method's requests:
// INVALID_ARGUMENT, as for a request that is not streamed.
absl::Status ReadFault(const std::string& method, const std::string& type);

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_STREAM_END_H_
