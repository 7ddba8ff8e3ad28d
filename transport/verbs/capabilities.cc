// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/capabilities.h"

#include <utility>

namespace sluice::verbs {

std::string_view Name(Feature feature) {
  switch (feature) {
    case Feature::kDc:
      return "dc";
    case Feature::kStreams:
      return "streams";
    case Feature::kStreamReset:
      return "stream reset";
    case Feature::kReservedQpn:
      return "reserved qpn";
    case Feature::kAhMapping:
      return "ah mapping";
    case Feature::kEce:
      return "ece";
    case Feature::kDataInOrder:
      return "data in order";
    case Feature::kSignature:
      return "signature";
    case Feature::kSigPipelining:
      return "sig pipelining";
  }
  return "unknown";
}

CapabilityReport::CapabilityReport() {
  for (int i = 0; i < kFeatureCount; ++i) {
    all_[static_cast<size_t>(i)].feature = static_cast<Feature>(i);
  }
}

void CapabilityReport::Set(Feature feature, bool on, std::string why) {
  all_[static_cast<size_t>(feature)] = {feature, on, std::move(why)};
}

std::string CapabilityReport::ToString() const {
  std::string text;
  for (const Capability& capability : all_) {
    std::string line(Name(capability.feature));
    line.resize(17, ' ');
    text += line + (capability.on ? "on   " : "off  ") + capability.why + "\n";
  }
  return text;
}

}  // namespace sluice::verbs
