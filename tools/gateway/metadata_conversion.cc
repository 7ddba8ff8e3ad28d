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

bool IsText(std::string_view value) {
  return std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

absl::Status FromGrpc(const GrpcMetadata& entries, Metadata* metadata) {
  for (const auto& [key, value] : entries) {
    const std::string_view name(key.data(), key.size());
    if (IsOfTransport(name)) continue;
    absl::Status added = metadata->Add(name, std::string_view(value.data(), value.size()));
    if (!added.ok()) return added;
  }
  return absl::OkStatus();
}

std::vector<std::pair<std::string, std::string>> ToGrpc(const Metadata& metadata) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (const auto& [key, value] : metadata.entries()) {
    if (IsOfTransport(key)) continue;
    const bool fits = key.ends_with("-bin") || IsText(value);
    entries.emplace_back(fits ? key : absl::StrCat(key, "-bin"), value);
  }
  return entries;
}

}  // namespace sluice::gateway
