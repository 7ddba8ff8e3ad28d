// SPDX-License-Identifier: Apache-2.0
//
// WayOut: a node's wire to the network. While the wire is busy, senders wait in a queue. Each sends one
// message per turn, both requests and answers with data. A NIC also takes turns between its queues, but by
// packets and not by messages.
//
// Ownership     Node.
// Threads       One thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_WAY_OUT_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_WAY_OUT_H_

#include <cstdint>
#include <deque>

#include "transport/softdc/sim/event_queue.h"

namespace sluice::softdc::sim {

class WayOut {
 public:
  // take(who, what) must send at most one message, by Take(). It may call StandInLine again.
  struct Turn {
    void (*take)(void* who, void* what) = nullptr;
    void* who = nullptr;
    void* what = nullptr;
  };

  explicit WayOut(EventQueue* clock) : clock_(clock) {}

  // Returns whether a sender must wait for its turn.
  bool Busy() const { return !line_.empty() || AheadNs() > kLongAheadNs; }
  void StandInLine(const Turn& turn);
  // Occupies the wire for `wire_ns`. Returns the time at which the last bit leaves.
  int64_t Take(int64_t wire_ns);

 private:
  static constexpr int64_t kLongAheadNs = 2'000;
  static constexpr int64_t kTurnAheadNs = 1'000;  // wire time assigned ahead before the next turn

  static void Fire(void* self, uint64_t);
  int64_t AheadNs() const { return free_ns_ - clock_->now_ns(); }
  void Serve();
  void OnTime();

  EventQueue* const clock_;
  int64_t free_ns_ = 0;
  std::deque<Turn> line_;
  bool scheduled_ = false;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_WAY_OUT_H_
