// SPDX-License-Identifier: Apache-2.0
#include "transport/lane/watch.h"

#include <algorithm>

namespace sluice::lane {

void Watch::Join(Seat* seat, const Reader& reader) {
  if (seat->watched()) return;
  seat->reader = &reader;
  seat->at = static_cast<uint32_t>(places_.size());
  seat->idle_sweeps = 0;
  places_.push_back(Place(&reader, seat));
  rearrange_ = true;
}

void Watch::Leave(Seat* seat) {
  if (!seat->watched()) return;
  places_[seat->at] = Place();
  seat->at = Seat::kNowhere;
  rearrange_ = true;
  if (!looking_) Rearrange();
}

// Removes free places, and moves busy readers to the front.
void Watch::Rearrange() {
  rearrange_ = false;
  std::erase_if(places_, [](const Place& place) { return place.seat == nullptr; });
  const auto idle = std::partition(places_.begin(), places_.end(),
                                   [](const Place& place) { return place.seat->idle_sweeps == 0; });
  often_ = static_cast<uint32_t>(idle - places_.begin());
  for (uint32_t i = 0; i < places_.size(); ++i) places_[i].seat->at = i;
}

}  // namespace sluice::lane
