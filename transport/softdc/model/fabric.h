// SPDX-License-Identifier: Apache-2.0
//
// Fabric: the environment of the device model: a clock and
// timers, addresses, QP numbers, and the execution of send WQEs. Two exist: shared memory between
// processes (fabric_shm/) and a simulation on a virtual clock.
//
//   SoftDevice --1:n--> Context --1:1--> FabricPort      made by Fabric::Attach when a device opens
//                       Qp      --1:1--> Requester       made by FabricPort::NewRequester
//
// send_queue.h ("For the Requester") says what a Requester may do with a queue. arrival.h, the same for every fabric, checks a request
// at its target. Targets are found with
// Context::WithResponder by the number that AllocateNumber gave. The model calls no function here
// with a lock of its own held but the queue's, where it says so.
//
// Units: nanoseconds.
//
// Threads       All of Fabric and FabricPort from any thread.
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

// A place that an address names. The fabric gives the numbers; 0 is nobody's.
using NodeId = uint32_t;
inline constexpr NodeId kNoNode = 0;

inline constexpr uint32_t kNoNumber = 0;  // of a queue pair

// The send engine of one queue. Destroyed before the queue, without its lock; whatever it has
// running elsewhere has ended when the destructor returns.
class Requester {
 public:
  virtual ~Requester() = default;

  // Under the queue's lock, once a doorbell: WQEs [first, queue.posted()) were just posted. Runs
  // what can run, lets the rest wait, and calls queue.Settle() at the end of the pass.
  virtual void RunPosted(uint64_t first) = 0;
  // Under the queue's lock: the queue may run again (its state has changed); look at all of it
  // anew.
  virtual void RunWaiting() = 0;
  // Under the queue's lock: the queue was reset. Nothing that was in it may be finished any more.
  virtual void Forget() = 0;
};

// One opened device's place in the fabric. Destroyed first of all that the context has.
class FabricPort {
 public:
  virtual ~FabricPort() = default;

  // Numbers of the device's one 24-bit space. kNoNumber when it is used up.
  virtual uint32_t AllocateNumber() = 0;
  virtual bool FreeNumber(uint32_t number) = 0;  // false: not ours, or freed already
  // The same for mlx5dv_reserved_qpn_alloc(3): strictly forward.
  virtual uint32_t AllocateReservedNumber() = 0;
  virtual bool FreeReservedNumber(uint32_t number) = 0;

  virtual std::unique_ptr<Requester> NewRequester(SendQueue& queue) = 0;

  // A key was taken back: returns when all copies that may still use it have ended.
  virtual void WaitForCopies() = 0;
  // The key of the window at that place was taken back: whether a copy through it may still be under way.
  virtual bool WindowInUse(uint32_t index) = 0;

  // What ibv_query_port(3) says of the link.
  virtual bool LinkIsUp() = 0;
};

class Fabric {
 public:
  virtual ~Fabric() = default;

  virtual int64_t NowNs() = 0;
  // Calls `task` once, not earlier than that, with no lock held. Never 0.
  virtual uint64_t After(int64_t delay_ns, std::function<void()> task) = 0;
  virtual bool Cancel(uint64_t timer) = 0;

  // Null with errno set. Called last when a context is opened: it is whole but for this.
  virtual std::unique_ptr<FabricPort> Attach(Context& context) = 0;

  // The GID table of port 1, as it is now.
  virtual std::vector<ibv_gid> Gids(const SoftDevice& device) = 0;
  // Where an address vector leads, from that device. kNoNode: no such place is known.
  virtual NodeId NodeOf(const SoftDevice& from, const ibv_ah_attr& address) = 0;
  // Where the device itself is: what NodeOf says of its own addresses.
  virtual NodeId SelfNode(const SoftDevice& device) = 0;

  // Whether other processes reach registered memory through the files it lies in. If not, every
  // region is kPrivateSegment, and places are plain addresses of this process.
  virtual bool SharesMemory() const = 0;
  // Address space for the tables of each context (shm/arena.h).
  virtual uint64_t ArenaBytes() const = 0;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_FABRIC_H_
