// SPDX-License-Identifier: Apache-2.0
#include "tools/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::tools {
namespace {

constexpr double kLeft = 62, kTop = 10, kWidth = 440, kHeight = 210, kRight = 18, kBottom = 26;
constexpr int kMarks = 5;  // of a linear axis, about

// An axis with its range: values to positions between 0 and 1.
class Scale {
 public:
  Scale(const PlotAxis& axis, double least, double most) : axis_(axis) {
    if (!(least <= most)) least = most = 1;  // no point at all
    if (axis.logarithmic) {
      low_ = std::log10(least);
      high_ = std::log10(most);
      if (high_ - low_ < 0.1) {
        low_ -= 0.05;
        high_ += 0.05;
      }
      return;
    }
    low_ = axis.from_zero ? 0 : least;
    high_ = most > low_ ? most : low_ + 1;
  }

  double At(double value) const {
    return ((axis_.logarithmic ? std::log10(value) : value) - low_) / (high_ - low_);
  }

  std::vector<double> Marks() const {
    std::vector<double> marks;
    if (axis_.logarithmic) {
      for (double power = std::ceil(low_); power <= high_; ++power)
        marks.push_back(std::pow(10, power));
      if (marks.size() >= 2) return marks;
      marks.clear();  // within a decade: also 2 and 5
      for (double power = std::floor(low_); power <= high_; ++power) {
        for (const double digit : {1, 2, 5}) {
          const double value = digit * std::pow(10, power);
          if (At(value) >= 0 && At(value) <= 1) marks.push_back(value);
        }
      }
      return marks;
    }
    const double about = (high_ - low_) / kMarks;
    const double power = std::pow(10, std::floor(std::log10(about)));
    const double step = about / power > 5 ? 10 * power : about / power > 2 ? 5 * power : 2 * power;
    for (double value = std::ceil(low_ / step) * step; value <= high_ + step * 1e-9;
         value += step) {
      marks.push_back(value);
    }
    return marks;
  }

 private:
  const PlotAxis& axis_;
  double low_ = 0;
  double high_ = 1;
};

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor,
                         text);
}

std::string Rule(double x1, double y1, double x2, double y2) {
  return absl::StrFormat("<line class=\"axis\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                         x1, y1, x2, y2);
}

}  // namespace

std::string Plot(const PlotAxes& axes, std::span<const PlotSeries> series) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  double least_x = kNone, most_x = -kNone, least_y = kNone, most_y = -kNone;
  for (const PlotSeries& points : series) {
    for (const auto& [x, y] : points) {
      least_x = std::min(least_x, x);
      most_x = std::max(most_x, x);
      least_y = std::min(least_y, y);
      most_y = std::max(most_y, y);
    }
  }
  const Scale scale_x(axes.x, least_x, most_x);
  const Scale scale_y(axes.y, least_y, most_y);
  const auto x_of = [&](double x) { return kLeft + kWidth * scale_x.At(x); };
  const auto y_of = [&](double y) { return kTop + kHeight * (1 - scale_y.At(y)); };

  std::string svg =
      absl::StrFormat("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">\n",
                      kLeft + kWidth + kRight, kTop + kHeight + kBottom, axes.title);
  for (const double value : scale_y.Marks()) {
    svg += Rule(kLeft, y_of(value), kLeft + kWidth, y_of(value));
    svg += Text(kLeft - 6, y_of(value) + 4, "end", axes.y.mark(value));
  }
  for (const double value : scale_x.Marks()) {
    svg += Rule(x_of(value), kTop, x_of(value), kTop + kHeight);
    svg += Text(x_of(value), kTop + kHeight + 16, "middle", axes.x.mark(value));
  }
  for (size_t i = 0; i < series.size(); ++i) {
    if (series[i].empty()) continue;
    std::string points;
    for (const auto& [x, y] : series[i])
      absl::StrAppendFormat(&points, "%.1f,%.1f ", x_of(x), y_of(y));
    absl::StrAppendFormat(&svg, "<polyline class=\"line s%u\" points=\"%s\"/>\n", i, points);
  }
  return svg + "</svg>\n";
}

}  // namespace sluice::tools
