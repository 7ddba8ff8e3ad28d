// SPDX-License-Identifier: Apache-2.0
//
// The five hardware capabilities for which Sluice was built: for each, whether this version uses it on this device, and the reason. The
// report of the device (transport/verbs/capabilities.h) lists what the device can do; this file states what Sluice uses.
#ifndef SLUICE_TOOLS_CAPABILITY_USE_H_
#define SLUICE_TOOLS_CAPABILITY_USE_H_

#include <array>
#include <string>

#include "transport/verbs/capabilities.h"

namespace sluice::tools {

struct CapabilityUse {
  std::string name;
  std::string call;  // the verbs call behind it
  bool in_use = false;
  std::string why;
  std::string fallback;  // what Sluice does without it
};

inline constexpr int kCapabilityCount = 5;

std::array<CapabilityUse, kCapabilityCount> CapabilitiesInUse(
    const verbs::CapabilityReport& report);

// For people: a head line, then two lines each.
std::string CapabilityText(const verbs::CapabilityReport& report);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_CAPABILITY_USE_H_
