// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/secret_reader.h"

#include <utility>

namespace sluice::peer {

SecretReader::SecretReader(std::vector<SecretSource> sources) {
  for (SecretSource& source : sources) sources_.push_back({.source = std::move(source)});
}

std::shared_ptr<const Keyring> SecretReader::Read(base::Clock& clock) {
  std::lock_guard lock(mutex_);
  bool changed = keyring_ == nullptr;
  for (Source& one : sources_) {
    if (closed_) break;
    const int64_t now_ns = clock.NowNs();
    // The version is read before the bytes. If the bytes change in between, the version differs the next time.
    std::string version = one.source.Version();
    const bool same = !version.empty() && version == one.version;
    if (same && one.settled) continue;
    if (!same) one.since_ns = clock.NowNs();
    one.version = std::move(version);
    one.secrets = Keyring::ReadOne(one.source);
    one.settled = same && one.secrets.ok() && now_ns - one.since_ns >= kGrainNs;
    changed = true;
  }
  if (changed) {
    std::vector<absl::StatusOr<Secrets>> of_tenant;
    for (const Source& one : sources_) of_tenant.push_back(one.secrets);
    keyring_ = std::make_shared<const Keyring>(std::move(of_tenant));
  }
  return keyring_;
}

void SecretReader::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
}

}  // namespace sluice::peer
