// SPDX-License-Identifier: Apache-2.0
//
// SpanRecorder: records the spans of sampled calls, for viewers of distributed traces.
//
//   auto spans = std::make_shared<sluice::SpanRecorder>(sluice::SpanOptions{.one_in = 1000});
//   channel_options.interceptors = {spans->ForChannels()};
//   server_options.interceptors = {spans->ForServers()};
//   …
//   std::string line = sluice::SpansAsOtlp("orders", spans->Take());   // span_export.h
//
// Purpose       A channel's interceptor records a span for each sampled call. The server's records three: the call, from the arrival of
//               the request until the reply was sent; and within it its wait for the handler, and the handler. A server records the
//               calls whose caller has sampled them (W3C Trace Context, docs/decisions/0036), and does not sample calls itself.
// Ownership     Shared by the program, channels and servers. It may outlive them.
// Threads       Any.
// Limits        `max_spans` spans. When they are reached, further spans are dropped and counted until Take().
// Cost          A call that is not sampled: one search in its metadata. A sampled call: two locks and some allocations.
#ifndef SLUICE_MIDDLEWARE_SERVICES_SPAN_RECORDER_H_
#define SLUICE_MIDDLEWARE_SERVICES_SPAN_RECORDER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "middleware/api/interceptor.h"

namespace sluice {

struct Span {
  enum class Kind { kInternal = 1, kServer = 2, kClient = 3 };  // numbers of OTLP

  std::array<uint64_t, 2> trace_id{};
  uint64_t span_id = 0;
  uint64_t parent_id = 0;  // 0: none
  Kind kind = Kind::kInternal;
  std::string name;  // "package.Service/Method", "wait", "handler"
  std::string peer;  // address of the other side; empty for spans within a call
  int64_t start_unix_ns = 0;
  int64_t end_unix_ns = 0;
  absl::Status status;
};

struct SpanOptions {
  // A channel samples one of this many calls that are not part of a trace. Calls that are part of a trace keep the caller's decision.
  // Range: 0 (none) to 4,294,967,295.
  uint32_t one_in = 100;
  // Maximum number of recorded spans that Take() has not returned. Further spans are dropped. Range: 1 and more.
  size_t max_spans = 10'000;
  // For tests: time since 1970 in ns, and random numbers. Called on any thread. Null: time and random numbers of the system.
  std::function<int64_t()> unix_ns;
  std::function<uint64_t()> random;
};

class SpanRecorder : public std::enable_shared_from_this<SpanRecorder> {
 public:
  explicit SpanRecorder(SpanOptions options = {});
  SpanRecorder(const SpanRecorder&) = delete;
  SpanRecorder& operator=(const SpanRecorder&) = delete;

  // Return interceptors that share the recorder. Put the channel's interceptor last in its list, so that it sees the metadata that other
  // interceptors add. A std::shared_ptr must own the recorder.
  std::shared_ptr<ClientInterceptor> ForChannels();
  std::shared_ptr<ServerInterceptor> ForServers();

  // Removes and returns the recorded spans, in the order of their ends.
  std::vector<Span> Take();
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  class Client;
  class Server;

  int64_t UnixNs() const { return options_.unix_ns(); }
  uint64_t NewId();
  // Returns true if a call that is not part of a trace starts a trace.
  bool Samples();
  void Add(Span span);

  SpanOptions options_;
  std::atomic<uint32_t> calls_{0};
  std::atomic<uint64_t> dropped_{0};
  std::mutex mutex_;
  std::vector<Span> ended_;                          // mutex_
  absl::flat_hash_map<uint64_t, int64_t> handlers_;  // mutex_; start of the handler, by span
  absl::flat_hash_map<uint64_t, uint64_t> parents_;  // mutex_; parent, by span of a channel's call
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_SERVICES_SPAN_RECORDER_H_
