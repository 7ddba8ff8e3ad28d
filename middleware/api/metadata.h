// SPDX-License-Identifier: Apache-2.0
//
// Metadata: keys and values that go with a request, or with a reply, beside its message: who asks, a trace, a token.
//
// Bound         8 KiB in all as it is on the wire, keys of 1 to 64 of a-z 0-9 - _ . ; it counts to max_message_bytes.
// Cost          A call without any pays nothing; one with some allocates at both ends.
// Thread-safety None; const use from many threads.
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
  // What a peer has sent; entries that can't be read are left out.
  static Metadata FromWire(std::string_view wire);

  // A key may be there more than once. INVALID_ARGUMENT: it is no key. RESOURCE_EXHAUSTED: too much.
  absl::Status Add(std::string_view key, std::string_view value);
  void Clear();

  // What these return refers to this object, until it is changed or destroyed. On a temporary they don't compile.
  // The first value of the key.
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
