// SPDX-License-Identifier: Apache-2.0
//
// Nearest(): returns the known name that is most similar to a misspelt one.
//
// Threads       Any: pure functions.
#ifndef SLUICE_TRANSPORT_BASE_NEAREST_H_
#define SLUICE_TRANSPORT_BASE_NEAREST_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::base {

// Returns the number of single-character edits (insert, delete, replace) that turn `a` into `b`.
size_t EditDistance(std::string_view a, std::string_view b);

// Returns the candidate with the fewest edits, or an empty string if each candidate needs more than three edits.
std::string Nearest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_NEAREST_H_
