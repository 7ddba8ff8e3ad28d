// SPDX-License-Identifier: Apache-2.0
//
// lane_benchmark [svg file]
// What a pass over watched lanes costs in which nothing has come, against their number: if all are looked at in each pass, if
// all have been idle, and if few are busy (lane::Watch). The median of 31 repetitions of 1,008 passes each.
//
// Method     Each lane has memory of its own, of 66 slots, and stands at another slot. A repetition ends before idle lanes
//            are looked for again.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"
#include "benchmarks/line_plot.h"
#include "transport/base/clock.h"
#include "transport/lane/watch.h"

namespace sluice::benchmarks {
namespace {

using lane::Watch;

constexpr uint32_t kSlots = 66;
constexpr uint32_t kSlotBytes = 256;
constexpr uint32_t kPasses = Watch::kSweepPasses / Watch::kSeldomPasses * Watch::kSeldomPasses - 16;
constexpr int kRepetitions = 31;
constexpr uint32_t kFew = 16;

struct alignas(4096) Page {
  std::byte bytes[4096];
};
constexpr size_t kPages = kSlots * kSlotBytes / sizeof(Page) + 1;

struct Lane : Watch::Seat {
  explicit Lane(uint32_t number)
      : memory(new Page[kPages]()),
        reader({lane::Layout::kWhole, kSlots, kSlotBytes},
               reinterpret_cast<std::byte*>(memory.get()), number + 1, true) {
    for (uint32_t at = 0; at < number * 7 % kSlots; ++at) reader.Take();
  }
  std::unique_ptr<Page[]> memory;
  lane::Reader reader;
};

// Of so many lanes the first `busy` get a message each thousand passes, between repetitions.
double PassNs(uint32_t lanes, uint32_t busy, base::Clock& clock) {
  std::vector<std::unique_ptr<Lane>> all;
  Watch watch;
  for (uint32_t i = 0; i < lanes; ++i) {
    all.push_back(std::make_unique<Lane>(i));
    watch.Join(all.back().get(), all.back()->reader);
  }
  uint64_t taken = 0;
  const auto visit = [&](Watch::Seat* seat) {
    auto* lane = static_cast<Lane*>(seat);
    ++taken;
    lane->reader.Take();
    watch.Moved(*lane);
    return 1;
  };
  const auto idle = [](Watch::Seat*) {};
  std::vector<double> samples;
  uint64_t messages = 0;
  for (int repetition = -2; repetition < kRepetitions; ++repetition) {
    for (uint32_t i = 0; i < std::min(busy, lanes); ++i, ++messages) {
      lane::Reader& reader = all[i]->reader;
      *const_cast<uint64_t*>(reader.stamp()) = lane::Stamp(reader.value(), 8);
    }
    // They are taken, the idle are looked for, and who is busy is known in the pass after that.
    for (uint32_t pass = kPasses; pass < Watch::kSweepPasses; ++pass) watch.Look(visit, idle);
    const int64_t begin_ns = clock.NowNs();
    for (uint32_t pass = 0; pass < kPasses; ++pass) watch.Look(visit, idle);
    const double ns = static_cast<double>(clock.NowNs() - begin_ns) / kPasses;
    if (repetition >= 0) samples.push_back(ns);
  }
  if (taken != messages) std::printf("%lu of %lu messages were taken\n", taken, messages);
  std::nth_element(samples.begin(), samples.begin() + kRepetitions / 2, samples.end());
  return samples[kRepetitions / 2];
}

int Main(const char* svg_file) {
  base::RealClock clock;
  std::vector<PlotLine> lines = {
      {"all in each pass", {}}, {absl::StrFormat("%u of them busy", kFew), {}}, {"all idle", {}}};
  std::puts("lanes    all in each pass    16 busy    all idle, ns a pass");
  for (const uint32_t lanes : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096}) {
    const double ns[] = {PassNs(lanes, lanes, clock), PassNs(lanes, kFew, clock),
                         PassNs(lanes, 0, clock)};
    for (size_t i = 0; i < lines.size(); ++i) lines[i].points.push_back({lanes, ns[i]});
    std::printf("%5u    %16.1f    %7.1f    %8.1f\n", lanes, ns[0], ns[1], ns[2]);
  }
  if (svg_file == nullptr) return 0;
  std::FILE* file = std::fopen(svg_file, "w");
  if (file == nullptr) return 1;
  std::fputs(PlotLines("watched lanes", "ns a pass in which nothing has come", lines).c_str(),
             file);
  return std::fclose(file) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sluice::benchmarks

int main(int argc, char** argv) { return sluice::benchmarks::Main(argc > 1 ? argv[1] : nullptr); }
