// SPDX-License-Identifier: Apache-2.0
//
// Traffic: counts the requests that this process posted to its send queues. A program can then check that it used the device at all: many
// programs fall back to shared memory or TCP without a message. Counted at the doorbell, so requests that are flushed later count too.
//
// Threads       TrafficCounter: the holder of its queue's lock. Total: any.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_TRAFFIC_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_TRAFFIC_H_

#include <atomic>
#include <cstdint>

namespace sluice::softdc {

struct Traffic {
  uint64_t requests = 0;
  uint64_t bytes = 0;  // payload; includes the bytes that READs request
  // Returns the sum over all queues of the process, including destroyed queues.
  static Traffic Total();
};

// Counts the requests of one queue.
class TrafficCounter {
 public:
  TrafficCounter();
  ~TrafficCounter();
  TrafficCounter(const TrafficCounter&) = delete;
  TrafficCounter& operator=(const TrafficCounter&) = delete;

  void Add(uint64_t requests, uint64_t bytes) {
    requests_.store(requests_.load(std::memory_order_relaxed) + requests,
                    std::memory_order_relaxed);
    bytes_.store(bytes_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }

 private:
  friend struct Traffic;
  Traffic Get() const {
    return {.requests = requests_.load(std::memory_order_relaxed),
            .bytes = bytes_.load(std::memory_order_relaxed)};
  }
  std::atomic<uint64_t> requests_{0};
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_TRAFFIC_H_
