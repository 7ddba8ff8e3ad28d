// SPDX-License-Identifier: Apache-2.0
#include "tools/peers_page.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tools/latency_report.h"
#include "tools/page_frame.h"
#include "tools/plot.h"
#include "transport/base/error.h"

namespace sluice::tools {
namespace {

constexpr char kRaw[] = "raw";

absl::Status WrongLine(size_t number, absl::string_view line, const char* cause) {
  return base::Error(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("line ", number, " of the figures is not valid: ", line),
                     {.layer = "tools",
                      .operation = "read figures",
                      .cause = cause,
                      .remedy = "use a file that benchmarks/peers/peers.sh wrote"});
}

bool IsPositive(absl::string_view text, double* value) {
  return absl::SimpleAtod(text, value) && std::isfinite(*value) && *value > 0;
}

PeersLibrary& LibraryOf(PeersFigures* figures, absl::string_view name, absl::string_view title) {
  for (PeersLibrary& library : figures->libraries) {
    if (library.name == name) return library;
  }
  PeersLibrary& library = figures->libraries.emplace_back();
  library.name = std::string(name);
  library.title = std::string(title);
  return library;
}

std::string SizeText(double bytes) {
  if (bytes >= 1 << 20) return absl::StrFormat("%g MiB", bytes / (1 << 20));
  return bytes >= 1 << 10 ? absl::StrFormat("%g KiB", bytes / (1 << 10))
                          : absl::StrFormat("%g B", bytes);
}

// Of an axis, whose marks stand at powers of ten.
std::string SizeMark(double bytes) {
  return bytes < 1000 ? absl::StrFormat("%g B", bytes) : absl::StrFormat("%g kB", bytes / 1000);
}

std::string RateText(double rate) {
  if (rate >= 1e6) return absl::StrFormat("%.2f M", rate / 1e6);
  return rate >= 1e3 ? absl::StrFormat("%.1f k", rate / 1e3) : absl::StrFormat("%.0f", rate);
}

std::string Cell(const PeersFigure& figure, std::string (*text)(double)) {
  return absl::StrCat("<td title=\"", text(figure.lowest), " to ", text(figure.highest), "\">",
                      text(figure.median), "</td>");
}

std::set<uint32_t> SizesOf(const PeersFigures& figures) {
  std::set<uint32_t> sizes;
  for (const PeersLibrary& library : figures.libraries) {
    for (const auto& [bytes, figure] : library.round_trips_ns) sizes.insert(bytes);
  }
  return sizes;
}

std::string Table(const PeersFigures& figures) {
  const std::set<uint32_t> sizes = SizesOf(figures);
  double raw_ns = 0;
  for (const PeersLibrary& library : figures.libraries) {
    if (library.name == kRaw && !library.round_trips_ns.empty()) {
      raw_ns = library.round_trips_ns.begin()->second.median;
    }
  }
  std::string table = "<div class=\"wide\"><table>\n<tr><th></th>";
  for (const uint32_t bytes : sizes) absl::StrAppend(&table, "<th>", SizeText(bytes), "</th>");
  table += "<th>to the machine&#39;s limit</th><th>requests a second</th></tr>\n";
  for (const PeersLibrary& library : figures.libraries) {
    absl::StrAppend(&table, "<tr><th>", Escaped(library.title), "</th>");
    for (const uint32_t bytes : sizes) {
      const auto found = library.round_trips_ns.find(bytes);
      table +=
          found == library.round_trips_ns.end() ? "<td>-</td>" : Cell(found->second, &FormatNs);
    }
    const bool compared = raw_ns > 0 && !library.round_trips_ns.empty();
    table += compared ? absl::StrFormat("<td>%.1f x</td>",
                                        library.round_trips_ns.begin()->second.median / raw_ns)
                      : "<td>-</td>";
    table += library.rate_per_second.has_value() ? Cell(*library.rate_per_second, &RateText)
                                                 : "<td>-</td>";
    table += "</tr>\n";
  }
  return table + "</table></div>\n";
}

std::string Key(const std::vector<const PeersLibrary*>& libraries) {
  std::string text = "<div class=\"key\">";
  for (size_t i = 0; i < libraries.size(); ++i) {
    absl::StrAppend(&text, "<span><i class=\"b", i, "\"></i>", Escaped(libraries[i]->title),
                    "</span>");
  }
  return text + "</div>\n";
}

std::string Bars(const std::vector<const PeersLibrary*>& libraries) {
  double most = 0;
  for (const PeersLibrary* library : libraries) {
    if (library->rate_per_second.has_value()) {
      most = std::max(most, library->rate_per_second->median);
    }
  }
  std::string table = "<div class=\"wide\"><table>\n";
  for (size_t i = 0; i < libraries.size(); ++i) {
    if (!libraries[i]->rate_per_second.has_value()) continue;
    const double rate = libraries[i]->rate_per_second->median;
    absl::StrAppendFormat(&table,
                          "<tr><th>%s</th><td>%s</td><td style=\"width: 260px\"><i class=\"bar "
                          "b%u\" style=\"width: %.1f%%\"></i></td></tr>\n",
                          Escaped(libraries[i]->title), RateText(rate), i, 100 * rate / most);
  }
  return table + "</table></div>\n";
}

}  // namespace

absl::StatusOr<PeersFigures> ParsePeersFigures(absl::string_view text) {
  PeersFigures figures;
  size_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    const std::vector<absl::string_view> fields = absl::StrSplit(line, '\t');
    if (fields[0] == "note" && fields.size() == 2) {
      figures.notes.emplace_back(fields[1]);
      continue;
    }
    if (fields[0] != "figure" || fields.size() != 7 || fields[1].empty()) {
      return WrongLine(number, line, "it is neither a note nor a figure with seven fields");
    }
    PeersFigure figure;
    if (!IsPositive(fields[4], &figure.median) || !IsPositive(fields[5], &figure.lowest) ||
        !IsPositive(fields[6], &figure.highest)) {
      return WrongLine(number, line, "a time or rate is not a positive number");
    }
    PeersLibrary& library = LibraryOf(&figures, fields[1], fields[2]);
    bool is_new = false;
    uint32_t bytes = 0;
    if (fields[3] == "rate") {
      is_new = !library.rate_per_second.has_value();
      library.rate_per_second = figure;
    } else if (absl::SimpleAtoi(fields[3], &bytes) && bytes != 0) {
      is_new = library.round_trips_ns.emplace(bytes, figure).second;
    } else {
      return WrongLine(number, line, "the size is neither a number of bytes nor \"rate\"");
    }
    if (!is_new) return WrongLine(number, line, "the figure is given twice");
    const auto coloured = std::count_if(figures.libraries.begin(), figures.libraries.end(),
                                        [](const PeersLibrary& one) { return one.name != kRaw; });
    if (static_cast<size_t>(coloured) > kMostSeries) {
      return WrongLine(number, line, "a page has no colour for one more library");
    }
  }
  if (figures.libraries.empty()) return WrongLine(number, "(the end)", "there is no figure");
  return figures;
}

