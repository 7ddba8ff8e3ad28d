// SPDX-License-Identifier: Apache-2.0
#include "tools/capability_use.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::tools {
namespace {

using verbs::CapabilityReport;
using verbs::Feature;

std::string Said(const CapabilityReport& report, Feature feature) {
  return report.Get(feature).why;
}

CapabilityUse StreamIsolation(const CapabilityReport& report) {
  CapabilityUse use{.name = "stream isolation",
                    .call = "mlx5dv_dci_stream_id_reset",
                    .fallback = "a failed peer costs a recovery of the whole send queue (DCI)"};
  use.in_use = report.Has(Feature::kStreams) && report.Has(Feature::kStreamReset);
  use.why = report.Has(Feature::kStreams) ? absl::StrCat(Said(report, Feature::kStreams), "; ",
                                                         Said(report, Feature::kStreamReset))
                                          : Said(report, Feature::kStreams);
  return use;
}

CapabilityUse ReservedNumbers(const CapabilityReport& report) {
  return {.name = "CM-safe numbers",
          .call = "mlx5dv_reserved_qpn_alloc",
          .in_use = report.Has(Feature::kReservedQpn),
          .why = Said(report, Feature::kReservedQpn),
          .fallback = "a dummy queue pair owns the number of each connection"};
}

CapabilityUse CongestionControl(const CapabilityReport& report) {
  return {.name = "per-destination CC",
          .call = "mlx5dv_map_ah_to_qp",
          .in_use = report.Has(Feature::kAhMapping),
          .why = absl::StrCat(Said(report, Feature::kAhMapping),
                              "; ECE: ", Said(report, Feature::kEce)),
          .fallback = "address handles stay unmapped; the port's congestion control applies"};
}

CapabilityUse PayloadPolling(const CapabilityReport& report) {
  return {.name = "payload polling",
          .call = "ibv_query_qp_data_in_order",
          .in_use = report.Has(Feature::kDataInOrder),
          .why = Said(report, Feature::kDataInOrder),
          .fallback = "the completion queue is polled"};
}

CapabilityUse SignedTransfers(const CapabilityReport& report) {
  return {
      .name = "signed transfers",
      .call = "MLX5DV_QP_CREATE_SIG_PIPELINING",
      .in_use = report.Has(Feature::kSignature) && report.Has(Feature::kSigPipelining),
      .why = absl::StrCat("of protected bulk transfers: ", Said(report, Feature::kSignature), "; ",
                          Said(report, Feature::kSigPipelining)),
      .fallback = "signatures are checked, by the device or the CPU, before the reply is posted"};
}

}  // namespace

std::array<CapabilityUse, kCapabilityCount> CapabilitiesInUse(const CapabilityReport& report) {
  return {StreamIsolation(report), ReservedNumbers(report), CongestionControl(report),
          PayloadPolling(report), SignedTransfers(report)};
}

std::string CapabilityText(const CapabilityReport& report) {
  const auto uses = CapabilitiesInUse(report);
  const auto count =
      std::count_if(uses.begin(), uses.end(), [](const auto& use) { return use.in_use; });
  std::string text =
      absl::StrFormat("hardware capabilities: %d of %d in use\n", count, kCapabilityCount);
  for (const CapabilityUse& use : uses) {
    absl::StrAppendFormat(&text, "  %-18s  %-10s  %s\n", use.name,
                          use.in_use ? "in use" : "not in use", use.call);
    absl::StrAppendFormat(&text, "  %-18s  why: %s\n", "", use.why);
    if (!use.in_use) absl::StrAppendFormat(&text, "  %-18s  instead: %s\n", "", use.fallback);
  }
  return text;
}

}  // namespace sluice::tools
