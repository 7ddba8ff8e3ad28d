// SPDX-License-Identifier: Apache-2.0
#include "transport/base/nearest.h"

#include <algorithm>
#include <utility>

namespace sluice::base {
namespace {

constexpr size_t kFarthest = 3;  // edits

}  // namespace

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

std::string Nearest(std::string_view name, const std::vector<std::string>& candidates) {
  std::string nearest;
  size_t distance = kFarthest + 1;
  for (const std::string& candidate : candidates) {
    const size_t edits = EditDistance(name, candidate);
    if (edits < distance) {
      distance = edits;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace sluice::base
