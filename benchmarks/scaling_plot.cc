// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/scaling_plot.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/str_format.h"

namespace sluice::benchmarks {
namespace {

constexpr int kPanelWidth = 190;
constexpr int kPanelHeight = 190;
constexpr int kLeft = 70;
constexpr int kTop = 50;
constexpr int kGap = 24;
constexpr int kRowGap = 60;
constexpr const char* kColors[] = {"#1b6ca8", "#d1495b", "#2e8b57",
                                   "#b8860b", "#6a4c93", "#444444"};

// A value for each point, on a logarithmic scale.
struct Axis {
  std::string title;
  std::function<double(const ScalingPoint&)> value;
  double least = 0;  // powers of ten
  double most = 0;
};

Axis MakeAxis(std::string title, std::function<double(const ScalingPoint&)> value,
              const std::vector<ScalingPoint>& points) {
  Axis axis{std::move(title), std::move(value)};
  axis.least = 1e9;
  axis.most = -1e9;
  for (const ScalingPoint& point : points) {
    const double power = std::log10(std::max(axis.value(point), 1e-9));
    axis.least = std::min(axis.least, std::floor(power));
    axis.most = std::max(axis.most, std::ceil(power));
  }
  axis.most = std::max(axis.most, axis.least + 1);
  return axis;
}

std::string Text(double x, double y, const char* anchor, const std::string& text, int size = 11) {
  return absl::StrFormat(
      "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\">%s</text>\n", x, y, anchor,
      size, text);
}

}  // namespace

std::string PlotScaling(const std::vector<ScalingPoint>& points) {
  std::set<uint32_t> peers, dcis, streams;
  for (const ScalingPoint& point : points) {
    peers.insert(point.peers);
    dcis.insert(point.dcis);
    streams.insert(point.streams);
  }
  const Axis rows[] = {
      MakeAxis(
          "million messages/s", [](const ScalingPoint& p) { return 1e-6 * p.messages_per_second; },
          points),
      MakeAxis(
          "p99, us", [](const ScalingPoint& p) { return 1e-3 * static_cast<double>(p.p99_ns); },
          points)};
  const double first = std::log2(*streams.begin());
  const double span = std::max(1.0, std::log2(*streams.rbegin()) - first);
  const int width = kLeft + static_cast<int>(peers.size()) * (kPanelWidth + kGap) + 20;
  const int height = kTop + 2 * (kPanelHeight + kRowGap) + 20;
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
      "font-family=\"sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      width, height, width, height);
  for (int row = 0; row < 2; ++row) {
    const Axis& axis = rows[row];
    const double top = kTop + row * (kPanelHeight + kRowGap);
    const auto y_of = [&](double power) {
      return top + kPanelHeight * (axis.most - power) / (axis.most - axis.least);
    };
    svg += Text(kLeft, top - 24, "start", axis.title, 13);
    int column = 0;
    for (const uint32_t peer : peers) {
      const double left = kLeft + column++ * (kPanelWidth + kGap);
      const auto x_of = [&](uint32_t count) {
        return left + kPanelWidth * (std::log2(count) - first) / span;
      };
      svg += absl::StrFormat(
          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"none\" "
          "stroke=\"#999\"/>\n",
          left, top, kPanelWidth, kPanelHeight);
      svg += Text(left + kPanelWidth / 2.0, top - 6, "middle",
                  absl::StrFormat("%u %s", peer, peer == 1 ? "peer" : "peers"));
      for (double power = axis.least; power <= axis.most; ++power) {
        svg += absl::StrFormat(
            "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", left,
            left + kPanelWidth, y_of(power), y_of(power));
        if (column == 1) {
          svg += Text(left - 6, y_of(power) + 4, "end", absl::StrFormat("%g", std::pow(10, power)));
        }
      }
      for (const uint32_t count : streams) {
        svg +=
            Text(x_of(count), top + kPanelHeight + 14, "middle", absl::StrFormat("%u", count), 10);
      }
      svg +=
          Text(left + kPanelWidth / 2.0, top + kPanelHeight + 28, "middle", "streams of a DCI", 10);
      int color = 0;
      for (const uint32_t dci : dcis) {
        std::string line;
        for (const ScalingPoint& point : points) {
          if (point.peers != peer || point.dcis != dci) continue;
          line += absl::StrFormat("%.1f,%.1f ", x_of(point.streams),
                                  y_of(std::log10(std::max(axis.value(point), 1e-9))));
        }
        svg += absl::StrFormat(
            "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"/>\n", line,
            kColors[color++ % 6]);
      }
    }
  }
  int color = 0;
  double x = kLeft;
  for (const uint32_t dci : dcis) {
    svg += absl::StrFormat(
        "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"3\"/>\n", x,
        x + 20, height - 14, height - 14, kColors[color++ % 6]);
    svg += Text(x + 26, height - 10, "start",
                absl::StrFormat("%u %s", dci, dci == 1 ? "DCI" : "DCIs"));
    x += 90;
  }
  return svg + "</svg>\n";
}

}  // namespace sluice::benchmarks
