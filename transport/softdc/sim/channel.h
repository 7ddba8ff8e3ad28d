// SPDX-License-Identifier: Apache-2.0
//
// Channel: the WQEs that a stream of a send queue has to send, in posting order. A queue without streams has
// one channel. A channel uses one target at a time: messages to the same target are in flight together. A
// message to another target starts when all messages before it are answered.
//
//   queue:  [ answered | sent, unanswered | not sent yet ]
//             popped     0 .. sent_         sent_ ..
//
// If a message is lost, not ready or refused at the target, the round ends: the target ignores later messages
// of the round, because their packet numbers do not follow. The next round sends the unanswered messages
// again.
//
// Ownership     Reference-counted. The requester and each message in flight hold a reference, so a channel
//               can outlive its queue.
//
// Threads       One thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_CHANNEL_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/softdc/model/fabric.h"

namespace sluice::softdc::sim {

class SimRequester;
struct Message;

// A queue of sequence numbers that grows as needed.
class SequenceRing {
 public:
  bool empty() const { return head_ == tail_; }
  size_t size() const { return tail_ - head_; }
  uint64_t operator[](size_t index) const { return ring_[(head_ + index) & (ring_.size() - 1)]; }
  uint64_t front() const { return (*this)[0]; }
  void pop_front() { ++head_; }
  void clear() { head_ = tail_ = 0; }
  void push_back(uint64_t sequence) {
    if (size() == ring_.size()) Grow();
    ring_[tail_++ & (ring_.size() - 1)] = sequence;
  }

 private:
  void Grow() {
    std::vector<uint64_t> larger(ring_.empty() ? 8 : ring_.size() * 2);
    const size_t count = size();
    for (size_t i = 0; i < count; ++i) larger[i] = (*this)[i];
    ring_.swap(larger);
    head_ = 0;
    tail_ = count;
  }
  std::vector<uint64_t> ring_;  // size: a power of two
  size_t head_ = 0;
  size_t tail_ = 0;
};

class ChannelPool;

struct Channel {
  ChannelPool* pool = nullptr;
  SimRequester* owner = nullptr;  // null: the queue was reset or destroyed
  uint32_t references = 0;

  SequenceRing queue;
  size_t sent = 0;
  uint32_t in_flight = 0;
  uint32_t reads_in_flight = 0;

  uint32_t round = 0;
  bool broken = false;    // the target ignores further messages of this round
  bool resting = false;   // until an RNR timer ends, or a planned failure is reported
  bool in_line = false;   // waits for its turn on the node's way out
  bool has_turn = false;  // has its turn now
  uint8_t timeouts = 0;   // timeouts in a row of the first message

  bool connected = false;
  NodeId node = kNoNode;
  uint32_t number = 0;

  int64_t last_arrival_ns = 0;  // messages do not overtake each other
  int64_t last_answer_ns = 0;
  Message* waiting_answer = nullptr;  // the last answer that waits for the target's way out
  int64_t landed_ns = 0;              // time when all bytes of earlier messages have landed
  int64_t heard_ns = 0;               // last time at which the target was active
  uint64_t timer = 0;
};

// Owns all channels of a simulation.
class ChannelPool {
 public:
  // Returns a channel with one reference.
  Channel* Take(SimRequester* owner) {
    if (free_.empty()) {
      all_.push_back(std::make_unique<Channel>());
      free_.push_back(all_.back().get());
    }
    Channel* channel = free_.back();
    free_.pop_back();
    *channel = Channel{};
    channel->pool = this;
    channel->owner = owner;
    channel->references = 1;
    return channel;
  }
  static void Unreference(Channel* channel) {
    if (--channel->references == 0) channel->pool->free_.push_back(channel);
  }

 private:
  std::vector<std::unique_ptr<Channel>> all_;
  std::vector<Channel*> free_;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_CHANNEL_H_
