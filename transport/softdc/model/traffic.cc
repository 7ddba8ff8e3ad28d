// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/traffic.h"

#include <mutex>
#include <unordered_set>

namespace sluice::softdc {
namespace {

struct Counters {
  std::mutex mutex;
  std::unordered_set<const TrafficCounter*> open;  // under mutex
  Traffic ended;                                   // under mutex
};

// Outlives static destructors: programs end with their queues open.
Counters& TheCounters() {
  static auto* const counters = new Counters;
  return *counters;
}

}  // namespace

Traffic Traffic::Total() {
  Counters& counters = TheCounters();
  std::lock_guard lock(counters.mutex);
  Traffic total = counters.ended;
  for (const TrafficCounter* counter : counters.open) {
    const Traffic one = counter->Get();
    total.requests += one.requests;
    total.bytes += one.bytes;
  }
  return total;
}

TrafficCounter::TrafficCounter() {
  Counters& counters = TheCounters();
  std::lock_guard lock(counters.mutex);
  counters.open.insert(this);
}

TrafficCounter::~TrafficCounter() {
  Counters& counters = TheCounters();
  std::lock_guard lock(counters.mutex);
  counters.open.erase(this);
  counters.ended.requests += requests_.load(std::memory_order_relaxed);
  counters.ended.bytes += bytes_.load(std::memory_order_relaxed);
}

}  // namespace sluice::softdc
