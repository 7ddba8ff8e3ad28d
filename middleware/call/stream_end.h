// SPDX-License-Identifier: Apache-2.0
//
// StreamEnd: one end of a streaming call: two windows, and what has come in and was not read.
//
// What it is    Messages may be sent while the other end's window has room; the window is a count of messages in
//               total, cumulative, so that saying it twice does no harm. What comes in waits here until it is read,
//               and reading makes room: a reader that does not read stops its writer, and nobody else.
// Who owns it   A ServerCall, or the caller's stream (middleware/api).
// Which thread  The one that drives its engine.
// Bound         kInitialStreamWindow messages; the memory of a place is kept for the next one.
#ifndef SLUICE_MIDDLEWARE_CALL_STREAM_END_H_
#define SLUICE_MIDDLEWARE_CALL_STREAM_END_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

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
  static constexpr uint32_t kWindow = frame::kInitialStreamWindow;
  // A peer that grants more than this at once is broken.
  static constexpr uint32_t kMaxGrant = 1u << 20;

  // As new; memory is kept.
  void Reset();

  // ---- Sending
  bool HasRoom() const { return static_cast<int32_t>(may_send_ - sent_) > 0; }
  void CountSent() { ++sent_; }
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
  uint32_t unread() const { return received_ - read_; }
  ReadResult Read(google::protobuf::MessageLite* message);
  // True: half of the window has been read since it was last said.
  bool WindowIsDue() const { return !end_ && read_ + kWindow - said_ >= kWindow / 2; }
  // To be said in the next message of this end.
  uint32_t SayWindow() { return said_ = read_ + kWindow; }

 private:
  uint32_t sent_ = 0;
  uint32_t may_send_ = kWindow;
  uint32_t received_ = 0;
  uint32_t read_ = 0;
  uint32_t said_ = kWindow;
  bool end_ = false;
  std::array<std::string, kWindow> inbox_;  // received_ % kWindow is the next place
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_STREAM_END_H_
