// SPDX-License-Identifier: Apache-2.0
//
// PeersPage(): the figures of `./dev bench --peers`, Sluice beside other libraries, as an HTML page: a table, the round trip over the
// size, and the rate with many requests outstanding. The figures are a text that benchmarks/peers/peers.sh writes.
//
// Format        A line for each figure, fields separated by tabs:
//                 figure  library  title  size in bytes, or "rate"  median  lowest  highest
//               Times in ns, rates per second; libraries in the order of their lines. The library "raw" is the machine's limit: the
//               others are also shown as a multiple of it. Other lines: "note", a tab, and a text that stands above the table.
// Threads       Any: pure functions.
#ifndef SLUICE_TOOLS_PEERS_PAGE_H_
#define SLUICE_TOOLS_PEERS_PAGE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::tools {

struct PeersFigure {
  double median = 0;
  double lowest = 0;
  double highest = 0;
};

struct PeersLibrary {
  std::string name;
  std::string title;
  std::map<uint32_t, PeersFigure> round_trips_ns;  // by size in bytes
  std::optional<PeersFigure> rate_per_second;
};

struct PeersFigures {
  std::vector<std::string> notes;
  std::vector<PeersLibrary> libraries;
};

// INVALID_ARGUMENT, with the line: a field is missing or no positive number, a figure is given twice, there are none, or there are more
// libraries beside "raw" than a page has colours (kMostSeries).
absl::StatusOr<PeersFigures> ParsePeersFigures(absl::string_view text);

std::string PeersPage(const PeersFigures& figures);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_PEERS_PAGE_H_
