// SPDX-License-Identifier: Apache-2.0
//
// Credits: the number of data messages that one side may have in flight to the other. Counters are cumulative modulo 2^32, so a grant that
// is repeated, late or lost is harmless. The receiver enforces the limit (docs/decisions/0046).
//
// Two windows   The *nominal* window is a constant of the connection: a grant is the number of messages taken plus the nominal window. The
//               window *in use* is the number of receive buffers that are promised now: at most the nominal window, and 0 for a peer
//               without a window (docs/decisions/0067). Callers keep the nominal window, and pass it.
// Threads       The polling thread.
#ifndef SLUICE_TRANSPORT_PEER_CREDITS_H_
#define SLUICE_TRANSPORT_PEER_CREDITS_H_

#include <algorithm>
#include <cassert>
#include <cstdint>

namespace sluice::peer {

// Credits for sending to a peer, and the number of messages that the peer has acknowledged. A grant is the number of messages that the peer
// has taken plus its nominal window.
class SendCredits {
 public:
  void Start(uint32_t window) { Start(window, window); }
  // `in_use`: at most `window`, which is at most kMaxNominal.
  void Start(uint32_t window, uint32_t in_use) {
    granted_ = window;
    used_ = 0;
    Resize(window, in_use);
  }
  // Changes the window in use. 0: no window.
  void Resize(uint32_t window, uint32_t in_use) {
    assert(in_use <= window && window <= kMaxNominal);
    held_back_ = static_cast<uint16_t>(window - in_use);
  }
  uint32_t window(uint32_t nominal) const { return nominal - held_back_; }
  uint32_t available() const {
    return static_cast<uint32_t>(std::max(static_cast<int32_t>(limit() - used_), 0));
  }
  // Returns the number of credits that may be used since the start, modulo 2^32. It is below used() if a window was returned while
  // messages were in flight.
  uint32_t limit() const { return granted_ - held_back_; }
  // Uses a credit. The caller has checked available().
  void Use() { ++used_; }
  void Return() { --used_; }

  // Returns the number of messages that the peer has taken since the start, modulo 2^32. `window`: the nominal window of Start().
  uint32_t acknowledged(uint32_t window) const { return granted_ - window; }
  // Returns the number of credits used since the start, modulo 2^32. acknowledged() reaches it when all messages are acknowledged.
  uint32_t used() const { return used_; }
  // Returns the number of messages that are sent and not acknowledged.
  uint32_t under_way(uint32_t window) const { return used_ - acknowledged(window); }

  // Applies a cumulative grant from the wire. Returns false and ignores the grant if it is old (harmless), or if it acknowledges messages
  // that were never sent (no correct peer does this).
  bool Grant(uint32_t granted, uint32_t window) {
    if (!IsNews(granted, window)) return false;
    granted_ = granted;
    return true;
  }
  // Returns whether Grant() would return true.
  bool IsNews(uint32_t granted, uint32_t window) const {
    return granted - granted_ - 1 < under_way(window);
  }
  uint32_t granted() const { return granted_; }

  static constexpr uint32_t kMaxNominal = INT16_MAX;

 private:
  uint32_t granted_ = 0;
  uint32_t used_ = 0;
  uint16_t held_back_ = 0;  // nominal window minus window in use
};

// Receive buffers of this side that a peer may fill.
//
// Enforcement   A look takes all pending completions before any grant is written. So each message of a look was sent under a
//               grant that was written before the look. This limits the messages of a correct peer in one look.
class ReceiveCredits {
 public:
  // Maximum number of copies of a message in the receive buffers at one time. Besides the first copy, there is one for each error of the
  // sender since the last look of this side.
  static constexpr uint32_t kMaxCopies = 8;
  static constexpr uint32_t kMaxControl = 64;
  static constexpr uint32_t kMaxWindow = INT16_MAX;

