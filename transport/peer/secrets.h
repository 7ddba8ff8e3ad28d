// SPDX-License-Identifier: Apache-2.0
//
// Secrets: shared by endpoints that may talk to each other. Several at once allow rotation.
//
// Ownership     The endpoint. The destructor overwrites the keys.
// Threads       Constant after creation. Read…() block: call them in Commands.
#ifndef SLUICE_TRANSPORT_PEER_SECRETS_H_
#define SLUICE_TRANSPORT_PEER_SECRETS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
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

// Where secrets come from: a function that returns the texts, first the one for own hellos. It is asked when the endpoint
// is made and for each handshake (handshakes that come while it is asked share the next answer), on a helper thread, one
// call at a time; it may block. The texts that it returns are overwritten after use. Default: no secret.
class SecretSource {
 public:
  using Texts = absl::StatusOr<std::vector<std::string>>;

  SecretSource() = default;
  // `version`, if any, names what `read` would return: it is not read again while the name stays the same. An
  // empty name: unknown.
  SecretSource(std::function<Texts()> read, std::function<std::string()> version = nullptr)
      : read_(std::move(read)), version_(std::move(version)) {}
  template <typename Read>
  requires std::is_invocable_r_v<Texts, Read&> SecretSource(Read read) : read_(std::move(read)) {}

  explicit operator bool() const { return read_ != nullptr; }
  Texts Read() const { return read_(); }
  std::string Version() const { return version_ == nullptr ? "" : version_(); }

 private:
  std::function<Texts()> read_;
  std::function<std::string()> version_;
};

// Overwrites the texts before they go.
void WipeTexts(std::vector<std::string>* texts);

// One secret a line; empty lines and those that begin with # don't count; blanks around it are
// dropped. PERMISSION_DENIED: the file is another user's (root's is fine), or group or others may
// read or write it. NOT_FOUND, INVALID_ARGUMENT say what is wrong with which file.
absl::StatusOr<std::vector<std::string>> ReadSecretFile(const std::string& path);
SecretSource SecretsFromFile(const std::string& path);

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_SECRETS_H_
