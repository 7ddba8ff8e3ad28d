// SPDX-License-Identifier: Apache-2.0
//
// Personalities: possible kinds of devices, each a file of dials in this folder. `./dev personalities` runs
// tests under each.
//
// Threads       Constants.
#ifndef SLUICE_TRANSPORT_SOFTDC_CONFIG_PERSONALITIES_PERSONALITIES_H_
#define SLUICE_TRANSPORT_SOFTDC_CONFIG_PERSONALITIES_PERSONALITIES_H_

#include <span>
#include <string_view>

namespace sluice::softdc {

struct Personality {
  std::string_view name;   // of the file, without ".textproto": [a-z0-9_]+
  std::string_view dials;  // its text, in the format of ParseDials
};

// Returns all personalities, sorted by name, with "as_documented" first.
std::span<const Personality> Personalities();

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_CONFIG_PERSONALITIES_PERSONALITIES_H_
