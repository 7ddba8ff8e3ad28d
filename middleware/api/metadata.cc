// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/metadata.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "middleware/frame/frame.h"
#include "proto/metadata.pb.h"
#include "transport/base/error.h"

namespace sluice {
namespace {

constexpr size_t kMaxKeyBytes = 64;

bool IsKey(std::string_view key) {
  if (key.empty() || key.size() > kMaxKeyBytes) return false;
  for (const char c : key) {
    const bool fits = absl::ascii_islower(static_cast<unsigned char>(c)) ||
                      absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-' || c == '_' ||
                      c == '.';
    if (!fits) return false;
  }
  return true;
}

std::string Shown(std::string_view key) {
  return absl::CHexEscape(absl::string_view(key.data(), std::min(key.size(), kMaxKeyBytes)));
}

}  // namespace

Metadata Metadata::FromWire(std::string_view wire) {
  Metadata metadata;
  MetadataEntries entries;
  if (!entries.ParseFromArray(wire.data(), static_cast<int>(wire.size()))) return metadata;
  for (const MetadataEntries::Entry& entry : entries.entries()) {
    if (IsKey(entry.key())) metadata.entries_.emplace_back(entry.key(), entry.value());
  }
  metadata.wire_.assign(wire);
  return metadata;
}

absl::Status Metadata::Add(std::string_view key, std::string_view value) {
  if (!IsKey(key)) {
    return base::Error(absl::StatusCode::kInvalidArgument, "metadata not added",
                       {.layer = "api",
                        .operation = "add metadata",
                        .cause = absl::StrCat("\"", Shown(key), "\" is not a key"),
                        .remedy = "name it with 1 to 64 of a-z 0-9 - _ ."});
  }
  MetadataEntries one;
  MetadataEntries::Entry* entry = one.add_entries();
  entry->set_key(std::string(key));
  entry->set_value(std::string(value));
  // The field is repeated, so serialised entries can be appended.
  const std::string bytes = one.SerializeAsString();
  if (wire_.size() + bytes.size() > frame::kMaxMetadataBytes) {
    return base::Error(absl::StatusCode::kResourceExhausted, "metadata not added",
                       {.layer = "api",
                        .operation = "add metadata",
                        .cause = absl::StrCat("with \"", Shown(key), "\" it would be ",
                                              wire_.size() + bytes.size(), " bytes, the limit is ",
                                              frame::kMaxMetadataBytes),
                        .remedy = "put large values into the message"});
  }
  wire_ += bytes;
  entries_.emplace_back(key, value);
  return absl::OkStatus();
}

absl::Status Metadata::Set(std::string_view key, std::string_view value) {
  Metadata others;
  for (const auto& [name, old] : entries_) {
    if (name == key) continue;
    if (absl::Status added = others.Add(name, old); !added.ok()) return added;
  }
  if (absl::Status added = others.Add(key, value); !added.ok()) return added;
  *this = std::move(others);
  return absl::OkStatus();
}

void Metadata::Clear() {
  entries_.clear();
  wire_.clear();
}

std::optional<std::string_view> Metadata::Find(std::string_view key) const& {
  for (const auto& [name, value] : entries_) {
    if (name == key) return value;
  }
  return std::nullopt;
}

}  // namespace sluice
