// SPDX-License-Identifier: Apache-2.0
//
// Node: a simulated host: a device, its QP numbers, its way out, and its faults. Each node has its own QP
// numbers, as real hosts do: the same number on two nodes names two queue pairs.
//
// Threads       One thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_NODE_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_NODE_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "transport/softdc/model/soft_device.h"
#include "transport/softdc/sim/channel.h"
#include "transport/softdc/sim/message.h"
#include "transport/softdc/sim/way_out.h"

namespace sluice::softdc::sim {

class SimPort;

// The 24-bit QP numbers of a device, each with its holder. Numbers are allocated in ascending order, so that
// a number is not reused soon. A new life of the node may start again at the first number, which models the
// reuse of the numbers of a dead process.
class NodeNumbers {
 public:
  static constexpr uint32_t kFirst = 0x100;
  static constexpr uint32_t kFirstReserved = 0x100000;
  static constexpr uint32_t kEnd = 0x1000000;

  // Returns kNoNumber if all numbers are in use.
  uint32_t Allocate(SimPort* holder);
  uint32_t AllocateReserved();
  bool Free(uint32_t number, const SimPort* holder);
  SimPort* HolderOf(uint32_t number) const {
    const uint32_t index = number - kFirst;
    return index < holders_.size() ? holders_[index] : nullptr;
  }
  // From now on, allocates the lowest free number instead of the next number.
  void ReissueFreed() { reissue_freed_ = true; }
  // Frees all numbers. `reissue`: allocation starts again at the first number.
  void BeginLife(bool reissue);

 private:
  std::vector<SimPort*> holders_;  // by number, from kFirst
  uint32_t next_ = kFirst;
  uint32_t next_reserved_ = kFirstReserved;
  bool reissue_freed_ = false;
};

struct Node {
  explicit Node(EventQueue* clock) : way_out(clock) {}

  uint32_t index = 0;
  std::unique_ptr<SoftDevice> device;
  std::vector<ibv_gid> gids;
  NodeNumbers numbers;
  std::vector<SimPort*> ports;  // open contexts of this life and of earlier lives

  uint32_t life = 1;
  bool up = true;  // false from Kill to Revive
  bool paused = false;
  bool port_up = true;
  bool plugged = true;

  WayOut way_out;
  struct Held {
    Message* message;
    bool answer;
  };
  std::deque<Held> held;  // arrived while paused
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_NODE_H_