std::string PeersPage(const PeersFigures& figures) {
  std::vector<const PeersLibrary*> libraries;
  std::vector<PlotSeries> round_trips;
  for (const PeersLibrary& library : figures.libraries) {
    if (library.name == kRaw) continue;
    libraries.push_back(&library);
    PlotSeries& points = round_trips.emplace_back();
    for (const auto& [bytes, figure] : library.round_trips_ns) {
      points.emplace_back(bytes, figure.median);
    }
  }
  std::string page = PageHead("Sluice beside other libraries");
  page += "<section>";
  for (const std::string& note : figures.notes) {
    absl::StrAppend(&page, "<p>", Escaped(note), "</p>\n");
  }
  absl::StrAppend(
      &page, Table(figures),
      "<p>Median of a request with its reply, one at a time, by the size of each. A cell&#39;s "
      "tooltip has the lowest and highest repetition.</p></section>\n<div class=\"pair\">\n");
  absl::StrAppend(
      &page, "<section><h2>Round trip over size</h2>\n", Key(libraries),
      Plot({.title = "Round trip over size",
            .x = {.logarithmic = true, .mark = &SizeMark},
            .y = {.logarithmic = true, .mark = &FormatNs}},
           round_trips),
      "<p>Median time of a request with its reply, over the bytes of each.</p></section>\n");
  absl::StrAppend(&page, "<section><h2>Requests a second</h2>\n", Bars(libraries),
                  "<p>With 32 requests of the smallest size outstanding.</p></section>\n");
  return page + "</div>\n" + PageEnd();
}

}  // namespace sluice::tools
