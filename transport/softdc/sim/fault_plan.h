// SPDX-License-Identifier: Apache-2.0
//
// FaultPlan: the faults of a simulation, as plain data: rates of random faults (from the seed of the
// simulation), faults at fixed times, and rules that select single work requests. Calls of Simulation can
// cause the same faults while it runs.
//
// Units: rates in parts per million of messages, times in virtual nanoseconds since the start of
// the simulation.
//
// Threads       Plain data without synchronization.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_FAULT_PLAN_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_FAULT_PLAN_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"

namespace sluice::softdc::sim {

// Messages of queue pairs. A lost message is retransmitted after the timeout of the queue. A delayed message
// is not overtaken by messages of its own stream.
struct MessageFaults {
  uint32_t loss_ppm = 0;      // requests
  uint32_t ack_loss_ppm = 0;  // the request was executed, its answer is lost
  uint32_t delay_ppm = 0;
  int64_t delay_ns = 0;
  bool operator==(const MessageFaults&) const = default;
};

// RDMA_CM. A lost message is not retransmitted by the network: the timers of the engine must notice it.
struct CmFaults {
  uint32_t loss_ppm = 0;
  uint32_t delay_ppm = 0;
  int64_t delay_ns = 0;
  uint32_t duplicate_ppm = 0;
  uint32_t reject_ppm = 0;     // connection requests that the network rejects for the listener
  uint16_t reject_reason = 8;  // ib_cm: 8 is "no listener", 10 "stale connection", 28 "consumer"
  bool operator==(const CmFaults&) const = default;
};

enum class Happening : uint8_t {
  kKill,    // kills the process: all its objects are gone, it does not answer
  kRevive,  // starts a new process on the node, with its own numbers
  kPause,   // the port holds all messages in both directions until kResume
  kResume,
  kCutLink,  // between `node` and `peer`, both ways
  kHealLink,
  kPortDown,     // IBV_EVENT_PORT_ERR; messages in both directions are lost
  kPortUp,       // IBV_EVENT_PORT_ACTIVE
  kDeviceFatal,  // IBV_EVENT_DEVICE_FATAL; every queue of the node stops, the node does not answer
  // Unplugs the device; its process lives: IBV_EVENT_DEVICE_FATAL, and RDMA_CM_EVENT_DEVICE_REMOVAL for each
  // id on it. All objects on the device are dead. The device is in no list and cannot be opened. Peers are
  // not notified.
  kUnplug,
  kPlug,  // plugs the device in again, as a new device
  // Changes the link-layer address behind the same IP addresses, as when a bond fails over:
  // IBV_EVENT_GID_CHANGE, and RDMA_CM_EVENT_ADDR_CHANGE for each id on the device.
  kAddressChange,
};

struct TimedFault {
  int64_t at_ns = 0;
  Happening what = Happening::kKill;
  uint32_t node = 0;
  uint32_t peer = 0;  // links only
};

// Selects work requests of send queues as they start to run, in posting order. A field that is not set
// matches everything.
struct RequestRule {
  std::optional<uint32_t> node;  // of the sender
  std::optional<uint32_t> peer;  // target node
  std::optional<uint16_t> stream;
  std::optional<ibv_wr_opcode> opcode;
  uint32_t skip = 0;   // number of matches that pass first
  uint32_t count = 1;  // number of matches that fail after these
  // Status of the completion. A failed WRITE or atomic is not executed, except as lands_late_ns says.
  ibv_wc_status status = IBV_WC_RETRY_EXC_ERR;
  // If true, a failed SEND is executed nevertheless: only its answer is lost.
  bool carried_out = false;
  // Time after the reported failure at which the bytes of a WRITE land, even if the memory has been reused
  // since. 0: the bytes never land. A SEND with carried_out reaches its target this long after it was sent,
  // which may be before or after its failure is reported.
  int64_t lands_late_ns = 0;
};

struct FaultPlan {
  MessageFaults messages;
  CmFaults cm;
  std::vector<TimedFault> timed;
  std::vector<RequestRule> requests;

  // Returns an error with the reason if a setting is impossible or has no effect.
  absl::Status Validate(uint32_t nodes) const;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_FAULT_PLAN_H_
