// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/secrets.h"

#include "transport/base/error.h"
#include "transport/peer/wire.h"

namespace sluice::peer {
namespace {

constexpr char kRemedy[] = "make one with: head -c 32 /dev/urandom | base64";

Secret FromText(const std::string& text) {
  Secret secret;
  secret.master = KeyFromText(text);
  if (text.empty()) return secret;
  secret.id = Load<uint32_t>(Derive(secret.master, "sluice id").data());
  if (secret.id == 0) secret.id = 1;  // 0 means no secret
  return secret;
}

absl::Status Bad(const std::string& what, const std::string& cause) {
  return base::Error(
      absl::StatusCode::kInvalidArgument, what,
      {.layer = "peer", .operation = "read secrets", .cause = cause, .remedy = kRemedy});
}

}  // namespace

void WipeTexts(std::vector<std::string>* texts) {
  for (std::string& text : *texts) Wipe(text.data(), text.size());
  texts->clear();
}

Secrets::Secrets() { secrets_.push_back(FromText("")); }

absl::StatusOr<Secrets> Secrets::FromTexts(const std::vector<std::string>& texts) {
  if (texts.empty()) {
    return Bad("there is no secret where one was configured",
               "its file or function gave none, and without a secret any peer could connect");
  }
  if (texts.size() > kMostSecrets) {
    return Bad("there are " + std::to_string(texts.size()) + " secrets",
               "at most " + std::to_string(kMostSecrets) + " are taken at once");
  }
  Secrets all;
  all.secrets_.clear();
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() < kLeastBytes || texts[i].size() > kMostBytes) {
      return Bad("secret number " + std::to_string(i + 1) + " has " +
                     std::to_string(texts[i].size()) + " bytes",
                 "a secret has " + std::to_string(kLeastBytes) + " to " +
                     std::to_string(kMostBytes) + " bytes, and should be random");
    }
    all.secrets_.push_back(FromText(texts[i]));
  }
  return all;
}

const Secret* Secrets::Find(SecretId id) const {
  for (const Secret& secret : secrets_) {
    if (secret.id == id) return &secret;
  }
  return nullptr;
}

}  // namespace sluice::peer
