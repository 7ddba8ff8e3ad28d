// SPDX-License-Identifier: Apache-2.0
//
// HalfOpen: places of clients that have sent a hello and not proved the secret yet, shared fairly among sources.
//
// Purpose       For each source a list of its clients, the oldest first. While places are free, a source may have all of them. If none
//               is free, a new client replaces the oldest client of the source with the most places, if its own source has at least
//               two fewer. So all sources get the same share, and no source gets more than it uses.
// Ownership     The endpoint.
// Threads       The polling thread.
// Limits        `places`. An eviction compares all sources that have a place.
#ifndef SLUICE_TRANSPORT_PEER_HALF_OPEN_H_
#define SLUICE_TRANSPORT_PEER_HALF_OPEN_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace sluice::peer {

class HalfOpen {
 public:
  explicit HalfOpen(uint32_t places) : places_(places) {}

  bool full() const { return taken_ >= places_; }
  // Returns the number of places in use, of all sources together.
  uint32_t taken() const { return taken_; }
  // Returns whether one more client would use more than half of the places. The second half is for clients with a valid cookie.
  bool half_taken() const { return 2 * (uint64_t{taken_} + 1) > places_; }

  // Adds a client. `source`: from SourceOf(). `client`: number of the client at the owner. Must not be full.
  void Enter(const std::string& source, uint32_t client) {
    held_[source].push_back(client);
    ++taken_;
  }
  void Leave(const std::string& source, uint32_t client) {
    const auto found = held_.find(source);
    std::erase(found->second, client);
    if (found->second.empty()) held_.erase(found);
    --taken_;
  }
  // Returns the client that a new client of `source` replaces. Returns nullopt if a place is free, or if the source has its share.
  std::optional<uint32_t> Surplus(const std::string& source) const {
    return full() ? Oldest(source) : std::nullopt;
  }
  // Does the same if another resource is exhausted: returns the oldest client of the source with the most places, if it has at least two
  // more than `source`.
  std::optional<uint32_t> Oldest(const std::string& source) const {
    const auto own = held_.find(source);
    size_t most = (own == held_.end() ? 0 : own->second.size()) + 1;
    std::optional<uint32_t> oldest;
    for (const auto& [other, clients] : held_) {
      if (clients.size() <= most) continue;
      most = clients.size();
      oldest = clients.front();
    }
    return oldest;
  }

 private:
  const uint32_t places_;
  uint32_t taken_ = 0;
  absl::flat_hash_map<std::string, std::deque<uint32_t>> held_;
};

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_HALF_OPEN_H_
