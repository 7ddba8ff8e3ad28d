// SPDX-License-Identifier: Apache-2.0
//
// ConnectionManager: connects over RDMA_CM with external QP numbers, as client and as server.
//
// Purpose       Exchanges private data and paths with the peer. Keeps the QP number of each connection until neither side can be in
//               timewait. Reports promptly when the peer ends. The connections carry no messages. Each step has its own deadline,
//               because the deadlines of the kernel are minutes (facts 106, 117, 120). An attempt without an answer is repeated with
//               a new id and a new number until the deadline of Connect().
// Ownership     The endpoint. Device, commands, timers, random source, number pool and user outlive it.
// Threads       The polling thread. Calls that block run in Commands; only Listen() blocks.
// Limits        Options::max_connections. Above it the manager refuses requests, and Connect() fails. Attempts to one peer are limited
//               per second (pacing.h).
// End           The destructor frees all ids at once. Call Commands::Finish() first.
#ifndef SLUICE_TRANSPORT_CM_CONNECTION_MANAGER_H_
#define SLUICE_TRANSPORT_CM_CONNECTION_MANAGER_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/base/clock.h"
#include "transport/base/random.h"
#include "transport/base/record_table.h"
#include "transport/base/shared_text.h"
#include "transport/base/timer_wheel.h"
#include "transport/cm/address.h"
#include "transport/cm/pacing.h"
#include "transport/cm/qpn_pool.h"
#include "transport/cm/request_desk.h"
#include "transport/cm/states.h"
#include "transport/poller/commands.h"
#include "transport/verbs/handles.h"

namespace sluice::cm {

enum class Verdict : uint8_t;

// Maximum bytes of private data in rdma_connect, rdma_accept and rdma_reject (RDMA_PS_TCP). The peer always receives the full field, padded
// with zeros.
inline constexpr size_t kMaxRequestData = 56;
inline constexpr size_t kMaxResponseData = 196;
inline constexpr size_t kMaxRejectData = 148;

struct ConnectionId {
  uint32_t index = 0;
  uint32_t generation = 0;  // 0: no connection
  friend bool operator==(const ConnectionId&, const ConnectionId&) = default;
};

// Path to the peer, as RDMA_CM resolved it.
struct PathInfo {
  ibv_ah_attr ah = {};
  ibv_mtu mtu = IBV_MTU_1024;
  ibv_ece remote_ece = {};
  std::string device;  // the device that the connection runs over
};

class User {
 public:
  virtual ~User() = default;
  // Reports a connection request (passive side). Answer with Accept(), Reject() or Close(), at once or later.
  virtual void OnRequest(ConnectionId id, std::span<const std::byte> private_data,
                         const PathInfo& path, const std::string& from) = 0;
  // Reports the peer's response (active side). Answer with Establish(), Reject() or Close().
  virtual void OnResponse(ConnectionId id, std::span<const std::byte> private_data,
                          const PathInfo& path) = 0;
  virtual void OnUp(ConnectionId id) = 0;
  // Reports the end of a connection that the user did not close. This is the last call for the id. If the peer called Reject(),
  // `reject_data` is its private data, padded with zeros. If another error ended the attempt, `reject_data` is empty or the data of the
  // request or response.
  virtual void OnDown(ConnectionId id, const absl::Status& why,
                      std::span<const std::byte> reject_data) = 0;
  // Reports that the device of a listening address was removed: the address receives no more requests.
  virtual void OnListenerDown(const absl::Status& /*why*/) {}
};

// docs/decisions/0012 gives the reasons for the timeouts and limits.
struct Options {
  uint32_t max_connections = 1024;
  int backlog = 1024;
  int64_t resolve_timeout_ns = 3'000'000'000;  // for the address, and again for the route
  // REQ to its answer in the first try. Doubles with each further try, at most four times.
  int64_t answer_timeout_ns = 3'000'000'000;
  int64_t accept_timeout_ns = 8'000'000'000;  // CONNECT_REQUEST to ESTABLISHED
  int64_t close_timeout_ns = 20'000'000'000;  // DREQ to its answer; no caller waits for it
  // Time from the disconnect until the QP number is free. Longer than close_timeout_ns plus a timewait: by then a Sluice peer has dropped
  // the number, even if messages were lost.
  int64_t number_hold_ns = 30'000'000'000;
  PacingOptions pacing;
  ibv_ece local_ece = {};  // offered in requests if vendor_id is not 0
  std::string device;      // connections over another device fail; empty: any
  uint8_t port = 0;        // likewise; 0: any
  // Reason why the device reaches this host only; empty: the device has no such limit. Connections to other hosts fail with this reason.
  std::string only_this_host;
  // Returns the address of this side's queues. Connections to a peer of the same address family use it as source address. Without it, the
  // kernel chooses. Called inside Commands.
  std::function<std::optional<sockaddr_storage>()> own_address;
  // Type of service of connections (RDMA_OPTION_ID_TOS); nullopt: default of the kernel.
  std::optional<uint8_t> type_of_service;
  // Returns the private data to reject a request that came over another device or port; `why` is the reason. Without this function, the
  // reject has no private data.
  std::function<std::vector<std::byte>(const std::string& why)> wrong_place;
  // Returns whether the private data of a reject reports another device or port. The manager then tries the next address of the name.
  std::function<bool(std::span<const std::byte>)> is_wrong_place;
  // Managers that share a desk distribute their connection requests. Null: the manager keeps all requests that it receives.
  std::shared_ptr<RequestDesk> desk;
  // Resolves a name. Called on a thread that may outlive the manager.
  std::function<decltype(Resolve)> resolve = Resolve;
};

struct Metrics {
  uint64_t live = 0;         // QP numbers of connections and attempts
  uint64_t quarantined = 0;  // QP numbers of closed connections
  uint64_t exhausted = 0;    // attempts for which there was no number
  uint64_t tries = 0;        // REQs, without retransmissions by the kernel
  uint64_t retries = 0;
  uint64_t throttled = 0;  // tries that the rate limit per peer delayed
  // Rejects because the peer has an older connection with the same number. That connection may have ended as well.
  uint64_t stale_rejects = 0;
  uint64_t timeouts = 0;           // steps that timed out in this manager
  uint64_t half_open_reaped = 0;   // accepted requests that the client did not establish in time
  uint64_t refused_requests = 0;   // requests refused because no record was free
  uint64_t strange_requests = 0;   // requests refused because of another device or port
  uint64_t unanswered_closes = 0;  // DREQs without an answer
  uint64_t ignored_events = 0;
};

class ConnectionManager {
 public:
  static absl::StatusOr<std::unique_ptr<ConnectionManager>> Create(
      const verbs::VerbsApi& api, Options options, QpnPool& numbers, poller::Commands& commands,
      base::Clock& clock, base::TimerWheel& timers, base::Random& random, User& user);
  ~ConnectionManager();
  ConnectionManager(const ConnectionManager&) = delete;
  ConnectionManager& operator=(const ConnectionManager&) = delete;

