// SPDX-License-Identifier: Apache-2.0
#include "tools/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace sluice::tools {
namespace plot_test {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Number(double value) { return absl::StrFormat("%g", value); }

// The points of line `index`, in the units of the picture.
PlotSeries PointsOf(const std::string& svg, int index) {
  const std::string begin = absl::StrFormat("class=\"line s%d\" points=\"", index);
  const size_t at = svg.find(begin);
  PlotSeries points;
  if (at == std::string::npos) return points;
  const size_t from = at + begin.size();
  for (const auto& point :
       absl::StrSplit(svg.substr(from, svg.find('"', from) - from), ' ', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> xy = absl::StrSplit(point, ',');
    double x = 0, y = 0;
    EXPECT_TRUE(absl::SimpleAtod(xy.first, &x) && absl::SimpleAtod(xy.second, &y)) << point;
    points.emplace_back(x, y);
  }
  return points;
}

TEST(PlotTest, LinearAxesKeepProportions) {
  const std::vector<PlotSeries> series = {{{0, 0}, {5, 10}, {10, 40}}};
  const auto points = PointsOf(Plot({.title = "t",
                                     .x = {.from_zero = true, .mark = &Number},
                                     .y = {.from_zero = true, .mark = &Number}},
                                    series),
                               0);
  ASSERT_EQ(points.size(), 3u);
  EXPECT_NEAR(points[1].first - points[0].first, points[2].first - points[1].first, 0.11);
  // Up is less: 10 of 40 is a quarter of the way.
  EXPECT_NEAR((points[0].second - points[1].second) / (points[0].second - points[2].second), 0.25,
              0.01);
}

TEST(PlotTest, LogarithmicAxesHaveEqualStepsForEqualFactors) {
  const std::vector<PlotSeries> series = {{{1, 1}, {10, 100}, {100, 10'000}}};
  const std::string svg = Plot({.title = "t",
                                .x = {.logarithmic = true, .mark = &Number},
                                .y = {.logarithmic = true, .mark = &Number}},
                               series);
  const auto points = PointsOf(svg, 0);
  ASSERT_EQ(points.size(), 3u);
  EXPECT_NEAR(points[1].first - points[0].first, points[2].first - points[1].first, 0.11);
  EXPECT_NEAR(points[1].second - points[0].second, points[2].second - points[1].second, 0.11);
  for (const char* mark : {">1<", ">10<", ">100<", ">1000<", ">10000<"})
    EXPECT_THAT(svg, HasSubstr(mark));
}

TEST(PlotTest, RangeWithinADecadeHasMarks) {
  const std::vector<PlotSeries> series = {{{0, 300}, {1, 600}}};
  EXPECT_THAT(
      Plot({.title = "t", .x = {.mark = &Number}, .y = {.logarithmic = true, .mark = &Number}},
           series),
      HasSubstr(">500<"));
}

TEST(PlotTest, SeriesWithoutPointsHasNoLine) {
  const std::vector<PlotSeries> series = {{}, {{1, 1}, {2, 2}}};
  const std::string svg = Plot({.title = "t",
                                .x = {.from_zero = true, .mark = &Number},
                                .y = {.from_zero = true, .mark = &Number}},
                               series);
  EXPECT_THAT(svg, Not(HasSubstr("line s0")));
  EXPECT_THAT(svg, HasSubstr("line s1"));
}

TEST(PlotTest, NoPointsAndOnePointStayInThePicture) {
  for (const bool logarithmic : {false, true}) {
    for (const PlotSeries& points : {PlotSeries{}, PlotSeries{{7, 7}}}) {
      const std::vector<PlotSeries> series = {points};
      const PlotAxis axis = {.logarithmic = logarithmic, .mark = &Number};
      const std::string svg = Plot({.title = "t", .x = axis, .y = axis}, series);
      EXPECT_THAT(svg, Not(HasSubstr("nan")));
      EXPECT_THAT(svg, Not(HasSubstr("inf")));
    }
  }
}

}  // namespace plot_test
}  // namespace sluice::tools
