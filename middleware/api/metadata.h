// SPDX-License-Identifier: Apache-2.0
//
// Metadata: keys and values that a request or a reply carries beside its message, for example a
// caller, a trace or a token.
//
// Ownership     A value.
// Threads       Const functions: any, at the same time. Other functions: one at a time.
// Limits        8 KiB in total in wire format, counted towards max_message_bytes. A key has
//               1 to 64 characters of "a-z 0-9 - _ .".
// Cost          A call without metadata costs nothing. A call with metadata allocates on both
//               sides.
#ifndef SLUICE_MIDDLEWARE_API_METADATA_H_
#define SLUICE_MIDDLEWARE_API_METADATA_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace sluice {

class Metadata {
 public:
  Metadata() = default;
  // Parses metadata of a peer. Entries that cannot be parsed are omitted.
  static Metadata FromWire(std::string_view wire);

  // Adds an entry. A key may occur more than once. Errors: INVALID_ARGUMENT (not a valid key),
  // RESOURCE_EXHAUSTED (over the limit).
  absl::Status Add(std::string_view key, std::string_view value);
  // Replaces all entries of the key by this one. Errors as Add(); then nothing has changed.
  absl::Status Set(std::string_view key, std::string_view value);
  void Clear();

  // Results refer to this object, and are valid until it is changed or destroyed. Calls on a
  // temporary do not compile.
  // Returns the first value of the key.
  std::optional<std::string_view> Find(std::string_view key) const&;
  std::optional<std::string_view> Find(std::string_view key) const&& = delete;
  const std::vector<std::pair<std::string, std::string>>& entries() const& { return entries_; }
  const std::vector<std::pair<std::string, std::string>>& entries() const&& = delete;
  // Serialised sluice.MetadataEntries.
  const std::string& wire() const& { return wire_; }
  const std::string& wire() const&& = delete;

 private:
  std::vector<std::pair<std::string, std::string>> entries_;
  std::string wire_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_METADATA_H_
