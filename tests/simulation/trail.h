// SPDX-License-Identifier: Apache-2.0
//
// Trail: the last things that happened to the programs of a run, as numbers; text is made of them when a run has failed.
#ifndef SLUICE_TESTS_SIMULATION_TRAIL_H_
#define SLUICE_TESTS_SIMULATION_TRAIL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::simulation {

enum class Step : uint8_t {
  kDial,
  kUp,       // end
  kDown,     // end, status code
  kCommit,   // end, number
  kDeliver,  // end, number
  kAcked,    // end, total
  kFault,    // its kind, its peer
  kHealed,
  kStart,  // a process; its life
  kCount,
};

class Trail {
 public:
  static constexpr size_t kEntries = 1 << 14;

  void Add(int64_t now_ns, uint32_t node, uint32_t peer, Step step, uint64_t a, uint64_t b) {
    entries_[count_++ % kEntries] = {now_ns, a, b, node, peer, step};
  }
  // The last `count` that are of that pair, or of one of the two with anybody where messages are not meant.
  std::string Last(size_t count, uint32_t node, uint32_t peer) const;

 private:
  struct Entry {
    int64_t now_ns;
    uint64_t a, b;
    uint32_t node, peer;
    Step step;
  };
  std::vector<Entry> entries_ = std::vector<Entry>(kEntries);
  uint64_t count_ = 0;
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_TRAIL_H_
