// SPDX-License-Identifier: Apache-2.0
//
// lane_benchmark: what a pass over watched lanes costs in which nothing has come: one load of one word for each, as in
// transport/endpoint/lanes_in.cc.
//
// Usage      lane_benchmark
// Method     Each lane has memory of its own, of 66 slots, and stands at another slot. The median of 31 repetitions of 1,000
//            passes each; one line for each number of lanes.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "transport/base/clock.h"
#include "transport/lane/reader.h"

namespace sluice::benchmarks {
namespace {

constexpr uint32_t kSlots = 66;
constexpr uint32_t kSlotBytes = 256;
constexpr int kPasses = 1000;
constexpr int kRepetitions = 31;

struct alignas(4096) Page {
  std::byte bytes[4096];
};

struct Watched {
  const uint64_t* stamp;
  uint32_t value;
  void* lane;
};

double PassNs(uint32_t lanes, base::Clock& clock) {
  constexpr size_t kPages = kSlots * kSlotBytes / sizeof(Page) + 1;
  std::vector<std::unique_ptr<Page[]>> memory;
  std::vector<Watched> watched;
  for (uint32_t i = 0; i < lanes; ++i) {
    memory.push_back(std::make_unique<Page[]>(kPages));
    lane::Reader reader({lane::Layout::kWhole, kSlots, kSlotBytes},
                        reinterpret_cast<std::byte*>(memory.back().get()), i + 1, true);
    for (uint32_t at = 0; at < i * 7 % kSlots; ++at) reader.Take();
    watched.push_back({reader.stamp(), reader.value(), nullptr});
  }
  std::vector<double> samples;
  uint64_t ready = 0;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    const int64_t begin_ns = clock.NowNs();
    for (int pass = 0; pass < kPasses; ++pass) {
      for (const Watched& one : watched) ready += lane::Reader::Ready(one.stamp, one.value);
    }
    samples.push_back(static_cast<double>(clock.NowNs() - begin_ns) / kPasses);
  }
  if (ready != 0) std::puts("something was there");
  std::nth_element(samples.begin(), samples.begin() + kRepetitions / 2, samples.end());
  return samples[kRepetitions / 2];
}

int Main() {
  base::RealClock clock;
  for (const uint32_t lanes : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}) {
    const double pass_ns = PassNs(lanes, clock);
    std::printf("%5u lanes  %8.1f ns a pass  %5.2f ns a lane\n", lanes, pass_ns, pass_ns / lanes);
  }
  return 0;
}

}  // namespace
}  // namespace sluice::benchmarks

int main() { return sluice::benchmarks::Main(); }
