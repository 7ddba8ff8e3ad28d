// SPDX-License-Identifier: Apache-2.0
//
// Traffic: what the send queues of this process were given to send, for whoever has to know that a
// program used the device at all: many fall back to shared memory or TCP without a word. Counted when a
// doorbell rings, as posted: also what is flushed later.
//
// Thread-safety: a TrafficCounter is written by the holder of its queue's lock; Total may be called from
// any thread at any time.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_TRAFFIC_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_TRAFFIC_H_

#include <atomic>
#include <cstdint>

namespace sluice::softdc {

struct Traffic {
  uint64_t requests = 0;
  uint64_t bytes = 0;  // of payload, those that READs ask for included
  // Of all queues of the process, ended ones included.
  static Traffic Total();
};

// Of one queue.
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