  // Listens for requests and returns the port. Port 0 selects a free port. Blocks while the name is resolved.
  absl::StatusOr<uint16_t> Listen(const std::string& host, uint16_t port);

  // Starts an attempt. It ends with OnResponse() or OnDown() at the deadline at the latest. `by_request`: the server requested this
  // attempt, so the rate limit does not delay its first try.
  absl::StatusOr<ConnectionId> Connect(const std::string& host, uint16_t port, int64_t deadline_ns,
                                       std::span<const std::byte> private_data,
                                       bool by_request = false);
  // `ece`: this side's answer to the peer's ECE options; vendor_id 0: no answer.
  void Accept(ConnectionId id, std::span<const std::byte> private_data, const ibv_ece& ece = {});
  void Establish(ConnectionId id);
  void Reject(ConnectionId id, std::span<const std::byte> private_data);
  // Ends the connection in any state. No OnDown() follows.
  void Close(ConnectionId id);
  // Notes that a message of the peer arrived, maybe before the ESTABLISHED event. In that case the kernel then establishes the connection
  // (man rdma_notify).
  void NoteTraffic(ConnectionId id);

  int fd() const { return channel_->fd; }
  // Returns the descriptor for requests that other managers hand over, or -1 if there is no desk.
  int seat_fd() const { return seat_ == nullptr ? -1 : seat_->fd(); }
  // Handles the pending CM events and handed-over requests, and returns their number. Does not block.
  int ReadEvents();

  // Returns the number of records in use, including connections in timewait.
  size_t size() const { return in_use_; }
  // Returns whether at least three quarters of the records are in use.
  bool crowded() const { return 4 * in_use_ >= 3 * size_t{options_.max_connections}; }
  // Returns the number of QP numbers of closed connections that are not free yet.
  size_t quarantined() const { return leaving_ + quarantine_.size(); }
  Metrics metrics() const;
  // Returns whether OnRequest() reported the request, the user has not answered it, and its client still waits.
  bool AwaitsAnswer(ConnectionId id) const;
  std::string Describe(ConnectionId id) const;
  // Returns "host:port" as passed to Connect(), or the source address of the request.
  base::SharedText Peer(ConnectionId id) const;
  // Returns the QP number of this side of the connection, or 0 if there is none yet or a command of the connection is in flight.
  uint32_t QpNumber(ConnectionId id) const;

