// SPDX-License-Identifier: Apache-2.0
//
// The interface of the CM engine to its environment: messages to other engines, and timers. The shm fabric and the simulated one implement it.
//
// Threads       The engine calls a Fabric and Timers under its own lock, so they need no lock for that. They
//               call back (FabricEvents, timer tasks) on any thread, never inside a call of the engine, and
//               without locks that such a call takes.
#ifndef SLUICE_TRANSPORT_SOFTDC_CM_FABRIC_H_
#define SLUICE_TRANSPORT_SOFTDC_CM_FABRIC_H_

#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace sluice::softdc::cm {

// Identifies an object of the fabric: a reserved port, a wire to another engine, or a claimed key. Never
// reused. 0: none.
using Handle = uint64_t;

// Each space has its own 65,536 ports. The values are those of rdma_port_space.
enum class PortSpace : uint16_t { kIpoib = 0x0002, kTcp = 0x0106, kUdp = 0x0111, kIb = 0x013f };

class FabricEvents {
 public:
  virtual ~FabricEvents() = default;

  // Reports that a wire, a message or a duplicate can be taken from `handle`. The handle may be closed
  // already.
  virtual void OnReady(Handle handle) = 0;
};

class Fabric {
 public:
  virtual ~Fabric() = default;

  // Addresses are IPv4 or IPv6. Ports in them are in network byte order and are ignored here. Returns whether
  // this host has the address, so that it can be bound. Never called for wildcards.
  virtual bool IsOwn(const sockaddr* address) = 0;

  // Returns whether a host of the fabric has the address.
  virtual bool Reaches(const sockaddr* address) = 0;

  // Returns the own address (port 0) from which `destination` is reached. For a wildcard, returns the address
  // with which the host reaches itself.
  virtual sockaddr_storage SourceFor(const sockaddr* destination) = 0;

  // Returns the index of an own GID in the device's table, or 0 if the table does not have it.
  virtual uint8_t GidIndex(const ibv_gid& gid) = 0;

  // Reserves `port` (0: any free port) in a port space of the host. Returns 0 or an errno: EADDRINUSE,
  // EADDRNOTAVAIL (no port is free), EMFILE. The handle can then become a listener or a wire.
  virtual int ReservePort(PortSpace space, uint16_t port, Handle* handle, uint16_t* chosen) = 0;

  // Makes a reserved port a listener. Returns 0 or an errno.
  virtual int Listen(Handle port) = 0;

  // Turns `port` into a wire to the listener of `destination` (address and port) in the same port space.
  // Returns 0 or an errno: ECONNREFUSED (no listener), EAGAIN (not possible now, or no answer), EACCES (the
  // port belongs to another user). On failure the handle is closed.
  virtual int Connect(Handle port, const sockaddr* destination) = 0;

  // Accepts a new wire from a listener. Returns 0 or an errno: EAGAIN if there is none.
  virtual int Accept(Handle listener, Handle* wire) = 0;

  // Returns 0 or an errno. Messages arrive complete, in order, and before the end of the wire.
  virtual int Send(Handle wire, std::span<const std::byte> message) = 0;

  // Receives a message. Returns its length, 0 at the end of the wire, or -1 with errno. EAGAIN: no message
  // now. EMSGSIZE: the message was too long and is dropped.
  virtual ssize_t Receive(Handle wire, std::span<std::byte> buffer) = 0;

  // Adds (GUID, number) to the host's table of connected queue pairs. Returns 0 or an errno. EEXIST: the
  // entry exists already, and its owner is notified. EMFILE: no descriptors.
  virtual int ClaimKey(uint64_t node_guid, uint32_t qp_num, Handle* key) = 0;

  // Returns whether an engine tried to claim `key` since the last call.
  virtual bool TakeDuplicate(Handle key) = 0;

  // Does nothing for 0 and for closed handles.
  virtual void Close(Handle handle) = 0;
};

class Timers {
 public:
  virtual ~Timers() = default;

  // Runs `task` once, `delay_ns` from now. The engine ignores tasks that run late.
  virtual uint64_t After(int64_t delay_ns, std::function<void()> task) = 0;
  virtual void Cancel(uint64_t timer_id) = 0;
};

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_FABRIC_H_
