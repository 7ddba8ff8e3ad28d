// SPDX-License-Identifier: Apache-2.0
#include "tools/cache_line_round_trip.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tools/sluice_perf_options.h"
#include "transport/base/clock.h"
#include "transport/base/error.h"
#include "transport/base/histogram.h"

namespace sluice::tools {
namespace {

constexpr int kRoundTripsPerSample = 8;  // one reading of the clock for so many
constexpr int kWindows = 20;
constexpr uint64_t kEnd = UINT64_MAX;

struct alignas(128) Line {
  std::atomic<uint64_t> sequence = 0;
};

struct Lines {
  Line to_server;
  Line to_client;
};

void Serve(Lines* lines) {
  for (uint64_t next = 1;;) {
    const uint64_t sequence = lines->to_server.sequence.load(std::memory_order_acquire);
    if (sequence == kEnd) return;
    if (sequence != next) continue;
    lines->to_client.sequence.store(next++, std::memory_order_release);
  }
}

// The lowest median of several windows, in picoseconds, so that a sample's eighth of a nanosecond counts: while another program has
// one of the CPUs, nothing can be measured.
int64_t Ask(Lines* lines, absl::Duration duration) {
  base::RealClock clock;
  int64_t lowest_ps = INT64_MAX;
  uint64_t sequence = 0;
  int64_t before_ns = clock.NowNs();
  for (int window = 0; window < kWindows; ++window) {
    base::Histogram samples_ps;
    const int64_t end_ns = before_ns + absl::ToInt64Nanoseconds(duration) / kWindows;
    while (before_ns < end_ns || samples_ps.count() == 0) {
      for (int i = 0; i < kRoundTripsPerSample; ++i) {
        lines->to_server.sequence.store(++sequence, std::memory_order_release);
        while (lines->to_client.sequence.load(std::memory_order_acquire) != sequence) {
        }
      }
      const int64_t now_ns = clock.NowNs();
      samples_ps.Record((now_ns - before_ns) * (1000 / kRoundTripsPerSample));
      before_ns = now_ns;
    }
    lowest_ps = std::min(lowest_ps, samples_ps.Quantile(0.5));
  }
  lines->to_server.sequence.store(kEnd, std::memory_order_release);
  return lowest_ps;
}

}  // namespace

absl::StatusOr<double> CacheLineRoundTripNs(int client_cpu, int server_cpu,
                                            absl::Duration duration) {
  if (client_cpu == server_cpu) {
    return base::Error(absl::StatusCode::kFailedPrecondition,
                       "the limit of the machine not measured",
                       {.layer = "tools",
                        .operation = "cache line round trip",
                        .cause = absl::StrCat("both sides would run on CPU ", client_cpu),
                        .remedy = "name two CPUs: --cpus=0,1"});
  }
  // The threads are pinned before either starts: a client without a server would never end.
  Lines lines;
  std::atomic<int> ready = 0;
  std::atomic<bool> failed = false;
  absl::Status statuses[2];
  int64_t median_ps = 0;
  const auto begin = [&](int side, int cpu) {
    statuses[side] = PinToCpu(cpu);
    if (!statuses[side].ok()) failed = true;
    ++ready;
    while (ready != 2) std::this_thread::yield();
    return !failed;
  };
  std::thread server([&] {
    if (begin(1, server_cpu)) Serve(&lines);
  });
  std::thread client([&] {
    if (begin(0, client_cpu)) median_ps = Ask(&lines, duration);
  });
  client.join();
  server.join();
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return static_cast<double>(median_ps) / 1000;
}

}  // namespace sluice::tools
