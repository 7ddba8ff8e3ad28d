// SPDX-License-Identifier: Apache-2.0
//
// Credits: the number of data messages that one side may have in flight to the other. Counters are cumulative modulo 2^32, so a grant that
// is repeated, late or lost is harmless. The receiver enforces the limit (docs/decisions/0046).
//
// Threads       The polling thread.
#ifndef SLUICE_TRANSPORT_PEER_CREDITS_H_
#define SLUICE_TRANSPORT_PEER_CREDITS_H_

#include <algorithm>
#include <cassert>
#include <cstdint>

namespace sluice::peer {

// Right to send to a peer, and what it has acknowledged: a grant is the number of messages that it has
// taken plus its window.
class SendCredits {
 public:
  void Start(uint32_t window) {
    granted_ = window;
    used_ = 0;
  }
  uint32_t available() const { return granted_ - used_; }
  // The caller has looked at available().
  void Use() { ++used_; }
  void Return() { --used_; }

  // Messages that the peer has taken since the start, modulo 2^32; its window is that of Start().
  uint32_t acknowledged(uint32_t window) const { return granted_ - window; }
  // Credits used since the start, modulo 2^32: acknowledged() reaches it when all of them are.
  uint32_t used() const { return used_; }
  // Messages used and not acknowledged.
  uint32_t under_way(uint32_t window) const { return used_ - acknowledged(window); }

  // A cumulative grant from the wire. False: it says nothing new (an old message; harmless), or
  // acknowledges what was never sent (no honest peer does that; ignored).
  bool Grant(uint32_t granted, uint32_t window) {
    if (!IsNews(granted, window)) return false;
    granted_ = granted;
    return true;
  }
  // Grant() would be true.
  bool IsNews(uint32_t granted, uint32_t window) const {
    return granted - granted_ - 1 < under_way(window);
  }
  uint32_t granted() const { return granted_; }

 private:
  uint32_t granted_ = 0;
  uint32_t used_ = 0;
};

// What this side owes a peer: receive buffers that it may fill.
//
// Enforcement   A look takes all completions that are there before any grant is written. So each message of a look was
//               sent under a grant that was written before, and a correct peer's number in one look is bounded.
class ReceiveCredits {
 public:
  // Copies of a message that may lie here at one time: the first, and one for each error of its sender since this side
  // last looked.
  static constexpr uint32_t kMaxCopies = 8;
  static constexpr uint32_t kMaxControl = 64;
  static constexpr uint32_t kMaxWindow = INT16_MAX;

  // `window`: kMaxWindow at most.
  void Start(uint32_t window) {
    assert(window <= kMaxWindow);
    window_ = static_cast<uint16_t>(window);
    consumed_ = 0;
    reported_ = window;
    look_ = 0;
    limit_low_ = Low(reported_);
  }
  uint32_t window() const { return window_; }
  // Data messages taken so far, modulo 2^32: the number of the next one.
  uint32_t consumed() const { return consumed_; }
  // A data message came, and its buffer goes back to the queue.
  void Consumed() { ++consumed_; }
  // It had been counted before.
  void Unconsumed() { --consumed_; }
  // What every outgoing message says; counts as reported.
  uint32_t Report() { return reported_ = consumed_ + window_; }
  // Returns true when the peer has not been told of half of its window: the report then needs a message of its own.
  bool ReportIsDue() const { return consumed_ + window_ - reported_ >= (window() + 1) / 2; }

  // Counts a data message of a look, duplicates included. `look` numbers the looks; never 0. False: over MostData().
  bool DataArrived(uint16_t look) {
    Begin(look);
    return ++data_ <= MostData();
  }
  // Counts a control message of a look. `sent_window`: credits that the peer has granted. False: over MostControl().
  bool ControlArrived(uint16_t look, uint32_t sent_window) {
    Begin(look);
    return ++control_ <= MostControl(sent_window);
  }
  uint32_t MostData() const { return std::min<uint32_t>(window() * kMaxCopies, kMostCounted); }
  // Beside what a peer says by itself: it reports on each copy of a message.
  static uint32_t MostControl(uint32_t sent_window) {
    return std::min<uint32_t>(kMaxControl + sent_window * kMaxCopies, kMostCounted);
  }
  // More new messages have been taken than were granted before the look.
  bool overdrawn() const { return Distance() < 0; }
  // What was granted when the peer's first message of the look came.
  uint32_t limit() const { return consumed_ + static_cast<uint32_t>(int32_t{Distance()}); }
  // The next message did not come by a look: it takes no receive buffer.
  void LeaveLook() { limit_low_ = Low(reported_); }
  // Forgets the number of the last look, which may come again.
  void ForgetLook() { look_ = 0; }

 private:
  static constexpr uint32_t kMostCounted = UINT16_MAX - 1;

  static uint16_t Low(uint32_t count) { return static_cast<uint16_t>(count); }
  // From what was taken to the limit: at most a window, which is below half of 2^16.
  int16_t Distance() const { return static_cast<int16_t>(limit_low_ - Low(consumed_)); }

  void Begin(uint16_t look) {
    if (look_ == look) return;
    look_ = look;
    limit_low_ = Low(reported_);
    data_ = control_ = 0;
  }

  uint32_t consumed_ = 0;
  uint32_t reported_ = 0;
  uint16_t window_ = 0;
  // Of the look: its number, the low half of reported_ at the peer's first message, and the peer's messages.
  uint16_t look_ = 0;
  uint16_t limit_low_ = 0;
  uint16_t data_ = 0;
  uint16_t control_ = 0;
};

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_CREDITS_H_
