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

// Public name of a secret. It is derived from the secret, so both sides have the same id. 0 means no secret.
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

  // No secret: the handshake uses the key of the empty text, which is public.
  Secrets();
  // INVALID_ARGUMENT: no text, too many texts, or a text that is too short or too long. The message has the number of the text, never the
  // text itself.
  static absl::StatusOr<Secrets> FromTexts(const std::vector<std::string>& texts);

  // Returns whether peers must prove one of the secrets.
  bool demanded() const { return own().id != 0; }
  // Returns the secret of this side's hellos.
  const Secret& own() const { return secrets_.front(); }
  const std::vector<Secret>& all() const { return secrets_; }
  // Returns the secret with this id, or null. Finds id 0 only if no secret is demanded.
  const Secret* Find(SecretId id) const;

 private:
  std::vector<Secret> secrets_;  // never empty
};

// Source of secrets: a function that returns their texts. The first text is the secret of this side's hellos. The endpoint calls the
// function when it is created and for each handshake; handshakes that arrive during a call share the next call. The calls run on a helper
// thread, one at a time, and may block. The texts are overwritten after use. Default: no secret.
class SecretSource {
 public:
  using Texts = absl::StatusOr<std::vector<std::string>>;

  SecretSource() = default;
  // `version`, if not null, returns a name for the texts that `read` would return. The texts are not read again while the name stays the
  // same. An empty name means unknown.
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

// Overwrites the texts and removes them.
void WipeTexts(std::vector<std::string>* texts);

// Reads one secret per line. Ignores empty lines, lines that begin with #, and blanks around a secret. PERMISSION_DENIED: the file belongs
// to another user (other than root), or its group or others have any right on it. NOT_FOUND, INVALID_ARGUMENT: the message names the file
// and the problem.
absl::StatusOr<std::vector<std::string>> ReadSecretFile(const std::string& path);
SecretSource SecretsFromFile(const std::string& path);

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_SECRETS_H_
