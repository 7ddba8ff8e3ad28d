// SPDX-License-Identifier: Apache-2.0
#include "tools/gateway/metadata_conversion.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace sluice::gateway {
namespace {

bool IsOfTransport(std::string_view key) {
  return key.starts_with("grpc-") || key == "user-agent" || key == "content-type" || key == "te" ||
         key == "host" || key == "connection";
}

// As gRPC has it. It takes "-bin" alone for a key of text.
bool IsBinary(std::string_view key) { return key.size() > 4 && key.ends_with("-bin"); }

bool IsText(std::string_view value) {
  return std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

absl::Status FromGrpc(const GrpcMetadata& entries, Metadata* metadata) {
  absl::Status first;
  for (const auto& [key, value] : entries) {
    const std::string_view name(key.data(), key.size());
    if (IsOfTransport(name)) continue;
    first.Update(metadata->Add(name, std::string_view(value.data(), value.size())));
  }
  return first;
}

std::vector<std::pair<std::string, std::string>> ToGrpc(const Metadata& metadata) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (const auto& [key, value] : metadata.entries()) {
    if (IsOfTransport(key)) continue;
    const bool fits = IsBinary(key) || IsText(value);
    entries.emplace_back(fits ? key : absl::StrCat(key, "-bin"), value);
  }
  return entries;
}

}  // namespace sluice::gateway
