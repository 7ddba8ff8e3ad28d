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
    uint32_t tenant = 0;  // place of its source
  };

  // None: of one who demands no secret.
  explicit Keyring(std::vector<absl::StatusOr<Secrets>> of_tenant);
  // An empty source stands for no secret: whoever has none belongs to it.
  static Keyring Read(const std::vector<SecretSource>& sources);
  static absl::StatusOr<Secrets> ReadOne(const SecretSource& source);

  // nullopt: nobody's; or more than one tenant's, which leaves open whose peer it is.
  std::optional<Found> Find(SecretId id) const;
  // What own hellos are made with: the first tenant's first, or why it could not be read.
  absl::StatusOr<Secret> own() const;
  // A secret is demanded of peers.
  bool demanded() const;
  // What is wrong with any of it: a source that could not be read, a secret of two tenants.
  absl::Status Check() const;

 private:
  std::vector<absl::StatusOr<Secrets>> of_tenant_;  // never empty
};

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_KEYRING_H_
