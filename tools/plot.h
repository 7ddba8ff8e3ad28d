// SPDX-License-Identifier: Apache-2.0
//
// Plot(): lines over two axes as an SVG element for an HTML page. The page's style sheet gives the colours: classes axis, line, and
// s0, s1, … for the series.
//
// Threads       Any: a pure function.
#ifndef SLUICE_TOOLS_PLOT_H_
#define SLUICE_TOOLS_PLOT_H_

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sluice::tools {

using PlotSeries = std::vector<std::pair<double, double>>;

struct PlotAxis {
  bool logarithmic = false;                 // marks at powers of ten; values must be above 0
  bool from_zero = false;                   // linear only: the axis begins at 0
  std::function<std::string(double)> mark;  // the text of a mark
};

struct PlotAxes {
  std::string title;  // for screen readers
  PlotAxis x;
  PlotAxis y;
};

// A series without points has no line.
std::string Plot(const PlotAxes& axes, std::span<const PlotSeries> series);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_PLOT_H_
