// SPDX-License-Identifier: Apache-2.0
//
// CapabilityReport: the features of a device that Sluice can use, with the reason for each. They
// are found by queries and one trial object, and never inferred from a version or the name of a
// card.
//
// Threads       A value.
#ifndef SLUICE_TRANSPORT_VERBS_CAPABILITIES_H_
#define SLUICE_TRANSPORT_VERBS_CAPABILITIES_H_

#include <array>
#include <string>
#include <string_view>

namespace sluice::verbs {

enum class Feature {
  kDc,           // DCI and DCT
  kStreams,      // DCI streams
  kStreamReset,  // mlx5dv_dci_stream_id_reset
  kReservedQpn,  // mlx5dv_reserved_qpn_alloc
  kAhMapping,    // mlx5dv_map_ah_to_qp
  kEce,          // enhanced connection establishment
  kDataInOrder,  // ibv_query_qp_data_in_order
  kSignature,    // signature mkeys
  kSigPipelining,
};
inline constexpr int kFeatureCount = 9;

// Returns "dc", "streams", "stream reset", …
std::string_view Name(Feature feature);

struct Capability {
  Feature feature = Feature::kDc;
  bool on = false;
  std::string why = "not probed";
};

class CapabilityReport {
 public:
  CapabilityReport();

  void Set(Feature feature, bool on, std::string why);
  const Capability& Get(Feature feature) const { return all_[static_cast<size_t>(feature)]; }
  bool Has(Feature feature) const { return Get(feature).on; }
  const std::array<Capability, kFeatureCount>& all() const { return all_; }

  // Returns one line per feature: "streams          on   64 concurrent, 16 errored".
  std::string ToString() const;

 private:
  std::array<Capability, kFeatureCount> all_;
};

}  // namespace sluice::verbs

#endif  // SLUICE_TRANSPORT_VERBS_CAPABILITIES_H_
