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
#include <cassert>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "middleware/flow/flow_table.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::flow {

// The flows of the messages in flight, in the order of sending. Messages of one flow that follow each other are one run. Never shrinks.
class UnderWay {
 public:
  struct Run {
    uint32_t index = kNone;  // kNone: messages without data of a flow
    uint32_t generation = 0;
    uint32_t messages = 0;
  };

  void Push(uint32_t index, uint32_t generation) {
    ++messages_;
    if (last_.index != index || last_.generation != generation) Begin(index, generation);
    ++last_.messages;
  }
  // Removes at most `most` messages of the first run, and returns them. Call only if size() and `most` are not 0.
  Run Pop(uint32_t most) {
    Run& first = runs_ == 0 ? last_ : ring_[head_];
    Run popped = first;
    popped.messages = std::min(popped.messages, most);
    assert(popped.messages != 0);
    first.messages -= popped.messages;
    messages_ -= popped.messages;
    if (first.messages == 0 && runs_ != 0) {
      head_ = (head_ + 1) & (ring_.size() - 1);
      --runs_;
    }
    return popped;
  }
  // Returns the number of messages.
  uint32_t size() const { return messages_; }

 private:
  [[gnu::noinline]] void Begin(uint32_t index, uint32_t generation) {
    if (last_.messages != 0) {
      if (runs_ == ring_.size()) Grow();
      ring_[(head_ + runs_++) & (ring_.size() - 1)] = last_;
    }
    last_ = {index, generation, 0};
  }
  void Grow() {
    std::vector<Run> grown(std::max<size_t>(16, ring_.size() * 2));
    for (size_t i = 0; i < runs_; ++i) grown[i] = ring_[(head_ + i) & (ring_.size() - 1)];
    ring_ = std::move(grown);
    head_ = 0;
  }

  Run last_;               // behind those of the ring; may have no messages
  std::vector<Run> ring_;  // each has messages
  size_t head_ = 0;
  size_t runs_ = 0;
  uint32_t messages_ = 0;
};

class Turns {
 public:
  static constexpr std::array<uint32_t, kPriorities> kWeights = {1, 4, 16};

  bool empty() const {
    return std::all_of(lines_.begin(), lines_.end(), [](const Line& line) { return line.empty(); });
  }
  void PushBack(FlowTable& table, uint32_t index) { LineOf(table, index).PushBack(table, index); }
  // For a flow that could not send all its control messages: it keeps its turn.
  void PushFront(FlowTable& table, uint32_t index) { LineOf(table, index).PushFront(table, index); }
  void Remove(FlowTable& table, uint32_t index) { LineOf(table, index).Remove(table, index); }

  // Returns the flow whose turn it is. Call only if not empty().
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
  std::string address;  // "host:port" of Open(), or the source address
  std::string tenant;
  bool inbound = false;
  bool up = false;
  bool blocked = false;      // no credit or buffer: OnWritable() follows
  bool active = false;       // in FlowEngine::active_
  bool ending = false;       // in FlowEngine::ending_: disconnected at the end of the pass
  uint32_t limit_bytes = 0;  // maximum size of a flow's message
  uint32_t eager_bytes = 0;  // maximum size of a message that is not lent
  uint32_t writers = 0;      // flows in line that wait for their turn to send
  uint32_t refusals = 0;     // refused flows whose refusal is not sent yet
  uint32_t acknowledged = 0;
  UnderWay under_way;
  Turns turns;
  FlowList<&Record::of_connection> flows;
};

}  // namespace sluice::flow

#endif  // SLUICE_MIDDLEWARE_FLOW_CONNECTION_H_
