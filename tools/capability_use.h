// SPDX-License-Identifier: Apache-2.0
//
// The five hardware capabilities that Sluice exists to use: which of them this version uses on this
// device, which not, and why. The device's own report (transport/verbs/capabilities.h) says what it
// can do; this says what is made of it.
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
