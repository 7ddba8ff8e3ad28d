// SPDX-License-Identifier: Apache-2.0
//
// Fault: one thing that goes wrong in a run, when, to whom, for how long. The kinds are a table in fault.cc.
#ifndef SLUICE_TESTS_SIMULATION_FAULT_H_
#define SLUICE_TESTS_SIMULATION_FAULT_H_

#include <cstdint>
#include <string>

#include "transport/softdc/sim/random.h"

namespace sluice::simulation {

enum class FaultKind : uint8_t {
  kDelay,         // messages are late
  kPause,         // a port moves nothing
  kStall,         // a program does not look
  kCmTrouble,     // RDMA_CM messages lost, late, doubled, refused
  kKill,          // a process dies, and comes back as another one
  kLoss,          // requests lost
  kAnswerLoss,    // requests carried out, and sent again
  kRequestError,  // one request fails
  kDeadDci,       // a send queue does nothing, and says that it is well
  kCutLink,       // between two hosts
  kPortDown,
  kUnplug,          // a device is pulled out and put back
  kFatal,           // a device fails; its process makes a new start
  kOldCompletions,  // completions come a second time, when their slots have been used again
  kCount,
};

struct Fault {
  FaultKind kind = FaultKind::kDelay;
  uint32_t node = 0;
  uint32_t peer = 0;        // where it is between two
  uint64_t at_message = 0;  // once so many have been sent
  int64_t length_ns = 0;
  uint32_t amount = 0;  // parts per million, or which

  friend bool operator==(const Fault&, const Fault&) = default;
};

enum class FaultSet : uint8_t {
  kNone,
  kHarmless,  // no request fails, but for those to processes that die
  kAll,
};

const char* Name(FaultKind kind);
std::string ToString(const Fault& fault);
Fault DrawFault(FaultSet set, uint32_t nodes, uint64_t messages, int64_t dead_peer_ns,
                softdc::sim::Random& random);
// Of a kind that DrawFault() does not draw: what comes late.
Fault DrawLateFault(uint32_t nodes, uint64_t messages, softdc::sim::Random& random);
// Peers of the node, or the one that it names, may be lost by it. `rc`: each has an RC queue pair, which its first failed request ends.
bool MayEndPeers(const Fault& fault, int64_t dead_peer_ns, bool rc);

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_FAULT_H_
