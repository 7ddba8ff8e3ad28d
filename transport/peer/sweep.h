// SPDX-License-Identifier: Apache-2.0
//
// Sweep: the schedule of periodic checks. Each record of a table is checked once per round, a kSlices-th of them at a time. So the
// endpoint has one timer, for the next slice, and none per record.
//
//   slice 0: records 0, 64, 128 ...   slice 1: records 1, 65 ...   slice 63, then slice 0 again
//
// The table may grow during a round. Slices without records are skipped, so a table with one record costs one check per round.
#ifndef SLUICE_TRANSPORT_PEER_SWEEP_H_
#define SLUICE_TRANSPORT_PEER_SWEEP_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace sluice::peer {

class Sweep {
 public:
  static constexpr uint32_t kSlices = 64;

  explicit Sweep(int64_t round_ns) : step_ns_(std::max<int64_t>(round_ns / kSlices, 1)) {}

  void Start(int64_t now_ns) {
    slice_ = 0;
    due_ns_ = now_ns + step_ns_;
  }
  // Returns the time of the next slice.
  int64_t due_ns() const { return due_ns_; }

  // Returns whether the last Take() ended a round.
  bool round_done() const { return slice_ == 0; }

  // Returns the slice to check now, of a table of `size` records, and sets due_ns() to the time of the next slice. The time between two
  // checks of a record is at least a round minus one step, even if checks are late.
  uint32_t Take(size_t size, int64_t now_ns) {
    const uint32_t slice = slice_;
    const uint32_t next = slice + 1 < std::min<size_t>(size, kSlices) ? slice + 1 : kSlices;
    if (now_ns - due_ns_ > step_ns_) due_ns_ = now_ns;
    due_ns_ += static_cast<int64_t>(next - slice) * step_ns_;
    slice_ = next % kSlices;
    return slice;
  }

 private:
  const int64_t step_ns_;
  uint32_t slice_ = 0;
  int64_t due_ns_ = 0;
};

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_SWEEP_H_
