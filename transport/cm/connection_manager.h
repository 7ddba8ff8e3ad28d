// SPDX-License-Identifier: Apache-2.0
//
// ConnectionManager: RDMA_CM connections with external QP numbers, both sides.
//
// What it is    It exchanges private data and paths, keeps each connection's QPN until timewait is over, and
//               reports the other side's end promptly. No traffic runs over these connections.
// Who owns it   The endpoint. Device, commands, timers, number pool and user outlive it.
// Which thread  The polling thread. The calls that block go through Commands; Listen() alone blocks.
// What ends it  Its destructor frees all ids at once; Commands::Finish() must have been called before.
// Bounds        Options::max_connections records; beyond it a request is refused and Connect() fails.
#ifndef SLUICE_TRANSPORT_CM_CONNECTION_MANAGER_H_
#define SLUICE_TRANSPORT_CM_CONNECTION_MANAGER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/base/clock.h"
#include "transport/base/timer_wheel.h"
#include "transport/cm/qpn_pool.h"
#include "transport/cm/states.h"
#include "transport/poller/commands.h"
#include "transport/verbs/handles.h"

namespace sluice::cm {

// Bytes of private data (RDMA_PS_TCP): what rdma_connect, rdma_accept and rdma_reject take. The
// other side always gets the full field, padded with zeros.
inline constexpr size_t kMaxRequestData = 56;
inline constexpr size_t kMaxResponseData = 196;
inline constexpr size_t kMaxRejectData = 148;

struct ConnectionId {
  uint32_t index = 0;
  uint32_t generation = 0;  // 0 names none
  friend bool operator==(const ConnectionId&, const ConnectionId&) = default;
};

// How to reach the other side, as RDMA_CM resolved it.
struct PathInfo {
  ibv_ah_attr ah = {};
  ibv_mtu mtu = IBV_MTU_1024;
  ibv_ece remote_ece = {};
  std::string device;  // the device that the connection runs over
};

class User {
 public:
  virtual ~User() = default;
  // Passive: answer with Accept(), Reject() or Close(), at once or later.
  virtual void OnRequest(ConnectionId id, std::span<const std::byte> private_data,
                         const PathInfo& path, const std::string& from) = 0;
  // Active: answer with Establish(), Reject() or Close().
  virtual void OnResponse(ConnectionId id, std::span<const std::byte> private_data,
                          const PathInfo& path) = 0;
  virtual void OnUp(ConnectionId id) = 0;
  // The last call for an id that was not closed by its user. `reject_data` is what the other side's
  // Reject() carried, zero padded; empty otherwise.
  virtual void OnDown(ConnectionId id, const absl::Status& why,
                      std::span<const std::byte> reject_data) = 0;
};

struct Options {
  uint32_t max_connections = 1024;
  int backlog = 1024;
  int64_t accept_timeout_ns = 5'000'000'000;  // CONNECT_REQUEST to ESTABLISHED
  int64_t close_timeout_ns = 2'000'000'000;   // DREQ to its answer
  int64_t timewait_limit_ns = 10'000'000'000;
  ibv_ece local_ece = {};  // offered in requests when the vendor is not 0
  std::string device;      // connections over another device fail; empty: any
};

class ConnectionManager {
 public:
  static absl::StatusOr<std::unique_ptr<ConnectionManager>> Create(
      const verbs::VerbsApi& api, Options options, QpnPool& numbers, poller::Commands& commands,
      base::Clock& clock, base::TimerWheel& timers, User& user);
  ~ConnectionManager();
  ConnectionManager(const ConnectionManager&) = delete;
  ConnectionManager& operator=(const ConnectionManager&) = delete;

  // Port 0 takes a free one. Blocks for as long as a name takes to resolve.
  absl::StatusOr<uint16_t> Listen(const std::string& host, uint16_t port);

