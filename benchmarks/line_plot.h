// SPDX-License-Identifier: Apache-2.0
//
// PlotLines: lines over one axis, both scales logarithmic, as SVG.
#ifndef SLUICE_BENCHMARKS_LINE_PLOT_H_
#define SLUICE_BENCHMARKS_LINE_PLOT_H_

#include <string>
#include <utility>
#include <vector>

namespace sluice::benchmarks {

struct PlotLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // above 0
};

std::string PlotLines(const std::string& x_title, const std::string& y_title,
                      const std::vector<PlotLine>& lines);

}  // namespace sluice::benchmarks

#endif  // SLUICE_BENCHMARKS_LINE_PLOT_H_
