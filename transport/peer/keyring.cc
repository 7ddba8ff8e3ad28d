// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/keyring.h"

#include <algorithm>
#include <string>
#include <utility>

#include "transport/base/error.h"

namespace sluice::peer {
absl::StatusOr<Secrets> Keyring::ReadOne(const SecretSource& source) {
  if (!source) return Secrets();
  auto texts = source.Read();
  if (!texts.ok()) return texts.status();
  auto secrets = Secrets::FromTexts(*texts);
  WipeTexts(&*texts);
  return secrets;
}

Keyring::Keyring(std::vector<absl::StatusOr<Secrets>> of_tenant)
    : of_tenant_(std::move(of_tenant)) {
  if (of_tenant_.empty()) of_tenant_.push_back(Secrets());
}

Keyring Keyring::Read(const std::vector<SecretSource>& sources) {
  std::vector<absl::StatusOr<Secrets>> of_tenant;
  for (const SecretSource& source : sources) of_tenant.push_back(ReadOne(source));
  return Keyring(std::move(of_tenant));
}

std::optional<Keyring::Found> Keyring::Find(SecretId id) const {
  std::optional<Found> found;
  for (uint32_t i = 0; i < of_tenant_.size(); ++i) {
    if (!of_tenant_[i].ok()) continue;
    const Secret* secret = of_tenant_[i]->Find(id);
    if (secret == nullptr) continue;
    if (found.has_value()) return std::nullopt;
    found = Found{.secret = *secret, .tenant = i};
  }
  return found;
}

absl::StatusOr<Secret> Keyring::own() const {
  if (!of_tenant_.front().ok()) return of_tenant_.front().status();
  return of_tenant_.front()->own();
}

bool Keyring::demanded() const {
  return std::all_of(of_tenant_.begin(), of_tenant_.end(),
                     [](const auto& secrets) { return !secrets.ok() || secrets->demanded(); });
}

absl::Status Keyring::Check() const {
  for (const auto& secrets : of_tenant_) {
    if (!secrets.ok()) return secrets.status();
  }
  for (uint32_t i = 0; i < of_tenant_.size(); ++i) {
    for (const Secret& secret : of_tenant_[i]->all()) {
      if (Find(secret.id).has_value()) continue;
      return base::Error(
          absl::StatusCode::kInvalidArgument,
          "a secret of tenant number " + std::to_string(i + 1) + " is another tenant's too",
          {.layer = "peer",
           .operation = "read secrets",
           .cause = "a peer's secret says whose peer it is, so no two tenants share one",
           .remedy = "give each tenant secrets of its own"});
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice::peer
