// SPDX-License-Identifier: Apache-2.0
#include "tools/perf_page.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/latency_report.h"
#include "tools/page_frame.h"
#include "tools/plot.h"

namespace sluice::tools {
namespace {

// What tells the results apart on the page.
std::string TitleOf(const BenchResult& result, size_t index) {
  const BenchConfig& config = result.config();
  return absl::StrFormat("%c: %s, %u B, %u in flight", static_cast<char>('A' + index),
                         result.test(), config.payload_bytes(),
                         std::max(config.window(), 1u) * std::max(config.flows(), 1u));
}

std::string ToRaw(const BenchResult& result) {
  if (result.raw_round_trip_ns() <= 0) return "not measured (--raw)";
  return absl::StrFormat("%.1f x (%s)", result.latency().p50_ns() / result.raw_round_trip_ns(),
                         FormatNs(result.raw_round_trip_ns()));
}

std::string Loop(const BenchConfig& config) {
  if (config.loop() != "open") return config.loop();
  return absl::StrFormat("open, %.0f a second", config.rate_per_second());
}

std::string Cpus(const BenchConfig& config) {
  return config.cpus().empty() ? "not pinned" : absl::StrJoin(config.cpus(), ", ");
}

struct TableRow {
  const char* name;
  std::vector<std::string> values;
};

std::vector<TableRow> Rows(std::span<const BenchResult> results) {
  std::vector<TableRow> rows;
  const auto add = [&](const char* name, auto value) {
    TableRow& row = rows.emplace_back();
    row.name = name;
    for (const BenchResult& result : results) row.values.push_back(value(result));
  };
  using R = const BenchResult&;
  const auto ns = [&](const char* name, auto value) {
    add(name, [&](R r) { return FormatNs(value(r.latency())); });
  };
  using L = const LatencySummary&;
  add("calls a second", [](R r) { return absl::StrFormat("%.0f", r.calls_per_second()); });
  add("payload, MB/s",
      [](R r) { return absl::StrFormat("%.1f", r.payload_bytes_per_second() / 1e6); });
  add("calls, failed",
      [](R r) { return absl::StrFormat("%u, %u", r.counts().started(), r.counts().failed()); });
  ns("p50", [](L l) { return l.p50_ns(); });
  ns("p90", [](L l) { return l.p90_ns(); });
  ns("p99", [](L l) { return l.p99_ns(); });
  ns("p99.9", [](L l) { return l.p999_ns(); });
  ns("max", [](L l) { return l.max_ns(); });
  ns("mean", [](L l) { return l.mean_ns(); });
  add("p50 to the machine's limit", &ToRaw);
  add("test", [](R r) { return r.test(); });
  add("device", [](R r) { return r.host().device(); });
  add("payload, bytes", [](R r) { return absl::StrCat(r.config().payload_bytes()); });
  add("in flight", [](R r) { return absl::StrCat(r.config().window()); });
  add("flows", [](R r) { return r.test() == "flow" ? absl::StrCat(r.config().flows()) : "-"; });
  add("loop", [](R r) { return Loop(r.config()); });
  add("lanes", [](R r) { return r.config().lanes(); });
  add("CPUs", [](R r) { return Cpus(r.config()); });
  add("measured, s", [](R r) { return absl::StrFormat("%.2f", r.duration_seconds()); });
  add("started", [](R r) { return r.started_at(); });
  add("host", [](R r) { return r.host().hostname(); });
  add("processor",
      [](R r) { return absl::StrCat(r.host().cpu_model(), ", ", r.host().cpu_count()); });
  add("build", [](R r) { return r.host().build(); });
  add("arguments", [](R r) { return absl::StrJoin(r.config().arguments(), " "); });
  return rows;
}

std::string Key(std::span<const BenchResult> results) {
  std::string text = "<div class=\"key\">";
  for (size_t i = 0; i < results.size(); ++i) {
    absl::StrAppend(&text, "<span><i class=\"b", i, "\"></i>", Escaped(TitleOf(results[i], i)),
                    "</span>");
  }
  return text + "</div>\n";
}

// By the buckets: the count beside them may be wrong in a file.
uint64_t CallsIn(const LatencySummary& latency) {
  uint64_t calls = 0;
  for (const LatencyBucket& bucket : latency.buckets()) calls += bucket.count();
  return calls;
}

// Share of the calls in each step of latency; the steps grow by a constant factor.
PlotSeries Distribution(const LatencySummary& latency) {
  constexpr double kStepsPerOctave = 4;
  PlotSeries points;
  const auto total = static_cast<double>(CallsIn(latency));
  if (total == 0) return points;
  std::vector<std::pair<long, uint64_t>> steps;
  for (const LatencyBucket& bucket : latency.buckets()) {
    const long step =
        std::lround(std::ceil(std::log2(std::max(bucket.upper_ns(), 1.0)) * kStepsPerOctave));
    while (!steps.empty() && steps.back().first + 1 < step) {
      steps.emplace_back(steps.back().first + 1, 0);
    }
    if (steps.empty() || steps.back().first != step) steps.emplace_back(step, 0);
    steps.back().second += bucket.count();
  }
  const auto ns_of = [](long step) {
    return std::exp2(static_cast<double>(step) / kStepsPerOctave);
  };
  points.emplace_back(ns_of(steps.front().first - 1), 0);
  for (const auto& [step, count] : steps) {
    const double percent = 100 * static_cast<double>(count) / total;
    points.emplace_back(ns_of(step - 1), percent);
    points.emplace_back(ns_of(step), percent);
  }
  points.emplace_back(ns_of(steps.back().first), 0);
  return points;
}

// Latency over 1 / (1 - quantile): 10 is p90, 100 is p99.
PlotSeries Percentiles(const LatencySummary& latency) {
  PlotSeries points;
  const uint64_t total = CallsIn(latency);
  uint64_t up_to = 0;
  for (const LatencyBucket& bucket : latency.buckets()) {
    if (bucket.count() == 0 || !(bucket.upper_ns() > 0)) continue;
    points.emplace_back(static_cast<double>(total) / static_cast<double>(total - up_to),
                        bucket.upper_ns());
    up_to += bucket.count();
  }
  return points;
}

PlotSeries Rates(const BenchResult& result) {
  PlotSeries points;
  double begin_seconds = 0;
  for (const RateSample& sample : result.rates()) {
    const double seconds = sample.end_seconds() - begin_seconds;
    if (seconds > 0)
      points.emplace_back(sample.end_seconds(), static_cast<double>(sample.calls()) / seconds);
    begin_seconds = sample.end_seconds();
  }
  return points;
}

std::string PercentileMark(double odds) {
  if (odds < 1.5) return "0";
  return absl::StrFormat("%.*f %%",
                         std::max(0, static_cast<int>(std::lround(std::log10(odds))) - 2),
                         100 - 100 / odds);
}

std::string RateMark(double rate) {
  if (rate >= 1e6) return absl::StrFormat("%g M", rate / 1e6);
  return rate >= 1e3 ? absl::StrFormat("%g k", rate / 1e3) : absl::StrFormat("%g", rate);
}

std::string NsMark(double ns) { return ns < 1e3 ? absl::StrFormat("%g ns", ns) : FormatNs(ns); }

std::string Section(const char* title, const char* note, std::span<const BenchResult> results,
                    const std::string& body) {
  return absl::StrCat("<section><h2>", title, "</h2>\n", Key(results), body, "<p>", note,
                      "</p></section>\n");
}

}  // namespace

std::string PerfPage(std::span<const BenchResult> results) {
  results = results.first(std::min(results.size(), kMostResults));
  std::vector<PlotSeries> distributions, percentiles, rates;
  for (const BenchResult& result : results) {
    distributions.push_back(Distribution(result.latency()));
    percentiles.push_back(Percentiles(result.latency()));
    rates.push_back(Rates(result));
  }
  std::string page = PageHead("sluice_perf");
  page += "<section><div class=\"wide\"><table>\n<tr><th></th>";
  for (size_t i = 0; i < results.size(); ++i) {
    absl::StrAppend(&page, "<td>", Escaped(TitleOf(results[i], i)), "</td>");
  }
  page += "</tr>\n";
  for (const TableRow& row : Rows(results)) {
    absl::StrAppend(&page, "<tr><th>", row.name, "</th>");
    for (const std::string& value : row.values)
      absl::StrAppend(&page, "<td>", Escaped(value), "</td>");
    page += "</tr>\n";
  }
  page += "</table></div></section>\n<div class=\"pair\">\n";
  page +=
      Section("Distribution of latencies",
              "Share of the calls in each step of latency, in percent.", results,
              Plot({.title = "Distribution of latencies",
                    .x = {.logarithmic = true, .mark = &NsMark},
                    .y = {.from_zero = true,
                          .mark = [](double value) { return absl::StrFormat("%g %%", value); }}},
                   distributions));
  page += Section("Latency by percentile", "The time within which that share of the calls ended.",
                  results,
                  Plot({.title = "Latency by percentile",
                        .x = {.logarithmic = true, .mark = &PercentileMark},
                        .y = {.logarithmic = true, .mark = &NsMark}},
                       percentiles));
  page += Section("Rate over time",
                  "Calls a second in each interval, over seconds of the measurement.", results,
                  Plot({.title = "Rate over time",
                        .x = {.from_zero = true,
                              .mark = [](double value) { return absl::StrFormat("%g s", value); }},
                        .y = {.from_zero = true, .mark = &RateMark}},
                       rates));
  return page + "</div>\n" + PageEnd();
}

std::string PerfTable(std::span<const BenchResult> results) {
  std::vector<TableRow> rows = Rows(results);
  TableRow titles{"", {}};
  for (size_t i = 0; i < results.size(); ++i) titles.values.push_back(TitleOf(results[i], i));
  rows.insert(rows.begin(), titles);
  std::vector<size_t> widths(results.size() + 1);
  for (const TableRow& row : rows) {
    widths[0] = std::max(widths[0], std::string(row.name).size());
    for (size_t i = 0; i < row.values.size(); ++i) {
      widths[i + 1] = std::max(widths[i + 1], row.values[i].size());
    }
  }
  std::string text;
  for (const TableRow& row : rows) {
    std::string line = absl::StrFormat("%-*s", static_cast<int>(widths[0]), row.name);
    for (size_t i = 0; i < row.values.size(); ++i) {
      absl::StrAppendFormat(&line, "  %-*s", static_cast<int>(widths[i + 1]), row.values[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

absl::Status WritePerfPage(std::span<const BenchResult> results, const std::string& path) {
  return WritePage(PerfPage(results), path);
}

}  // namespace sluice::tools
