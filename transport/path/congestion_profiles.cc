// SPDX-License-Identifier: Apache-2.0
#include "transport/path/congestion_profiles.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "transport/base/error.h"

namespace sluice::path {
namespace {

uint64_t Key(const ibv_ece& ece) { return uint64_t{ece.vendor_id} << 32 | ece.options; }

}  // namespace

CongestionProfiles::CongestionProfiles(const verbs::VerbsApi& api, ibv_context* context, ibv_pd* pd,
                                       const verbs::PathOptions& path, bool negotiate,
                                       uint32_t default_qpn)
    : api_(api),
      context_(context),
      pd_(pd),
      path_(path),
      negotiate_(negotiate),
      default_qpn_(default_qpn) {}

const Profile* CongestionProfiles::Of(const ibv_ece& offered) {
  if (!negotiate_) return Default("this device has no ECE");
  // Options 0 mean "nothing to set": what a kernel returns for a peer that took no part.
  if (offered.vendor_id == 0 || offered.options == 0) return Default("the peer offered no ECE");
  if (const auto found = by_offer_.find(Key(offered)); found != by_offer_.end()) {
    return Share(found->second);
  }
  if (templates_.size() >= kMaxTemplates && Unused() == nullptr) {
    return Default(absl::StrCat("all ", kMaxTemplates, " template DCIs are in use"));
  }
  const absl::StatusOr<const Profile*> profile = Negotiate(offered);
  // Not cached: the failure may be temporary, for example a lack of memory.
  if (!profile.ok()) return Default(std::string(profile.status().message()));
  if (by_offer_.size() >= kMaxOffers) by_offer_.clear();
  by_offer_[Key(offered)] = *profile;
  return Share(*profile);
}

void CongestionProfiles::Release(const Profile* profile) {
  Template* of = Find(profile);
  if (of == nullptr) return;  // the default profile has no users
  --of->users;
  of->released = ++releases_;
}

CongestionProfiles::Template* CongestionProfiles::Find(const Profile* profile) const {
  for (const auto& one : templates_) {
    if (&one->profile == profile) return one.get();
  }
  return nullptr;
}

const Profile* CongestionProfiles::Share(const Profile* profile) {
  if (Template* of = Find(profile); of != nullptr) ++of->users;
  return profile;
}

// Returns the template that has been unused for the longest time; null: all are in use.
CongestionProfiles::Template* CongestionProfiles::Unused() const {
  Template* unused = nullptr;
  for (const auto& one : templates_) {
    if (one->users != 0) continue;
    if (unused == nullptr || one->released < unused->released) unused = one.get();
  }
  return unused;
}

void CongestionProfiles::Evict(Template* unused) {
  if (forget_) forget_(unused->profile.template_qpn);
  absl::erase_if(by_offer_, [&](const auto& entry) { return entry.second == &unused->profile; });
  std::erase_if(templates_, [&](const auto& one) { return one.get() == unused; });
}

absl::StatusOr<const Profile*> CongestionProfiles::Negotiate(const ibv_ece& offered) {
  if (!cq_) {
    auto cq = verbs::CreateCq(api_, context_, 1, nullptr);
    if (!cq.ok()) return cq.status();
    cq_ = std::move(*cq);
  }
  auto dci = verbs::CreateDci(api_, context_, pd_, cq_.get(), {.send_depth = 1});
  if (!dci.ok()) return dci.status();
  const ibv_ece asked = {.vendor_id = offered.vendor_id, .options = offered.options};
  if (absl::Status status = verbs::ActivateDci(api_, dci->get(), path_, &asked); !status.ok()) {
    return status;
  }
  ibv_ece accepted = {};
  const int error_number = api_.query_ece(dci->get(), &accepted);
  if (error_number != 0) {
    return base::ErrnoError(error_number, "ibv_query_ece (DCI)", {.layer = "path"});
  }
  if (accepted.options == 0) return Default("this device took none of the options offered");
  for (const auto& one : templates_) {
    if (Key(one->profile.accepted) == Key(accepted)) return &one->profile;  // shared
  }
  if (templates_.size() >= kMaxTemplates) Evict(Unused());
  templates_.push_back(std::make_unique<Template>(
      Template{.profile = {.accepted = accepted, .template_qpn = dci->number(), .why_default = ""},
               .dci = std::move(*dci)}));
  return &templates_.back()->profile;
}

const Profile* CongestionProfiles::Default(std::string why) {
  std::unique_ptr<const Profile>& profile = defaults_[why];
  if (profile == nullptr) {
    profile = std::make_unique<const Profile>(
        Profile{.accepted = {}, .template_qpn = default_qpn_, .why_default = std::move(why)});
  }
  return profile.get();
}

}  // namespace sluice::path
