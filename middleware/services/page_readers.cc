// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/page_readers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "transport/base/error.h"
#include "transport/peer/secrets.h"

namespace sluice {
namespace {

constexpr size_t kMinToken = 16;
constexpr size_t kMaxToken = 256;
constexpr std::string_view kScheme = "Bearer ";

absl::Status Refused(const std::string& file, const std::string& cause, const std::string& remedy) {
  return base::Error(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("token file ", file, " is not used"),
                     {.layer = "pages",
                      .operation = "read tokens",
                      .cause = cause,
                      .remedy = remedy,
                      .retry_safe = true});
}

bool IsVisible(char c) { return c > ' ' && c < 0x7f; }

// The time that it takes depends only on the lengths.
bool SameText(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char different = 0;
  for (size_t i = 0; i < a.size(); ++i) different |= static_cast<unsigned char>(a[i] ^ b[i]);
  return different == 0;
}

}  // namespace

absl::Status PageReaders::Read(const std::vector<PageReader>& readers) {
  std::vector<Token> tokens;
  for (const PageReader& reader : readers) {
    auto lines = peer::ReadSecretFile(reader.token_file);
    if (!lines.ok()) return base::Prefix(lines.status(), "tokens of the status pages");
    if (lines->empty()) {
      return Refused(reader.token_file, "it has no token", "head -c 32 /dev/urandom | base64");
    }
    for (const std::string& line : *lines) {
      if (line.size() < kMinToken || line.size() > kMaxToken ||
          !std::all_of(line.begin(), line.end(), IsVisible)) {
        return Refused(reader.token_file,
                       absl::StrCat("a token has ", line.size(),
                                    " characters, or one that is not visible ASCII; the range is ",
                                    kMinToken, " to ", kMaxToken),
                       "head -c 32 /dev/urandom | base64");
      }
      for (const Token& other : tokens) {
        if (SameText(other.text, line)) {
          return Refused(reader.token_file, "another line or reader has the same token",
                         "give each reader tokens of its own");
        }
      }
      tokens.push_back({line, reader.tenant});
    }
    peer::WipeTexts(&*lines);
  }
  tokens_ = std::move(tokens);
  return absl::OkStatus();
}

PageViewer PageReaders::Identify(std::string_view authorization) const {
  using Rights = PageViewer::Rights;
  if (!token_required()) return {Rights::kAnyone, ""};
  if (!absl::StartsWithIgnoreCase({authorization.data(), authorization.size()},
                                  {kScheme.data(), kScheme.size()})) {
    return {};
  }
  const std::string_view presented = authorization.substr(kScheme.size());
  const Token* found = nullptr;
  for (const Token& token : tokens_) {
    if (SameText(token.text, presented)) found = &token;
  }
  if (found == nullptr) return {};
  return {found->tenant.empty() ? Rights::kOperator : Rights::kTenant, found->tenant};
}

}  // namespace sluice
