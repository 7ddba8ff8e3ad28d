// SPDX-License-Identifier: Apache-2.0
//
// CongestionProfiles: from what a peer offers in the ECE exchange to a template DCI that carries
// what the device made of it. Address handles are mapped to templates (address_handles.h), so that
// packets to the peer follow the congestion control that both ends agreed on.
//
//   peer's options --ibv_set_ece--> DCI in INIT --> RTR --ibv_query_ece--> accepted options
//
// Peers whose negotiation ends in the same options share a template. A peer that offers nothing, or
// something this device does not take, gets the default profile: the endpoint's own first DCI, with
// what the device does by itself. No message is ever posted to a template.
//
// Who owns it   The endpoint; context and protection domain outlive it.
// Which thread  Inside Commands only (making a DCI blocks), one at a time. Profiles are constant once
//               they are handed out, and live as long as this object.
// Bound         kMaxTemplates DCIs; peers beyond get the default profile, which says why.
#ifndef SLUICE_TRANSPORT_PATH_CONGESTION_PROFILES_H_
#define SLUICE_TRANSPORT_PATH_CONGESTION_PROFILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "transport/verbs/handles.h"

namespace sluice::path {

struct Profile {
  ibv_ece accepted = {};      // to be returned to the peer; vendor 0: nothing was agreed
  uint32_t template_qpn = 0;  // the DCI to map address handles to
  std::string why_default;    // empty: a template of its own
};

class CongestionProfiles {
 public:
  static constexpr size_t kMaxTemplates = 16;

  // `negotiate`: the device takes part in the exchange (Feature::kEce). `default_qpn` outlives this
  // object.
  CongestionProfiles(const verbs::VerbsApi& api, ibv_context* context, ibv_pd* pd,
                     const verbs::PathOptions& path, bool negotiate, uint32_t default_qpn);

  // Never null. `offered` is what the peer's request or response carried.
  const Profile* Of(const ibv_ece& offered);

  // Templates made from now on stand at this entry of the GID table.
  void UseAddress(uint8_t sgid_index) { path_.sgid_index = sgid_index; }

  size_t templates() const { return templates_.size(); }

 private:
  const Profile* Default(std::string why);
  absl::StatusOr<const Profile*> Negotiate(const ibv_ece& offered);

  const verbs::VerbsApi& api_;
  ibv_context* const context_;
  ibv_pd* const pd_;
  verbs::PathOptions path_;
  const bool negotiate_;
  const uint32_t default_qpn_;

  verbs::Cq cq_;  // before the DCIs that refer to it
  std::vector<verbs::Qp> templates_;
  std::vector<std::unique_ptr<Profile>> profiles_;
  absl::flat_hash_map<uint64_t, const Profile*> by_offer_;
  absl::flat_hash_map<std::string, const Profile*> defaults_;  // by reason
};

}  // namespace sluice::path

#endif  // SLUICE_TRANSPORT_PATH_CONGESTION_PROFILES_H_
