// SPDX-License-Identifier: Apache-2.0
//
// Offers: the ECE offers of connected peers, each kept once. Private to transport/endpoint.
//
// Purpose       Many peers make the same offer. A peer's record has one byte for its offer, the index of an entry here. Offers are
//               for reports only.
// Ownership     The endpoint.
// Threads       The polling thread.
// Limits        kMost different offers of connected peers. Further offers are not kept, and reports do not show them.
#ifndef SLUICE_TRANSPORT_ENDPOINT_OFFERS_H_
#define SLUICE_TRANSPORT_ENDPOINT_OFFERS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/endpoint/endpoint.h"

namespace sluice::endpoint {

class Offers {
 public:
  static constexpr size_t kMost = 255;
  static constexpr uint8_t kNone = 0;

  // Returns the number of an entry for the offer, which the caller holds until Release(). kNone: no offer, or the table is full.
  uint8_t Take(const Ece& offer) {
    if (offer.vendor_id == 0 && offer.options == 0) return kNone;
    Entry* free = nullptr;
    for (Entry& entry : entries_) {
      if (entry.users == 0) {
        free = &entry;
      } else if (entry.offer.vendor_id == offer.vendor_id && entry.offer.options == offer.options) {
        return Use(&entry);
      }
    }
    if (free == nullptr) {
      if (entries_.size() == kMost) return kNone;
      free = &entries_.emplace_back();
    }
    free->offer = offer;
    return Use(free);
  }
  void Release(uint8_t number) {
    if (number != kNone) --entries_[number - 1].users;
  }
  Ece At(uint8_t number) const { return number == kNone ? Ece() : entries_[number - 1].offer; }

 private:
  struct Entry {
    Ece offer;
    uint32_t users = 0;  // 0: free
  };

  uint8_t Use(Entry* entry) {
    ++entry->users;
    return static_cast<uint8_t>(entry - entries_.data() + 1);
  }

  std::vector<Entry> entries_;
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_OFFERS_H_
