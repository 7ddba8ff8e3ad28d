// SPDX-License-Identifier: Apache-2.0
//
// The interface of the CM engine to its environment: messages to other engines, and timers. The shm fabric and the simulated one implement it.
//
// Threads       The engine calls a Fabric and Timers under its own lock, so they need no lock for that. They call back (FabricEvents, timer
//               tasks) on any thread, never inside a call of the engine, and without locks that such a call takes.
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

// Names one thing of the fabric: a reserved port, a wire to another engine, or a claimed key. Never
// reused. 0: none.
using Handle = uint64_t;

// Each has its own 65,536 ports. The values are those of rdma_port_space.
enum class PortSpace : uint16_t { kIpoib = 0x0002, kTcp = 0x0106, kUdp = 0x0111, kIb = 0x013f };

class FabricEvents {
 public:
  virtual ~FabricEvents() = default;

  // Something can be accepted, received or taken from `handle`. May also be said of a handle that
  // is closed by now.
  virtual void OnReady(Handle handle) = 0;
};

class Fabric {
 public:
  virtual ~Fabric() = default;

  // Addresses are IPv4 or IPv6, ports in them in network byte order and of no interest here.
  // Whether this host has the address, so that it can be bound. Never asked about wildcards.
  virtual bool IsOwn(const sockaddr* address) = 0;

  // Whether any host of the fabric has the address.
  virtual bool Reaches(const sockaddr* address) = 0;

  // The own address (port 0) from which `destination` is reached; for a wildcard the one under
  // which the host reaches itself.
  virtual sockaddr_storage SourceFor(const sockaddr* destination) = 0;

  // Index of an own GID in the device's table; 0 if it is not there.
  virtual uint8_t GidIndex(const ibv_gid& gid) = 0;

  // Takes `port` (0: any free one) in a port space of the host. 0, or errno: EADDRINUSE,
  // EADDRNOTAVAIL (all are taken), EMFILE. The handle can then become a listener or a wire.
  virtual int ReservePort(PortSpace space, uint16_t port, Handle* handle, uint16_t* chosen) = 0;

  // 0 or errno.
  virtual int Listen(Handle port) = 0;

  // Makes `port` a wire to the listener of `destination` (address and port) in the same port space.
  // 0, or errno: ECONNREFUSED (nobody listens), EAGAIN (can't now, or nobody answers), EACCES (the
  // port is another user's). On failure the handle is closed.
  virtual int Connect(Handle port, const sockaddr* destination) = 0;

  // A new wire from a listener. 0, or errno: EAGAIN when there is none.
  virtual int Accept(Handle listener, Handle* wire) = 0;

  // 0 or errno. Messages arrive whole, in order, and before the end of the wire.
  virtual int Send(Handle wire, std::span<const std::byte> message) = 0;

  // Length of the message put into `buffer`, 0 at the end of the wire, or -1 and errno: EAGAIN:
  // none now; EMSGSIZE: it was too long and is dropped.
  virtual ssize_t Receive(Handle wire, std::span<std::byte> buffer) = 0;

  // Enters (GUID, number) into the host's table of connected queue pairs. 0, or errno: EEXIST: it
  // is there already, and its owner is told; EMFILE.
  virtual int ClaimKey(uint64_t node_guid, uint32_t qp_num, Handle* key) = 0;

  // Whether somebody tried to claim `key` since the last call.
  virtual bool TakeDuplicate(Handle key) = 0;

  // No-op for 0 and what is closed.
  virtual void Close(Handle handle) = 0;
};

class Timers {
 public:
  virtual ~Timers() = default;

  // Runs `task` once, `delay_ns` from now. The engine makes late tasks harmless itself.
  virtual uint64_t After(int64_t delay_ns, std::function<void()> task) = 0;
  virtual void Cancel(uint64_t timer_id) = 0;
};

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_FABRIC_H_
