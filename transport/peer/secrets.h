// SPDX-License-Identifier: Apache-2.0
//
// Secrets: what endpoints must share to talk to each other; several at once, for rotation.
//
// Who owns it   The endpoint. Keys are overwritten when they go.
// Which thread  Constant once made; Read…() block, and belong into Commands.
#ifndef SLUICE_TRANSPORT_PEER_SECRETS_H_
#define SLUICE_TRANSPORT_PEER_SECRETS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/peer/crypto.h"

namespace sluice::peer {

// Names the secret in the clear: derived from it, so both sides agree without numbering. 0 is that
// of no secret.
using SecretId = uint32_t;

struct Secret {
  SecretId id = 0;
  Key master;
};

class Secrets {
 public:
  static constexpr size_t kLeastBytes = 16;
  static constexpr size_t kMostBytes = 256;
  static constexpr size_t kMostSecrets = 16;

  // None: the handshake goes under the key of the empty text, which everybody knows.
  Secrets();
  // INVALID_ARGUMENT: none, too many, or one is too short or too long. Which one is said, never
  // what it is.
  static absl::StatusOr<Secrets> FromTexts(const std::vector<std::string>& texts);

  // Peers must prove one of them.
  bool demanded() const { return own().id != 0; }
  // What this side's hellos are made with.
  const Secret& own() const { return secrets_.front(); }
  const std::vector<Secret>& all() const { return secrets_; }
  // Null: not one of them. Id 0 is found only if none is demanded.
  const Secret* Find(SecretId id) const;

 private:
  std::vector<Secret> secrets_;  // never empty
};

// Where secrets come from: the texts, first the one for own hellos. Asked when the endpoint is made
// and again for each handshake, on the helper thread; it may block for a moment. Empty function: no
// secret.
using SecretSource = std::function<absl::StatusOr<std::vector<std::string>>()>;

// One secret a line; empty lines and those that begin with # don't count; blanks around it are
// dropped. PERMISSION_DENIED: the file is another user's (root's is fine), or group or others may
// read or write it. NOT_FOUND, INVALID_ARGUMENT say what is wrong with which file.
absl::StatusOr<std::vector<std::string>> ReadSecretFile(const std::string& path);
SecretSource SecretsFromFile(const std::string& path);

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_SECRETS_H_
