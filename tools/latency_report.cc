// SPDX-License-Identifier: Apache-2.0
#include "tools/latency_report.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::tools {
namespace {

constexpr int kBarWidth = 40;

struct Row {
  double upper_ns;
  uint64_t count;
};

std::string Line(const std::string& bound, uint64_t count, uint64_t most, uint64_t all) {
  // Whatever is there at all shows: at least one mark.
  const auto marks = static_cast<size_t>(
      std::ceil(static_cast<double>(count) * kBarWidth / static_cast<double>(most)));
  return absl::StrFormat("  %10s  %6.2f %%  %s\n", bound,
                         100.0 * static_cast<double>(count) / static_cast<double>(all),
                         std::string(marks, '#'));
}

// Deviation from the middle of the buckets: their width bounds the error.
double Deviation(const base::Histogram& histogram) {
  if (histogram.count() < 2) return 0;
  const double mean = histogram.mean();
  double sum = 0;
  for (const auto& bucket : histogram.Buckets()) {
    const double middle =
        (static_cast<double>(bucket.first) + static_cast<double>(bucket.last)) / 2;
    sum += static_cast<double>(bucket.count) * (middle - mean) * (middle - mean);
  }
  return std::sqrt(sum / static_cast<double>(histogram.count() - 1));
}

}  // namespace

std::string FormatNs(double ns) {
  static constexpr const char* kUnits[] = {"ns", "us", "ms", "s"};
  int unit = 0;
  while (ns >= 999.5 && unit < 3) {
    ns /= 1000;
    ++unit;
  }
  const int decimals = unit == 0 || ns >= 99.95 ? 0 : ns >= 9.995 ? 1 : 2;
  return absl::StrFormat("%.*f %s", decimals, ns, kUnits[unit]);
}

std::string PercentileLine(const base::Histogram& histogram) {
  const auto at = [&](double quantile) {
    return FormatNs(static_cast<double>(histogram.Quantile(quantile)));
  };
  return absl::StrCat("p50 ", at(0.5), "   p99 ", at(0.99), "   p99.9 ", at(0.999), "   max ",
                      FormatNs(static_cast<double>(histogram.max())));
}

std::string HistogramText(const base::Histogram& histogram) {
  if (histogram.count() == 0) return "";
  const double low = std::max<double>(1, static_cast<double>(histogram.min()));
  const double high = std::max<double>(low, static_cast<double>(histogram.Quantile(0.999)));
  double factor = std::sqrt(std::sqrt(2.0));
  while (std::log(high / low) / std::log(factor) > kMaxRows - 2) factor *= factor;

  std::vector<Row> rows;
  uint64_t above = 0;
  for (const auto& bucket : histogram.Buckets()) {
    const auto value = static_cast<double>(bucket.last);
    if (value > high) {
      above += bucket.count;
      continue;
    }
    if (rows.empty()) rows.push_back({low * factor, 0});
    while (value > rows.back().upper_ns) rows.push_back({rows.back().upper_ns * factor, 0});
    rows.back().count += bucket.count;
  }
  uint64_t most = above;
  for (const Row& row : rows) most = std::max(most, row.count);
  std::string text;
  for (const Row& row : rows) {
    absl::StrAppend(&text, Line("< " + FormatNs(row.upper_ns), row.count, most, histogram.count()));
  }
  if (above > 0) absl::StrAppend(&text, Line("more", above, most, histogram.count()));
  return text;
}

LatencySummary Summarise(const base::Histogram& histogram) {
  LatencySummary summary;
  const auto at = [&](double quantile) {
    return static_cast<double>(histogram.Quantile(quantile));
  };
  summary.set_count(histogram.count());
  summary.set_min_ns(static_cast<double>(histogram.min()));
  summary.set_p50_ns(at(0.5));
  summary.set_p90_ns(at(0.9));
  summary.set_p99_ns(at(0.99));
  summary.set_p999_ns(at(0.999));
  summary.set_p9999_ns(at(0.9999));
  summary.set_max_ns(static_cast<double>(histogram.max()));
  summary.set_mean_ns(histogram.mean());
  summary.set_stdev_ns(Deviation(histogram));
  summary.set_relative_error(1.0 / (1 << base::Histogram::kPrecisionBits));
  for (const auto& bucket : histogram.Buckets()) {
    LatencyBucket* out = summary.add_buckets();
    out->set_upper_ns(static_cast<double>(bucket.last));
    out->set_count(bucket.count);
  }
  return summary;
}

}  // namespace sluice::tools