 private:
  struct Connection;
  struct Passage;
  struct Quarantined {
    int64_t until_ns;
    uint32_t qpn;
    friend auto operator<=>(const Quarantined&, const Quarantined&) = default;
  };
  // Maximum number of refusals and hand-overs in flight. At the limit, further events wait in the kernel.
  static constexpr int kMaxRefusals = 256;

  ConnectionManager(const verbs::VerbsApi& api, Options options, QpnPool& numbers,
                    poller::Commands& commands, base::Clock& clock, base::TimerWheel& timers,
                    base::Random& random, User& user);

  Connection* Find(ConnectionId id) const;
  Connection* Find(const void* context) const;
  Connection* New();

  void Handle(Connection* c, Event event);
  void Do(Connection* c, Action action);
  void HandleCm(const rdma_cm_event& event, const void* context);
  void HandleRequest(const rdma_cm_event& event);
  // Returns true if another manager gets the request.
  bool HandOver(const rdma_cm_event& event);
  // Returns the context of the new record, or null if no record was free.
  const void* TakeRequest(const rdma_cm_event& event);
  void TakeMoved(const Request& request);
  void RefuseUnheard(rdma_cm_id* id, std::vector<std::byte> words = {});
  bool IsOurs(const rdma_cm_id& id) const;
  bool EndListener(const rdma_cm_event& event);
  void HandleEnd(Connection* c, const rdma_cm_event& event);
  void Fail(Connection* c, absl::Status why);
  void EndTry(Connection* c, absl::Status why, Verdict verdict);
  bool PlanNextTry(Connection* c, Verdict verdict);

  // The following functions submit one command each. Its result returns through Handle().
  void Submit(Connection* c, std::function<int(Connection*)> work,
              std::function<void(Connection*, int error_number)> done);
  void Settle(Connection* c);
  void Wait(Connection* c);
  void Release(Connection* c);
  void TakeTurn(Connection* c);
  void ResolveName(Connection* c);
  void ResolveAddress(Connection* c);
  void StartResolving(Connection* c);
  void SendRequest(Connection* c);
  void SendResponse(Connection* c);
  void ReadPath(Connection* c);
  void Call(Connection* c, const char* call, int (*run)(const verbs::VerbsApi&, rdma_cm_id*),
            void (*done)(Connection*));
  void ResolveRoute(Connection* c);
  void SendReady(Connection* c);
  void Disconnect(Connection* c);
  void AnswerAndKeep(Connection* c);
  void RejectAndDestroy(Connection* c);
  void Destroy(Connection* c);
  void DestroyNow(Connection* c);
  void Free(Connection* c);
  void TellUp(Connection* c);
  void TellDown(Connection* c);

  absl::Status DeadlineError(const Connection& c) const;
  absl::Status CommandError(const Connection& c, int error_number, const char* call) const;
  Passage& PassageOf(Connection* c);
  void SettleDown(Connection* c);
  void SetTimer(Connection* c, int64_t deadline_ns);
  void CancelTimer(Connection* c);
  // Sets the timer to the end of the step, or to the deadline of the attempt if that is earlier.
  void SetStepTimer(Connection* c, int64_t step_ns);
  static void OnTimer(base::Timer* timer, void* context);
  static void OnQuarantineEnd(base::Timer* timer, void* context);
  void Quarantine(uint32_t qpn, int64_t until_ns);

  const verbs::VerbsApi& api_;
  const Options options_;
  QpnPool& numbers_;
  poller::Commands& commands_;
  base::Clock& clock_;
  base::TimerWheel& timers_;
  User& user_;
  verbs::EventChannel channel_;
  std::shared_ptr<Seat> seat_;
  std::vector<Request> early_;  // events of moved ids that arrived before their requests
  std::vector<verbs::CmId> listeners_;
  base::RecordTable<Connection> connections_;
  std::vector<uint32_t> free_;
  size_t in_use_ = 0;
  size_t leaving_ = 0;  // closed connections that still hold their number
  Pacing pacing_;
  // Numbers whose id is destroyed. The number that becomes free first is on top.
  std::priority_queue<Quarantined, std::vector<Quarantined>, std::greater<>> quarantine_;
  base::Timer quarantine_timer_;
  int refusals_ = 0;  // refusals and hand-overs in flight
  Metrics metrics_;   // without the values that are counted elsewhere
};

}  // namespace sluice::cm

#endif  // SLUICE_TRANSPORT_CM_CONNECTION_MANAGER_H_
