// SPDX-License-Identifier: Apache-2.0
//
// FaultPlan: what goes wrong in a simulation, as plain data: rates that chance decides (with the
// simulation's seed), happenings at fixed times, and rules that pick single work requests. The same
// things can be done by calls of Simulation while it runs.
//
// Units: rates in parts per million of messages, times in virtual nanoseconds since the start of
// the simulation.
//
// Threads       A value.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_FAULT_PLAN_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_FAULT_PLAN_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"

namespace sluice::softdc::sim {

// Messages of queue pairs. Lost ones are sent again after the queue's timeout; delayed ones are
// overtaken by nothing of their own stream.
struct MessageFaults {
  uint32_t loss_ppm = 0;      // requests
  uint32_t ack_loss_ppm = 0;  // the request was carried out, its answer is lost
  uint32_t delay_ppm = 0;
  int64_t delay_ns = 0;
  bool operator==(const MessageFaults&) const = default;
};

// RDMA_CM. A message is lost for good: the engine's own timers have to notice.
struct CmFaults {
  uint32_t loss_ppm = 0;
  uint32_t delay_ppm = 0;
  int64_t delay_ns = 0;
  uint32_t duplicate_ppm = 0;
  uint32_t reject_ppm = 0;     // of connection requests, by the network in the listener's name
  uint16_t reject_reason = 8;  // ib_cm: 8 is "no listener", 10 "stale connection", 28 "consumer"
  bool operator==(const CmFaults&) const = default;
};

enum class Happening : uint8_t {
  kKill,    // the process: everything it has open is gone, nobody answers
  kRevive,  // a new process on the node, with numbers of its own
  kPause,   // the port moves nothing in or out; what waits goes on at kResume
  kResume,
  kCutLink,  // between `node` and `peer`, both ways
  kHealLink,
  kPortDown,     // IBV_EVENT_PORT_ERR; messages in both directions are lost
  kPortUp,       // IBV_EVENT_PORT_ACTIVE
  kDeviceFatal,  // IBV_EVENT_DEVICE_FATAL; every queue of the node goes to ERR, nobody answers
  // The device is pulled out, and its process lives: IBV_EVENT_DEVICE_FATAL, and
  // RDMA_CM_EVENT_DEVICE_REMOVAL for each id on it. What was open on it is dead, it is in no list and
  // does not open, and peers hear nothing.
  kUnplug,
  kPlug,  // it is there again, as a new one
  // Another link-layer address behind the same IP addresses, as when a bond fails over:
  // IBV_EVENT_GID_CHANGE, and RDMA_CM_EVENT_ADDR_CHANGE for each id on the device.
  kAddressChange,
};

struct TimedFault {
  int64_t at_ns = 0;
  Happening what = Happening::kKill;
  uint32_t node = 0;
  uint32_t peer = 0;  // links only
};

// Picks work requests of send queues as they start to run, in posting order. What is not set
// matches everything.
struct RequestRule {
  std::optional<uint32_t> node;  // of the sender
  std::optional<uint32_t> peer;  // node it is addressed to
  std::optional<uint16_t> stream;
  std::optional<ibv_wr_opcode> opcode;
  uint32_t skip = 0;   // matches that pass unharmed first
  uint32_t count = 1;  // matches after that which fail
  // The completion. A WRITE or an atomic that fails so has not been carried out, unless:
  ibv_wc_status status = IBV_WC_RETRY_EXC_ERR;
  // A SEND that fails so has been carried out nevertheless: its answer is what was lost.
  bool carried_out = false;
  // A WRITE's bytes land this long after its failure was reported; what the place was given to in
  // between does not matter to them. 0: they never land. A SEND that is carried out reaches its target
  // this long after it was sent: before or after its failure was reported.
  int64_t lands_late_ns = 0;
};

struct FaultPlan {
  MessageFaults messages;
  CmFaults cm;
  std::vector<TimedFault> timed;
  std::vector<RequestRule> requests;

  // Impossible or senseless settings are refused with the reason.
  absl::Status Validate(uint32_t nodes) const;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_FAULT_PLAN_H_
