// SPDX-License-Identifier: Apache-2.0
//
// WayOut: a node's wire to the network. While the wire is busy, senders wait in a line, and each sends one message per turn, requests and
// answers with data alike. A NIC also takes turns between its queues, but by packets and not by messages.
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
  // take(who, what) is to send one message at the most, by Take(). It may stand in line again.
  struct Turn {
    void (*take)(void* who, void* what) = nullptr;
    void* who = nullptr;
    void* what = nullptr;
  };

  explicit WayOut(EventQueue* clock) : clock_(clock) {}

  // Whether there is a line to stand in.
  bool Busy() const { return !line_.empty() || AheadNs() > kLongAheadNs; }
  void StandInLine(const Turn& turn);
  // When the last bit has left, of a message that takes that long.
  int64_t Take(int64_t wire_ns);

 private:
  static constexpr int64_t kLongAheadNs = 2'000;
  static constexpr int64_t kTurnAheadNs = 1'000;  // given away before the next turn

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
