// SPDX-License-Identifier: Apache-2.0
//
// Ledger: what must come true of a run: for each end of each connection what was sent, and what was delivered where. It
// judges each message as it is delivered, and everything else in sweeps and at the end.
//
//   Up -> end of a connection -> Sent, Delivered, Acknowledged ... -> Down
//
// The two ends of a connection know each other by the first message that was delivered: from then on each delivers
// messages of the other only. The names of what is broken are those of the design's invariants.
#ifndef SLUICE_TESTS_SIMULATION_LEDGER_H_
#define SLUICE_TESTS_SIMULATION_LEDGER_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace sluice::simulation {

inline constexpr uint32_t kNoEnd = 0xffffffff;

struct Violation {
  std::string invariant;
  std::string what;
  uint32_t node = 0;
  uint32_t peer = 0;
};

class Ledger {
 public:
  explicit Ledger(uint32_t nodes) : nodes_(nodes), pairs_(size_t{nodes} * nodes) {}

  // A connection of `node` with a process on `peer` is up. Ends are never used again.
  uint32_t Up(uint32_t node, uint32_t peer);
  // The number of the message within its end.
  uint32_t Sent(uint32_t end) {
    ++total_sent_;
    return ends_[end].sent++;
  }
  // The end of the receiver, and what the message says: whose it is, which one.
  void Delivered(uint32_t end, uint32_t from, uint32_t number);
  void Acknowledged(uint32_t end, uint32_t total);
  // `announced`: the program itself wanted it.
  void Down(uint32_t end, const std::string& why, bool announced);
  // A connect did not come to anything.
  void NotUp(uint32_t node, uint32_t peer) { ExcuseLiving(peer, node); }

  // Something happens that may cost `node` its connections with `peer`, until it is over.
  void BeginTrouble(uint32_t node, uint32_t peer);
  void EndTrouble(uint32_t node, uint32_t peer);

  // What holds at any time.
  void Sweep();
  // Everything that was sent to somebody who is up has been delivered and acknowledged.
  bool AllArrived() const;
  // What has not is a violation.
  void BreakMissing();
  // Some end of `node` with `peer` is up, and has its counterpart.
  bool Connected(uint32_t node, uint32_t peer) const;

  void Break(std::string invariant, std::string what, uint32_t node, uint32_t peer);
  const std::vector<Violation>& violations() const { return violations_; }
  uint64_t sent() const { return total_sent_; }
  uint64_t delivered() const { return delivered_; }
  uint64_t downs() const { return downs_; }
  // Some connection of the node has gone down.
  bool lost_peers(uint32_t node) const {
    return std::any_of(ends_.begin(), ends_.end(),
                       [node](const End& end) { return end.node == node && !end.up; });
  }
  // Messages from the one to the other, of all times.
  uint32_t acknowledged_between(uint32_t node, uint32_t peer) const {
    return Pair(node, peer).acknowledged;
  }

 private:
  struct End {
    uint32_t node = 0;
    uint32_t peer = 0;
    uint32_t other = kNoEnd;
    uint32_t sent = 0;
    uint32_t delivered = 0;     // here, of the other's
    uint32_t acknowledged = 0;  // of what was sent
    bool up = true;
    bool excused = false;  // it may go down
  };
  struct PairState {
    uint32_t troubles = 0;
    uint32_t acknowledged = 0;
    std::vector<uint32_t> living;  // ends of the first node
  };
  const PairState& Pair(uint32_t node, uint32_t peer) const {
    return pairs_[size_t{node} * nodes_ + peer];
  }
  PairState& Pair(uint32_t node, uint32_t peer) { return pairs_[size_t{node} * nodes_ + peer]; }
  void ExcuseLiving(uint32_t node, uint32_t peer);
  void CheckEnd(const End& end);
  bool IsMissing(const End& end) const;

  const uint32_t nodes_;
  std::deque<End> ends_;
  std::vector<PairState> pairs_;
  std::vector<Violation> violations_;
  uint64_t total_sent_ = 0;
  uint64_t delivered_ = 0;
  uint64_t downs_ = 0;
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_LEDGER_H_
