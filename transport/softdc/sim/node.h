// SPDX-License-Identifier: Apache-2.0
//
// Node: one simulated host: a device, its numbers, its way out, and what has been done to it.
// Numbers are a node's own, as on real hosts: the same number on two nodes names two queue pairs.
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

// The 24-bit numbers of a device: who holds each. Handed out forward, so that a number is not used
// again soon; a new life of the node begins anew, which is how a dead process's numbers come back.
class NodeNumbers {
 public:
  static constexpr uint32_t kFirst = 0x100;
  static constexpr uint32_t kFirstReserved = 0x100000;
  static constexpr uint32_t kEnd = 0x1000000;

  // kNoNumber when all are taken.
  uint32_t Allocate(SimPort* holder);
  uint32_t AllocateReserved();
  bool Free(uint32_t number, const SimPort* holder);
  SimPort* HolderOf(uint32_t number) const {
    const uint32_t index = number - kFirst;
    return index < holders_.size() ? holders_[index] : nullptr;
  }
  // The lowest free number next, instead of forward.
  void ReissueFreed() { reissue_freed_ = true; }
  // Nobody holds anything. `reissue`: the same numbers are handed out again from the first on.
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
  std::vector<SimPort*> ports;  // open contexts, of this life and of earlier ones

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
