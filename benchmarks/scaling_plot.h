// SPDX-License-Identifier: Apache-2.0
//
// PlotScaling: curves of rate and p99 over streams, a panel for each number of peers, a line for each number of DCIs, as
// SVG.
#ifndef SLUICE_BENCHMARKS_SCALING_PLOT_H_
#define SLUICE_BENCHMARKS_SCALING_PLOT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::benchmarks {

struct ScalingPoint {
  uint32_t dcis = 1;
  uint32_t streams = 1;  // of each
  uint32_t peers = 1;
  double messages_per_second = 0;
  int64_t p50_ns = 0;  // until a message arrives
  int64_t p99_ns = 0;
};

std::string PlotScaling(const std::vector<ScalingPoint>& points);

}  // namespace sluice::benchmarks

#endif  // SLUICE_BENCHMARKS_SCALING_PLOT_H_
