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

// Right to send to a peer, and what it has acknowledged: a grant is the number of messages that it has
// taken plus its nominal window.
class SendCredits {
 public:
  void Start(uint32_t window) { Start(window, window); }
  // `in_use`: at most `window`, which is at most kMaxNominal.
  void Start(uint32_t window, uint32_t in_use) {
    granted_ = window;
    used_ = 0;
    Resize(window, in_use);
  }
  // Another window is in use from now on. 0: none.
  void Resize(uint32_t window, uint32_t in_use) {
    assert(in_use <= window && window <= kMaxNominal);
    held_back_ = static_cast<uint16_t>(window - in_use);
  }
  uint32_t window(uint32_t nominal) const { return nominal - held_back_; }
  uint32_t available() const {
    return static_cast<uint32_t>(std::max(static_cast<int32_t>(limit() - used_), 0));
  }
  // Credits that may be used since the start, modulo 2^32. Below used() after a window with messages under way was
  // returned.
  uint32_t limit() const { return granted_ - held_back_; }
  // The caller has looked at available().
  void Use() { ++used_; }
  void Return() { --used_; }

  // Messages that the peer has taken since the start, modulo 2^32; its nominal window is that of Start().
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

  static constexpr uint32_t kMaxNominal = INT16_MAX;

 private:
  uint32_t granted_ = 0;
  uint32_t used_ = 0;
  uint16_t held_back_ = 0;  // the nominal window less the one in use
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

  // `in_use`: kMaxWindow at most.
  void Start(uint32_t in_use) {
    consumed_ = 0;
    reported_low_ = 0;
    look_ = 0;
    data_ = control_ = 0;
    Resize(in_use);
    limit_low_ = Limit();
  }
  // Another window is in use from now on. 0: none. Bounds messages of the next look, not those of this one.
  void Resize(uint32_t in_use) {
    assert(in_use <= kMaxWindow);
    window_ = static_cast<uint16_t>(in_use);
  }
  // The window in use.
  uint32_t window() const { return window_; }
  // Data messages taken so far, modulo 2^32: the number of the next one.
  uint32_t consumed() const { return consumed_; }
  // A data message came, and its buffer goes back to the queue.
  void Consumed() { ++consumed_; }
  // It had been counted before.
  void Unconsumed() { --consumed_; }
  // What every outgoing message says; counts as reported.
  uint32_t Report(uint32_t nominal) {
    reported_low_ = Low(consumed_);
    return consumed_ + nominal;
  }
  // Messages were taken since the last report, which may have been lost.
  bool unreported() const { return Low(consumed_) != reported_low_; }
  // Half of the window in use has come back and the peer does not know: time for a message of its own.
  bool ReportIsDue() const { return Low(consumed_ - reported_low_) >= (window() + 1) / 2; }

  // Counts a data message of a look, duplicates included. `look` numbers the looks; never 0. `nominal`: the window that bounds what
  // the peer may have to repeat, whatever is in use. False: over MostData().
  bool DataArrived(uint16_t look, uint32_t nominal) {
    Begin(look);
    return ++data_ <= MostData(nominal);
  }
  // Counts a control message of a look. `sent_window`: credits that the peer has granted. False: over MostControl().
  bool ControlArrived(uint16_t look, uint32_t sent_window) {
    Begin(look);
    return ++control_ <= MostControl(sent_window);
  }
  static uint32_t MostData(uint32_t nominal) {
    return std::min<uint32_t>(nominal * kMaxCopies, kMostCounted);
  }
  // Beside what a peer says by itself: it reports on each copy of a message.
  static uint32_t MostControl(uint32_t sent_window) {
    return std::min<uint32_t>(kMaxControl + sent_window * kMaxCopies, kMostCounted);
  }
  // More new messages have been taken than were granted before the look.
  bool overdrawn() const { return Distance() < 0; }
  // What was granted when the peer's first message of the look came.
  uint32_t limit() const { return consumed_ + static_cast<uint32_t>(int32_t{Distance()}); }
  // The next message did not come by a look: it takes no receive buffer.
  void LeaveLook() { limit_low_ = Limit(); }
  // Forgets the number of the last look, which may come again.
  void ForgetLook() { look_ = 0; }
  // As if a message of the peer had come in this look. 0: no effect.
  void Touch(uint16_t look) {
    if (look != 0) Begin(look);
  }
  // The last look that had a message of the peer, or Touch(); 0: none since ForgetLook().
  uint16_t last_look() const { return look_; }

 private:
  static constexpr uint32_t kMostCounted = UINT16_MAX - 1;

  static uint16_t Low(uint32_t count) { return static_cast<uint16_t>(count); }
  uint16_t Limit() const { return Low(uint32_t{reported_low_} + window_); }
  // From what was taken to the limit: at most a window, which is below half of 2^16.
  int16_t Distance() const { return static_cast<int16_t>(limit_low_ - Low(consumed_)); }

  void Begin(uint16_t look) {
    if (look_ == look) return;
    look_ = look;
    limit_low_ = Limit();
    data_ = control_ = 0;
  }

  uint32_t consumed_ = 0;
  uint16_t reported_low_ = 0;  // the low half of consumed_, when it was last reported
  uint16_t window_ = 0;        // in use
  // Of the look: its number, the low half of what was granted at the peer's first message, and the peer's messages.
  uint16_t look_ = 0;
  uint16_t limit_low_ = 0;
  uint16_t data_ = 0;
  uint16_t control_ = 0;
};

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_CREDITS_H_
