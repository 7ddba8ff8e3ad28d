// SPDX-License-Identifier: Apache-2.0
//
// Connection: state of a FlowEngine for one peer: its flows, the flows that wait for it, and the flow of each message that the peer has
// not acknowledged.
//
// Ownership     FlowEngine, from Connect() or OnPeerUp() until the peer is down.
// Threads       The polling thread.
// Order         Flows with messages wait in one line for each priority. The next flow is of the highest priority that has quota left.
//               Each message takes one off the quota. When no waiting priority has quota left, all get their quota again.
#ifndef SLUICE_MIDDLEWARE_FLOW_CONNECTION_H_
#define SLUICE_MIDDLEWARE_FLOW_CONNECTION_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "middleware/flow/flow_table.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::flow {

// The flows of the messages under way, in the order of sending. Grows to the peer's credits, once.
class UnderWay {
 public:
  struct Entry {
    uint32_t index = kNone;  // kNone: not a flow's data
    uint32_t generation = 0;
  };

  void Push(Entry entry) {
    if (count_ == ring_.size()) Grow();
    ring_[(head_ + count_++) & (ring_.size() - 1)] = entry;
  }
  // Not when empty.
  Entry Pop() {
    const Entry entry = ring_[head_];
    head_ = (head_ + 1) & (ring_.size() - 1);
    --count_;
    return entry;
  }
  size_t size() const { return count_; }

 private:
  void Grow() {
    std::vector<Entry> grown(std::max<size_t>(16, ring_.size() * 2));
    for (size_t i = 0; i < count_; ++i) grown[i] = ring_[(head_ + i) & (ring_.size() - 1)];
    ring_ = std::move(grown);
    head_ = 0;
  }

  std::vector<Entry> ring_;
  size_t head_ = 0;
  size_t count_ = 0;
};

class Turns {
 public:
  static constexpr std::array<uint32_t, kPriorities> kWeights = {1, 4, 16};

  bool empty() const {
    return std::all_of(lines_.begin(), lines_.end(), [](const Line& line) { return line.empty(); });
  }
  void PushBack(FlowTable& table, uint32_t index) { LineOf(table, index).PushBack(table, index); }
  // It could not say all it had to: its turn is still to come.
  void PushFront(FlowTable& table, uint32_t index) { LineOf(table, index).PushFront(table, index); }
  void Remove(FlowTable& table, uint32_t index) { LineOf(table, index).Remove(table, index); }

  // Whose turn it is; not when empty.
  uint32_t Next() {
    for (;;) {
      for (int i = kPriorities - 1; i >= 0; --i) {
        if (!lines_[i].empty() && quota_[i] > 0) return lines_[i].first();
      }
      quota_ = kWeights;
    }
  }
  uint32_t quota(Priority priority) const { return quota_[static_cast<int>(priority)]; }
  void Charge(Priority priority, uint32_t messages) {
    uint32_t& quota = quota_[static_cast<int>(priority)];
    quota -= std::min(quota, messages);
  }

 private:
  using Line = FlowList<&Record::in_line>;
  Line& LineOf(const FlowTable& table, uint32_t index) {
    return lines_[static_cast<int>(table[index].priority)];
  }

  std::array<Line, kPriorities> lines_;
  std::array<uint32_t, kPriorities> quota_ = kWeights;
};

struct Connection {
  endpoint::PeerId peer;
  std::string address;  // "host:port" as asked for, or the source address
  std::string tenant;
  bool inbound = false;
  bool up = false;
  bool blocked = false;  // no credit or buffer: OnWritable() follows
  bool active = false;   // in the engine's list of those that have something to do
  bool ending =
      false;  // in the engine's list of those that are disconnected at the end of the pass
  uint32_t limit_bytes = 0;  // of a flow's message
  uint32_t eager_bytes = 0;  // of the same if it is not lent
  uint32_t writers = 0;      // flows in line that wait for their turn to send
  uint32_t refusals = 0;     // of its flows, that are not said yet
  uint32_t acknowledged = 0;
  UnderWay under_way;
  Turns turns;
  FlowList<&Record::of_connection> flows;
};

}  // namespace sluice::flow

#endif  // SLUICE_MIDDLEWARE_FLOW_CONNECTION_H_
