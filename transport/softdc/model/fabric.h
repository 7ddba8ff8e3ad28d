// SPDX-License-Identifier: Apache-2.0
//
// Fabric: the environment of the device model: a clock and timers, addresses, QP numbers, and the execution of send WQEs. There are two
// fabrics: shared memory between processes (fabric_shm/), and a simulation on a virtual clock (sim/).
//
//   SoftDevice --1:n--> Context --1:1--> FabricPort      made by Fabric::Attach when a device opens
//                       Qp      --1:1--> Requester       made by FabricPort::NewRequester
//
// A Requester may use the functions of a queue in the part "For the Requester" of send_queue.h. Each fabric checks requests at the target
// with arrival.h. It finds a target with Context::WithResponder, by the number from AllocateNumber. The model may hold the lock of a send
// queue or of a QpLife in calls of these functions. In NowNs and WindowInUse it may also hold the lock of a CQ, and in WindowInUse the
// mutex of the context.
//
// Units: nanoseconds.
//
// Threads       All functions of Fabric and FabricPort may be called from any thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_FABRIC_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_FABRIC_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace sluice::softdc {

class Context;
class SendQueue;
class SoftDevice;

// Number of a place that an address names. The fabric assigns it; 0 is none.
using NodeId = uint32_t;
inline constexpr NodeId kNoNode = 0;

inline constexpr uint32_t kNoNumber = 0;  // of a queue pair

// The send engine of one queue. Destroyed before the queue, without the queue's lock. When the destructor returns, its work on other
// threads has ended.
class Requester {
 public:
  virtual ~Requester() = default;

  // Called under the queue's lock, once per doorbell, after WQEs [first, queue.posted()) were posted. Runs the WQEs that can run, makes the
  // others wait, and calls queue.Settle() at the end of the pass.
  virtual void RunPosted(uint64_t first) = 0;
  // Called under the queue's lock when the state of the queue has changed so that the queue may run again. Examines all its WQEs again.
  virtual void RunWaiting() = 0;
  // Called under the queue's lock when the queue is reset. The requester must not finish earlier WQEs of the queue afterwards.
  virtual void Forget() = 0;
};

// Place of one open device in the fabric. The context destroys it before all its other members.
class FabricPort {
 public:
  virtual ~FabricPort() = default;

  // Allocates a number from the device's 24-bit space. Returns kNoNumber if none is free.
  virtual uint32_t AllocateNumber() = 0;
  virtual bool FreeNumber(uint32_t number) = 0;  // false: not allocated here, or already freed
  // As above, for mlx5dv_reserved_qpn_alloc(3). Numbers are allocated in ascending order, so a freed number is not reused soon.
  virtual uint32_t AllocateReservedNumber() = 0;
  virtual bool FreeReservedNumber(uint32_t number) = 0;

  virtual std::unique_ptr<Requester> NewRequester(SendQueue& queue) = 0;

  // Blocks until all copies that may use a revoked key have ended. Called after the key was revoked.
  virtual void WaitForCopies() = 0;
  // Returns whether a copy through the revoked window at `index` may still be in progress.
  virtual bool WindowInUse(uint32_t index) = 0;

  // Returns the link state for ibv_query_port(3).
  virtual bool LinkIsUp() = 0;
};

class Fabric {
 public:
  virtual ~Fabric() = default;

  virtual int64_t NowNs() = 0;
  // Calls `task` once, not before `delay_ns` have passed, with no lock held. Returns the id of the timer, never 0.
  virtual uint64_t After(int64_t delay_ns, std::function<void()> task) = 0;
  virtual bool Cancel(uint64_t timer) = 0;

  // Returns null with errno on failure. Called last when a context is opened: all other parts of the context exist.
  virtual std::unique_ptr<FabricPort> Attach(Context& context) = 0;

  // Returns the present GID table of port 1.
  virtual std::vector<ibv_gid> Gids(const SoftDevice& device) = 0;
  // Returns the node that an address leads to from device `from`, or kNoNode if the address is unknown.
  virtual NodeId NodeOf(const SoftDevice& from, const ibv_ah_attr& address) = 0;
  // Returns the node of the device itself: the result of NodeOf for the device's own addresses.
  virtual NodeId SelfNode(const SoftDevice& device) = 0;

  // Returns whether other processes reach registered memory through the files that hold it. If not, every region is kPrivateSegment, and
  // places are addresses of this process.
  virtual bool SharesMemory() const = 0;
  // Returns the size of the address space for the tables of each context (shm/arena.h).
  virtual uint64_t ArenaBytes() const = 0;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_FABRIC_H_