  // `in_use`: kMaxWindow at most.
  void Start(uint32_t in_use) {
    consumed_ = 0;
    reported_low_ = 0;
    look_ = 0;
    data_ = control_ = 0;
    Resize(in_use);
    limit_low_ = Limit();
  }
  // Changes the window in use. 0: no window. Limits messages of the next look, not messages of this look.
  void Resize(uint32_t in_use) {
    assert(in_use <= kMaxWindow);
    window_ = static_cast<uint16_t>(in_use);
  }
  // Returns the window in use.
  uint32_t window() const { return window_; }
  // Returns the number of data messages taken so far, modulo 2^32, which is also the number of the next message.
  uint32_t consumed() const { return consumed_; }
  // Counts a data message whose buffer returns to the queue.
  void Consumed() { ++consumed_; }
  // Reverses Consumed() for a message that had been counted before.
  void Unconsumed() { --consumed_; }
  // Returns the grant for an outgoing message, and notes it as reported.
  uint32_t Report(uint32_t nominal) {
    reported_low_ = Low(consumed_);
    return consumed_ + nominal;
  }
  // Returns whether messages were taken since the last report. That report may have been lost.
  bool unreported() const { return Low(consumed_) != reported_low_; }
  // Returns whether half of the window in use was taken and not reported. Then the report needs a message of its own.
  bool ReportIsDue() const { return Low(consumed_ - reported_low_) >= (window() + 1) / 2; }

  // Counts a data message of a look, including duplicates. `look`: number of the look, never 0. `nominal`: nominal window, which limits the
  // messages that the peer may have to retransmit, independent of the window in use. Returns false above MostData().
  bool DataArrived(uint16_t look, uint32_t nominal) {
    Begin(look);
    return ++data_ <= MostData(nominal);
  }
  // Counts a control message of a look. `sent_window`: credits that the peer has granted. Returns false above MostControl().
  bool ControlArrived(uint16_t look, uint32_t sent_window) {
    Begin(look);
    return ++control_ <= MostControl(sent_window);
  }
  static uint32_t MostData(uint32_t nominal) {
    return std::min<uint32_t>(nominal * kMaxCopies, kMostCounted);
  }
  // Allows kMaxControl messages, and in addition one report for each copy of a message.
  static uint32_t MostControl(uint32_t sent_window) {
    return std::min<uint32_t>(kMaxControl + sent_window * kMaxCopies, kMostCounted);
  }
  // Returns whether more new messages were taken than were granted before the look.
  bool overdrawn() const { return Distance() < 0; }
  // Returns the limit that was granted when the peer's first message of the look arrived.
  uint32_t limit() const { return consumed_ + static_cast<uint32_t>(int32_t{Distance()}); }
  // Prepares for a message that does not arrive by a look and takes no receive buffer.
  void LeaveLook() { limit_low_ = Limit(); }
  // Clears the number of the last look, because the number may be used again.
  void ForgetLook() { look_ = 0; }
  // Has the effect of a message of the peer in this look. 0: no effect.
  void Touch(uint16_t look) {
    if (look != 0) Begin(look);
  }
  // Returns the last look that had a message of the peer or a Touch(), or 0 if there was none since ForgetLook().
  uint16_t last_look() const { return look_; }

 private:
  static constexpr uint32_t kMostCounted = UINT16_MAX - 1;

  static uint16_t Low(uint32_t count) { return static_cast<uint16_t>(count); }
  uint16_t Limit() const { return Low(uint32_t{reported_low_} + window_); }
  // Returns the distance from consumed_ to the limit: at most a window, which is below half of 2^16.
  int16_t Distance() const { return static_cast<int16_t>(limit_low_ - Low(consumed_)); }

  void Begin(uint16_t look) {
    if (look_ == look) return;
    look_ = look;
    limit_low_ = Limit();
    data_ = control_ = 0;
  }

  uint32_t consumed_ = 0;
  uint16_t reported_low_ = 0;  // low half of consumed_ at the last report
  uint16_t window_ = 0;        // window in use
  // Of the last look: its number, the low half of the limit at the peer's first message, and the numbers of the peer's messages.
  uint16_t look_ = 0;
  uint16_t limit_low_ = 0;
  uint16_t data_ = 0;
  uint16_t control_ = 0;
};

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_CREDITS_H_
