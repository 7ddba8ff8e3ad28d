// SPDX-License-Identifier: Apache-2.0
//
// CongestionProfiles: finds the template DCI for the ECE options that a peer offers. Address handles are mapped to templates
// (address_handles.h), so that packets to the peer use the congestion control to which both sides agreed.
//
//   peer's options --ibv_set_ece--> DCI in INIT --> RTR --ibv_query_ece--> accepted options
//
// Peers with the same result share a template. An unused template is kept for the next peer; if all are taken, the longest unused one is
// replaced. A peer that offers nothing, or options that this device refuses, gets the default profile: the endpoint's own first DCI with
// the defaults of the device. No message is posted to a template.
//
// Ownership     The endpoint. Context and protection domain outlive it.
// Threads       Only inside Commands (creating a DCI blocks), one at a time. A profile is constant from its delivery to its release.
// Limits        kMaxTemplates DCIs. While all are in use, peers with other options get the default profile, which states the reason.
//               kMaxOffers offers are cached; at the limit the whole cache is cleared.
#ifndef SLUICE_TRANSPORT_PATH_CONGESTION_PROFILES_H_
#define SLUICE_TRANSPORT_PATH_CONGESTION_PROFILES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "transport/verbs/handles.h"

namespace sluice::path {

struct Profile {
  ibv_ece accepted = {};      // to be returned to the peer; vendor 0: nothing was agreed
  uint32_t template_qpn = 0;  // the DCI to map address handles to
  std::string why_default;    // empty: not the default profile
};

class CongestionProfiles {
 public:
  static constexpr size_t kMaxTemplates = 16;
  static constexpr size_t kMaxOffers = 256;

  // `negotiate`: the device takes part in the exchange (Feature::kEce). `default_qpn` outlives this
  // object.
  CongestionProfiles(const verbs::VerbsApi& api, ibv_context* context, ibv_pd* pd,
                     const verbs::PathOptions& path, bool negotiate, uint32_t default_qpn);

  // Returns the profile for the ECE options in the peer's request or response. Never null. The caller uses it until Release().
  const Profile* Of(const ibv_ece& offered);
  // Releases a profile from Of(), when neither the caller nor the handles mapped for it need the profile.
  void Release(const Profile* profile);
  // Sets a callback that runs before a template is destroyed: unused address handles may still be mapped to the template.
  void OnEvict(std::function<void(uint32_t template_qpn)> forget) { forget_ = std::move(forget); }

  // Sets the entry of the GID table for templates that are created from now on.
  void UseAddress(uint8_t sgid_index) { path_.sgid_index = sgid_index; }

  size_t templates() const { return templates_.size(); }
  size_t offers() const { return by_offer_.size(); }

 private:
  struct Template {
    Profile profile;
    verbs::Qp dci;
    uint32_t users = 0;
    uint64_t released = 0;  // releases_ at the last Release()
  };

  const Profile* Default(std::string why);
  Template* Find(const Profile* profile) const;
  const Profile* Share(const Profile* profile);
  Template* Unused() const;
  void Evict(Template* unused);
  absl::StatusOr<const Profile*> Negotiate(const ibv_ece& offered);

  const verbs::VerbsApi& api_;
  ibv_context* const context_;
  ibv_pd* const pd_;
  verbs::PathOptions path_;
  const bool negotiate_;
  const uint32_t default_qpn_;

  verbs::Cq cq_;  // before the DCIs that refer to it
  std::vector<std::unique_ptr<Template>> templates_;
  uint64_t releases_ = 0;
  std::function<void(uint32_t)> forget_;
  absl::flat_hash_map<uint64_t, const Profile*> by_offer_;
  absl::flat_hash_map<std::string, std::unique_ptr<const Profile>> defaults_;  // by reason
};

}  // namespace sluice::path

#endif  // SLUICE_TRANSPORT_PATH_CONGESTION_PROFILES_H_
