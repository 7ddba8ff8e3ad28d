// SPDX-License-Identifier: Apache-2.0
//
// CallStats: counters of the calls of one engine, by method.
//
// Purpose       For each method: calls started, calls ended by status code, bytes, messages of streams, and a histogram of latencies.
//               Engines count into MethodStats. Snapshot() reads them at the same time.
// Ownership     The engine.
// Threads       Of() and all counting: the engine's. Snapshot(): any.
// Limits        kMaxMethods by name. All further methods are counted together, as kOtherMethods. A method takes 2.8 KB, allocated
//               with its first call.
#ifndef SLUICE_MIDDLEWARE_OBSERVE_CALL_STATS_H_
#define SLUICE_MIDDLEWARE_OBSERVE_CALL_STATS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "transport/base/live_histogram.h"
#include "transport/base/tally.h"

namespace sluice::observe {

inline constexpr int kStatusCodes = 17;  // absl::StatusCode, 0 to 16
inline constexpr char kOtherMethods[] = "other";

// Counters of one method. They are read one after another while calls continue, so they may differ by the calls of that
// moment.
struct MethodSnapshot {
  std::string method;  // "/package.Service/Method", or kOtherMethods
  uint64_t started = 0;
  std::array<uint64_t, kStatusCodes> ended{};  // by absl::StatusCode
  uint64_t request_bytes = 0;  // payload and metadata, without headers and without streams
  uint64_t reply_bytes = 0;
  uint64_t stream_messages_sent = 0;
  uint64_t stream_messages_received = 0;
  // Client: time from the start to the end of calls that were answered, cancelled or timed out. Server: time from the poll
  // pass that took the request to the doorbell that sends the reply. If calls follow back to back, only a sample is timed,
  // and each sample counts for several calls (docs/decisions/0033). So count() is the approximate number of calls.
  base::HistogramCopy latency_ns;

  uint64_t ended_in_all() const;
  uint64_t in_flight() const { return started - ended_in_all(); }
};

class MethodStats {
 public:
  MethodStats(uint64_t id, std::string_view name) : id_(id), name_(name) {}

  void CountStart() { started_.Add(); }
  void CountOk() { ended_[0].Add(); }
  void CountEnd(const absl::Status& status) { status.ok() ? CountOk() : CountError(status.code()); }
  void CountError(absl::StatusCode code);
  void CountRequestBytes(uint64_t bytes) { request_bytes_.Add(bytes); }
  void CountReplyBytes(uint64_t bytes) { reply_bytes_.Add(bytes); }
  void CountStreamSent() { stream_sent_.Add(); }
  void CountStreamReceived() { stream_received_.Add(); }
  void RecordLatency(int64_t ns, uint32_t times) { latency_ns_.Record(ns, times); }

  uint64_t id() const { return id_; }  // the method's number
  const std::string& name() const { return name_; }
  MethodSnapshot Snapshot() const;

 private:
  const uint64_t id_;
  const std::string name_;
  base::Tally started_;
  std::array<base::Tally, kStatusCodes> ended_;
  base::Tally request_bytes_;
  base::Tally reply_bytes_;
  base::Tally stream_sent_;
  base::Tally stream_received_;
  base::LiveHistogram latency_ns_;
};

class CallStats {
 public:
  static constexpr uint32_t kMaxMethods = 64;

  CallStats();
  CallStats(const CallStats&) = delete;
  CallStats& operator=(const CallStats&) = delete;

  // Returns the counters of a method; valid as long as this object. Creates them at first use. `id`: the method's number.
  MethodStats* Of(uint64_t id, const char* name) {
    if (id == last_.id) return last_.stats;
    for (uint32_t i = Home(id);; i = (i + 1) % kPlaces) {
      if (places_[i].stats == nullptr) return Add(id, name, i);
      if (places_[i].id == id) return (last_ = places_[i]).stats;
    }
  }

  // Returns all methods that have calls, in the order of their first Of(), then kOtherMethods.
  std::vector<MethodSnapshot> Snapshot() const;

 private:
  static constexpr uint32_t kPlaces = 2 * kMaxMethods;
  struct Place {
    uint64_t id = 0;
    MethodStats* stats = nullptr;
  };

  static uint32_t Home(uint64_t id) { return static_cast<uint32_t>(id >> 32) % kPlaces; }
  MethodStats* Add(uint64_t id, const char* name, uint32_t place);

  MethodStats other_;
  std::array<Place, kPlaces> places_;
  Place last_{0, &other_};                                         // the last place that Of() found
  std::array<std::unique_ptr<MethodStats>, kMaxMethods> methods_;  // [0, count_) do not change
  std::atomic<uint32_t> count_{0};
};

}  // namespace sluice::observe

#endif  // SLUICE_MIDDLEWARE_OBSERVE_CALL_STATS_H_
