// SPDX-License-Identifier: Apache-2.0
//
// Credits: how many data messages one side may have at the other. Counters are cumulative modulo
// 2^32, so a grant that comes twice, late or not at all does no harm.
#ifndef SLUICE_TRANSPORT_PEER_CREDITS_H_
#define SLUICE_TRANSPORT_PEER_CREDITS_H_

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
  // Messages used and not acknowledged.
  uint32_t under_way(uint32_t window) const { return used_ - acknowledged(window); }

  // A cumulative grant from the wire. False: it says nothing new (an old message; harmless), or
  // acknowledges what was never sent (no honest peer does that; ignored).
  bool Grant(uint32_t granted, uint32_t window) {
    const uint32_t ahead = granted - granted_;
    if (ahead == 0 || ahead > under_way(window)) return false;
    granted_ = granted;
    return true;
  }

 private:
  uint32_t granted_ = 0;
  uint32_t used_ = 0;
};

// What this side owes a peer: receive buffers that it may fill.
class ReceiveCredits {
 public:
  void Start(uint32_t window) {
    window_ = window;
    consumed_ = 0;
    reported_ = window;
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
  // Half of the window has come back and the peer does not know: time for a message of its own.
  bool ReportIsDue() const { return consumed_ + window_ - reported_ >= (window_ + 1) / 2; }

 private:
  uint32_t window_ = 0;
  uint32_t consumed_ = 0;
  uint32_t reported_ = 0;
};

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_CREDITS_H_
