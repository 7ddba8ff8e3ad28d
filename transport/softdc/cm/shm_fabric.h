// SPDX-License-Identifier: Apache-2.0
//
// The fabric of the CM between processes of one host: abstract sockets that the firmware thread watches.
//
// A port is the name cm/<port> (udp/<port> and so on in the other port spaces). A wire is a connection to
// that name. A connected queue pair is the name live/<guid>/<number>. The kernel frees all of them when their
// process dies, so peers notice its death. Cost: one descriptor for each bound id, and another for each end
// of a live connection (its key).
#ifndef SLUICE_TRANSPORT_SOFTDC_CM_SHM_FABRIC_H_
#define SLUICE_TRANSPORT_SOFTDC_CM_SHM_FABRIC_H_

#include <mutex>
#include <unordered_map>

#include "transport/softdc/cm/fabric.h"
#include "transport/softdc/loop/loop.h"
#include "transport/softdc/loop/unique_fd.h"

namespace sluice::softdc::cm {

class ShmFabric final : public Fabric {
 public:
  // Default range of ephemeral ports of Linux; used for "any port".
  static constexpr uint16_t kFirstEphemeralPort = 32768;
  static constexpr uint16_t kLastEphemeralPort = 60999;
  // Maximum number of connections that the firmware thread has not accepted yet.
  static constexpr int kListenBacklog = 4096;
  static constexpr int64_t kAcceptPauseNs =
      50'000'000;  // pause of a listener when no descriptors are left

  // Both must outlive the fabric.
  ShmFabric(Loop* loop, FabricEvents* events);
  ~ShmFabric() override;

  bool IsOwn(const sockaddr* address) override;
  bool Reaches(const sockaddr* address) override;
  sockaddr_storage SourceFor(const sockaddr* destination) override;
  uint8_t GidIndex(const ibv_gid& gid) override;
  int ReservePort(PortSpace space, uint16_t port, Handle* handle, uint16_t* chosen) override;
  int Listen(Handle port) override;
  int Connect(Handle port, const sockaddr* destination) override;
  int Accept(Handle listener, Handle* wire) override;
  int Send(Handle wire, std::span<const std::byte> message) override;
  ssize_t Receive(Handle wire, std::span<std::byte> buffer) override;
  int ClaimKey(uint64_t node_guid, uint32_t qp_num, Handle* key) override;
  bool TakeDuplicate(Handle key) override;
  void Close(Handle handle) override;

 private:
  struct Socket {
    UniqueFd fd;
    PortSpace space = PortSpace::kTcp;
    bool watched = false;
    bool paused = false;
    uint64_t pause_timer = 0;
  };

  Handle Add(UniqueFd fd);
  int Watch(Handle handle, Socket* socket);
  Socket* Find(Handle handle);

  Loop* const loop_;
  FabricEvents* const events_;
  std::unordered_map<Handle, Socket> sockets_;
  Handle next_handle_ = 1;
  uint16_t next_port_;
};

// Timers of the firmware thread.
class LoopTimers final : public Timers {
 public:
  explicit LoopTimers(Loop* loop) : loop_(loop) {}
  uint64_t After(int64_t delay_ns, std::function<void()> task) override {
    return loop_->After(delay_ns, std::move(task));
  }
  void Cancel(uint64_t timer_id) override { loop_->Cancel(timer_id); }

 private:
  Loop* const loop_;
};

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_SHM_FABRIC_H_
