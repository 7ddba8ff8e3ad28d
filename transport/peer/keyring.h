// SPDX-License-Identifier: Apache-2.0
//
// Keyring: the secrets of all tenants of an endpoint at the time of reading. The secret of a peer identifies its tenant.
//
// Ownership     A handshake in progress, and the reader that keeps it for the next ones (secret_reader.h).
// Threads       Read() blocks as its sources do: call it in Commands. Afterwards constant.
#ifndef SLUICE_TRANSPORT_PEER_KEYRING_H_
#define SLUICE_TRANSPORT_PEER_KEYRING_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/peer/secrets.h"

namespace sluice::peer {

class Keyring {
 public:
  struct Found {
    Secret secret;
    uint32_t tenant = 0;  // index of its source
  };

  // An empty vector stands for one tenant without a secret.
  explicit Keyring(std::vector<absl::StatusOr<Secrets>> of_tenant);
  // Reads all sources. An empty source stands for no secret: peers without a secret belong to its tenant.
  static Keyring Read(const std::vector<SecretSource>& sources);
  static absl::StatusOr<Secrets> ReadOne(const SecretSource& source);

  // Returns the secret and its tenant. Returns nullopt if no tenant has it, or if several tenants have it: then the tenant is unknown.
  std::optional<Found> Find(SecretId id) const;
  // Returns the secret of this side's hellos, which is the first secret of the first tenant, or why it could not be read.
  absl::StatusOr<Secret> own() const;
  // Returns whether all tenants demand a secret from their peers.
  bool demanded() const;
  // Returns an error if a source could not be read, or if two tenants have the same secret.
  absl::Status Check() const;

 private:
  std::vector<absl::StatusOr<Secrets>> of_tenant_;  // never empty
};

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_KEYRING_H_
