// SPDX-License-Identifier: Apache-2.0
#include "middleware/observe/call_stats.h"

#include <algorithm>

namespace sluice::observe {

uint64_t MethodSnapshot::ended_in_all() const {
  uint64_t sum = 0;
  for (const uint64_t count : ended) sum += count;
  return sum;
}

void MethodStats::CountError(absl::StatusCode code) {
  const auto index = static_cast<uint32_t>(code);
  // A code outside the canonical set is an error of the handler, and is sent as UNKNOWN (server_engine.cc).
  ended_[index < kStatusCodes ? index : static_cast<uint32_t>(absl::StatusCode::kUnknown)].Add();
}

MethodSnapshot MethodStats::Snapshot() const {
  MethodSnapshot snapshot;
  snapshot.method = name_;
  // Reads ends before starts: otherwise a call that starts and ends between the two reads would have an end without a start.
  for (int i = 0; i < kStatusCodes; ++i) snapshot.ended[i] = ended_[i].value();
  snapshot.started = std::max(started_.value(), snapshot.ended_in_all());
  snapshot.request_bytes = request_bytes_.value();
  snapshot.reply_bytes = reply_bytes_.value();
  snapshot.stream_messages_sent = stream_sent_.value();
  snapshot.stream_messages_received = stream_received_.value();
  snapshot.latency_ns = latency_ns_.Copy();
  return snapshot;
}

CallStats::CallStats() : other_(0, kOtherMethods) {}

MethodStats* CallStats::Add(uint64_t id, const char* name, uint32_t place) {
  const uint32_t count = count_.load(std::memory_order_relaxed);
  if (count == kMaxMethods) return &other_;
  methods_[count] = std::make_unique<MethodStats>(id, name);
  places_[place] = {id, methods_[count].get()};
  count_.store(count + 1, std::memory_order_release);
  return places_[place].stats;
}

std::vector<MethodSnapshot> CallStats::Snapshot() const {
  std::vector<MethodSnapshot> snapshots;
  const uint32_t count = count_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    MethodSnapshot snapshot = methods_[i]->Snapshot();
    if (snapshot.started != 0) snapshots.push_back(std::move(snapshot));
  }
  MethodSnapshot other = other_.Snapshot();
  if (other.started != 0) snapshots.push_back(std::move(other));
  return snapshots;
}

}  // namespace sluice::observe