  // Ends in OnResponse() or OnDown(), by the deadline at the latest.
  absl::StatusOr<ConnectionId> Connect(const std::string& host, uint16_t port, int64_t deadline_ns,
                                       std::span<const std::byte> private_data);
  // `ece` is what this side made of the other's options; vendor 0: nothing.
  void Accept(ConnectionId id, std::span<const std::byte> private_data, const ibv_ece& ece = {});
  void Establish(ConnectionId id);
  void Reject(ConnectionId id, std::span<const std::byte> private_data);
  // Ends the connection in whatever state it is; no OnDown() follows.
  void Close(ConnectionId id);
  // Something came from the other side before ESTABLISHED did: as good (man rdma_notify).
  void NoteTraffic(ConnectionId id);

  int fd() const { return channel_->fd; }
  // Handles all CM events that have come; never blocks. How many.
  int ReadEvents();

  // Records in use, timewait included.
  size_t size() const { return in_use_; }
  size_t quarantined() const { return quarantine_.size(); }
  uint64_t ignored_events() const { return ignored_events_; }
  std::string Describe(ConnectionId id) const;
  // The number that stands for this side of the connection; 0: none yet. As of the last call.
  uint32_t QpNumber(ConnectionId id) const;

 private:
  struct Connection;
  struct Quarantined {
    uint32_t qpn;
    int64_t until_ns;
  };

  ConnectionManager(const verbs::VerbsApi& api, Options options, QpnPool& numbers,
                    poller::Commands& commands, base::Clock& clock, base::TimerWheel& timers,
                    User& user);

  Connection* Find(ConnectionId id) const;
  Connection* Find(const void* context) const;
  Connection* New();

  void Handle(Connection* c, Event event);
  void Do(Connection* c, Action action);
  void HandleCm(const rdma_cm_event& event);
  void HandleRequest(const rdma_cm_event& event);
  void HandleEnd(Connection* c, const rdma_cm_event& event);
  Event FailOrRetry(Connection* c, absl::Status why, bool worth_another_address, bool stale);

  // Each submits one piece of work; its result comes back through Handle().
  void Submit(Connection* c, std::function<int(Connection*)> work,
              std::function<void(Connection*, int error_number)> done);
  void ResolveName(Connection* c);
  void ResolveAddress(Connection* c);
  void SendRequest(Connection* c);
  void SendResponse(Connection* c);
  void ReadPath(Connection* c);
  void Call(Connection* c, const char* call, int (*run)(const verbs::VerbsApi&, rdma_cm_id*),
            void (*done)(Connection*));
  void ResolveRoute(Connection* c);
  void SendReady(Connection* c);
  void Disconnect(Connection* c);
  void RejectAndDestroy(Connection* c);
  void Destroy(Connection* c);
  void DestroyNow(Connection* c);
  void Free(Connection* c);
  void TellDown(Connection* c);

  absl::Status DeadlineError(const Connection& c) const;
  absl::Status CommandError(const Connection& c, int error_number, const char* call) const;
  void SetDeadline(Connection* c, int64_t deadline_ns);
  static void OnDeadline(base::Timer* timer, void* context);
  static void OnQuarantineEnd(base::Timer* timer, void* context);
  void Quarantine(uint32_t qpn);

  const verbs::VerbsApi& api_;
  const Options options_;
  QpnPool& numbers_;
  poller::Commands& commands_;
  base::Clock& clock_;
  base::TimerWheel& timers_;
  User& user_;
  verbs::EventChannel channel_;
  std::vector<verbs::CmId> listeners_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<uint32_t> free_;
  size_t in_use_ = 0;
  std::deque<Quarantined>
      quarantine_;  // numbers whose id is gone but whose timewait may not be over
  base::Timer quarantine_timer_;
  uint64_t ignored_events_ = 0;
};

}  // namespace sluice::cm

#endif  // SLUICE_TRANSPORT_CM_CONNECTION_MANAGER_H_
