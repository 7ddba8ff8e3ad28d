// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/line_plot.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace sluice::benchmarks {
namespace {

constexpr double kWidth = 420, kHeight = 260, kLeft = 60, kTop = 30, kRight = 190, kBottom = 50;
constexpr const char* kColors[] = {"#1b6ca8", "#d1495b", "#2e8b57", "#b8860b"};

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return absl::StrFormat(
      "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"11\">%s</text>\n", x, y, anchor,
      text);
}

std::string Rule(double x1, double y1, double x2, double y2) {
  return absl::StrFormat(
      "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", x1, y1, x2, y2);
}

}  // namespace

std::string PlotLines(const std::string& x_title, const std::string& y_title,
                      const std::vector<PlotLine>& lines) {
  double least_x = 1e9, most_x = -1e9, least_y = 1e9, most_y = -1e9;
  for (const PlotLine& line : lines) {
    for (const auto& [x, y] : line.points) {
      least_x = std::min(least_x, std::log10(x));
      most_x = std::max(most_x, std::log10(x));
      least_y = std::min(least_y, std::floor(std::log10(y)));
      most_y = std::max(most_y, std::ceil(std::log10(y)));
    }
  }
  const auto x_of = [&](double x) {
    return kLeft + kWidth * (std::log10(x) - least_x) / std::max(most_x - least_x, 1e-9);
  };
  const auto y_of = [&](double y) {
    return kTop + kHeight * (most_y - std::log10(y)) / std::max(most_y - least_y, 1.0);
  };
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "font-family=\"sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      kLeft + kWidth + kRight, kTop + kHeight + kBottom);
  for (double power = least_y; power <= most_y; ++power) {
    const double value = std::pow(10, power);
    svg += Rule(kLeft, y_of(value), kLeft + kWidth, y_of(value));
    svg += Text(kLeft - 6, y_of(value) + 4, "end", absl::StrFormat("%g", value));
  }
  for (double power = std::ceil(least_x); power <= most_x; ++power) {
    const double value = std::pow(10, power);
    svg += Rule(x_of(value), kTop, x_of(value), kTop + kHeight);
    svg += Text(x_of(value), kTop + kHeight + 16, "middle", absl::StrFormat("%g", value));
  }
  svg += Text(kLeft, kTop - 12, "start", y_title);
  svg += Text(kLeft + kWidth / 2, kTop + kHeight + 36, "middle", x_title);
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string points;
    for (const auto& [x, y] : lines[i].points) {
      points += absl::StrFormat("%.1f,%.1f ", x_of(x), y_of(y));
    }
    const char* color = kColors[i % std::size(kColors)];
    svg += absl::StrFormat(
        "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"/>\n", points,
        color);
    const double y = kTop + 14 + 18 * static_cast<double>(i);
    svg += absl::StrFormat(
        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
        "stroke-width=\"2\"/>\n",
        kLeft + kWidth + 10, y, kLeft + kWidth + 28, y, color);
    svg += Text(kLeft + kWidth + 34, y + 4, "start", lines[i].name);
  }
  return svg + "</svg>\n";
}

}  // namespace sluice::benchmarks
