// SPDX-License-Identifier: Apache-2.0
//
// Watch: the readers that each pass polls, busy ones first.
//
// Purpose       Stamp and expected value of all readers lie side by side, so a reader without a new message costs one load of a line
//               that no device has written. A reader that was idle for a thousand passes is polled in one pass of 16. A reader that
//               was idle for 64 times that is reported, to be announced (docs/decisions/0025).
// Ownership     The receiving endpoint. The record of each lane has a Seat, and removes it before the record ends.
// Threads       The polling thread. A callback of a pass may add and remove seats, including its own; a pass inside a pass does nothing.
// Limits        One seat for each lane. No allocation after the maximum number of lanes was reached once.
#ifndef SLUICE_TRANSPORT_LANE_WATCH_H_
#define SLUICE_TRANSPORT_LANE_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "transport/lane/reader.h"

namespace sluice::lane {

class Watch {
 public:
  static constexpr uint32_t kSweepPasses = 1024;  // passes between two checks for idle readers
  static constexpr uint32_t kSeldomPasses = 16;   // passes between two polls of an idle reader
  static constexpr uint32_t kIdleSweeps = 64;     // sweeps until an idle reader is reported

  struct Seat {
    static constexpr uint32_t kNowhere = 0xffffffff;

    const Reader* reader = nullptr;  // valid while watched
    uint32_t at = kNowhere;
    uint32_t seen = 0;         // messages taken until the last sweep
    uint32_t idle_sweeps = 0;  // sweeps in a row without a new message

    bool watched() const { return at != kNowhere; }
  };

  // Adds a reader. No effect if the seat is watched already.
  void Join(Seat* seat, const Reader& reader);
  // Removes a seat. No effect if it is not watched.
  void Leave(Seat* seat);
  // Updates the stamp that is polled. Call it after the reader has taken messages.
  void Moved(const Seat& seat) {
    if (seat.watched()) places_[seat.at] = Place(seat.reader, places_[seat.at].seat);
  }

  // Runs one pass. Calls `int visit(Seat*)` for each polled reader whose next stamp has arrived, and returns the sum of the results.
  // Calls `void idle(Seat*)` for each reader that has been idle for kIdleSweeps sweeps.
  template <typename Visit, typename Idle>
  int Look(Visit visit, Idle idle) {
    if (looking_) return 0;
    if (++passes_ % kSweepPasses == 0) Sweep(idle);
    if (rearrange_) Rearrange();
    const size_t end = passes_ % kSeldomPasses == 0 ? places_.size() : often_;
    int count = 0;
    looking_ = true;
    for (size_t i = 0; i < end; ++i) {
      if (!Reader::Ready(places_[i].stamp, places_[i].value)) continue;
      Seat* seat = places_[i].seat;
      rearrange_ = rearrange_ || seat->idle_sweeps != 0;
      seat->idle_sweeps = 0;
      count += visit(seat);
    }
    looking_ = false;
    return count;
  }

  template <typename Each>
  void ForEach(Each each) {
    for (size_t i = 0; i < places_.size(); ++i) {
      if (places_[i].seat != nullptr) each(places_[i].seat);
    }
  }

  bool empty() const { return places_.empty(); }
  size_t size() const { return places_.size(); }
  // Returns the number of readers that each pass polls.
  size_t often() const { return often_; }

 private:
  struct Place {
    Place(const Reader* reader, Seat* who)
        : stamp(reader->stamp()), value(reader->value()), seat(who) {}
    Place() = default;

    static constexpr uint64_t kNothingThere = kScrubbed;
    const uint64_t* stamp = &kNothingThere;
    uint32_t value = 0;
    Seat* seat = nullptr;  // null: free
  };

  template <typename Idle>
  void Sweep(Idle idle) {
    ForEach([&](Seat* seat) {
      const uint32_t taken = seat->reader->taken();
      if (std::exchange(seat->seen, taken) != taken) {
        seat->idle_sweeps = 0;
      } else if (++seat->idle_sweeps >= kIdleSweeps) {
        idle(seat);
      }
    });
    rearrange_ = true;
  }
  void Rearrange();

  std::vector<Place> places_;  // [0, often_) are polled in each pass, the rest seldom
  uint32_t often_ = 0;
  uint32_t passes_ = 0;
  bool looking_ = false;    // a pass runs: places must not move
  bool rearrange_ = false;  // places are free, or in the wrong part of the list
};

}  // namespace sluice::lane

#endif  // SLUICE_TRANSPORT_LANE_WATCH_H_
