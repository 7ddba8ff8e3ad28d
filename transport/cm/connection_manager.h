// SPDX-License-Identifier: Apache-2.0
//
// ConnectionManager: makes RDMA_CM connections with external QP numbers, as client and as server.
//
// Purpose       Exchanges private data and paths with the peer. Keeps the QP number of each connection until neither side can be in
//               timewait. Reports promptly when the peer ends. The connections carry no messages. Each step has its own deadline,
//               because the deadlines of the kernel are minutes (facts 106, 117, 120): an attempt without an answer is repeated with
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
  // Nobody is heard any more at an address that Listen() took: its device was removed. For those who
  // listen.
  virtual void OnListenerDown(const absl::Status& /*why*/) {}
};

// docs/decisions/0012 says why these and no others.
struct Options {
  uint32_t max_connections = 1024;
  int backlog = 1024;
  int64_t resolve_timeout_ns = 3'000'000'000;  // of an address, and of a route
  // REQ to its answer in the first try; each further one doubles it.
  int64_t answer_timeout_ns = 3'000'000'000;
  int64_t accept_timeout_ns = 8'000'000'000;  // CONNECT_REQUEST to ESTABLISHED
  int64_t close_timeout_ns = 20'000'000'000;  // DREQ to its answer; nobody waits for it
  // Goodbye to the free number. More than close_timeout_ns and a timewait, so that the other side,
  // if it is one of ours, has forgotten it by then whatever was lost.
  int64_t number_hold_ns = 30'000'000'000;
  PacingOptions pacing;
  ibv_ece local_ece = {};  // offered in requests when the vendor is not 0
  std::string device;      // connections over another device fail; empty: any
  uint8_t port = 0;        // likewise; 0: any
  // Not empty: the device reaches this host only, for this reason. A connection to another host is refused with it.
  std::string only_this_host;
  // The address of this side's queues, which connections are made from where it has the family of the peer's; empty: the
  // kernel chooses. Called inside Commands.
  std::function<std::optional<sockaddr_storage>()> own_address;
  // Type of service that RDMA_CM asks for (RDMA_OPTION_ID_TOS); nothing: the kernel's default.
  std::optional<uint8_t> type_of_service;
  // The private data for a reject that says `why`: the request came over another device or port. Empty: no words.
  std::function<std::vector<std::byte>(const std::string& why)> wrong_place;
  // Whether the private data of a reject says so. Then the next address of the name is tried.
  std::function<bool(std::span<const std::byte>)> is_wrong_place;
  // Those who share one hand each other the requests that one of them hears; nullptr: each keeps its own.
  std::shared_ptr<RequestDesk> desk;
  // Whom to ask for the addresses of a name. Called on a thread that may outlive the manager.
  std::function<decltype(Resolve)> resolve = Resolve;
};

struct Metrics {
  uint64_t live = 0;         // QP numbers of connections and attempts
  uint64_t quarantined = 0;  // QP numbers of closed ones
  uint64_t exhausted = 0;    // attempts for which there was no number
  uint64_t tries = 0;        // REQs, but for those that the kernel repeats
  uint64_t retries = 0;
  uint64_t throttled = 0;  // tries that waited because their peer had been asked too often
  // The older connection with the same number may have been cut as well.
  uint64_t stale_rejects = 0;
  uint64_t timeouts = 0;           // steps that a deadline of ours ended
  uint64_t half_open_reaped = 0;   // accepted, and the client never established
  uint64_t refused_requests = 0;   // for want of a record
  uint64_t strange_requests = 0;   // refused: they came over another device or port
  uint64_t unanswered_closes = 0;  // DREQs
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

  // Port 0 takes a free one. Blocks its caller for as long as a name takes to resolve.
  absl::StatusOr<uint16_t> Listen(const std::string& host, uint16_t port);

  // Ends in OnResponse() or OnDown(), by the deadline at the latest. `by_request`: the server asked for this attempt, so
  // its first try does not wait for its turn.
  absl::StatusOr<ConnectionId> Connect(const std::string& host, uint16_t port, int64_t deadline_ns,
                                       std::span<const std::byte> private_data,
                                       bool by_request = false);
  // `ece` is what this side made of the other's options; vendor 0: nothing.
  void Accept(ConnectionId id, std::span<const std::byte> private_data, const ibv_ece& ece = {});
  void Establish(ConnectionId id);
  void Reject(ConnectionId id, std::span<const std::byte> private_data);
  // Ends the connection in whatever state it is; no OnDown() follows.
  void Close(ConnectionId id);
  // Something came from the other side before ESTABLISHED did: as good (man rdma_notify).
  void NoteTraffic(ConnectionId id);

  int fd() const { return channel_->fd; }
  // Likewise, of requests that others hear; -1: no desk.
  int seat_fd() const { return seat_ == nullptr ? -1 : seat_->fd(); }
  // Handles all CM events that have come; never blocks. How many.
  int ReadEvents();

  // Records in use, timewait included.
  size_t size() const { return in_use_; }
  // Three quarters of the records are in use.
  bool crowded() const { return 4 * in_use_ >= 3 * size_t{options_.max_connections}; }
  // QP numbers of closed connections that are not free yet.
  size_t quarantined() const { return leaving_ + quarantine_.size(); }
  Metrics metrics() const;
  // A request that was told of, and neither answered nor given up by its client.
  bool AwaitsAnswer(ConnectionId id) const;
  std::string Describe(ConnectionId id) const;
  // "host:port" as asked for, or the source address.
  base::SharedText Peer(ConnectionId id) const;
  // The number that stands for this side of the connection; 0: none yet. As of the last call.
  uint32_t QpNumber(ConnectionId id) const;

 private:
  struct Connection;
  struct Passage;
  struct Quarantined {
    int64_t until_ns;
    uint32_t qpn;
    friend auto operator<=>(const Quarantined&, const Quarantined&) = default;
  };
  static constexpr int kMaxRefusals =
      256;  // and hand-overs, under way; more requests wait in the kernel

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
  // True: another manager gets it.
  bool HandOver(const rdma_cm_event& event);
  // The context of its record; null: there is none.
  const void* TakeRequest(const rdma_cm_event& event);
  void TakeMoved(const Request& request);
  void RefuseUnheard(rdma_cm_id* id, std::vector<std::byte> words = {});
  bool IsOurs(const rdma_cm_id& id) const;
  bool EndListener(const rdma_cm_event& event);
  void HandleEnd(Connection* c, const rdma_cm_event& event);
  void Fail(Connection* c, absl::Status why);
  void EndTry(Connection* c, absl::Status why, Verdict verdict);
  bool PlanNextTry(Connection* c, Verdict verdict);

  // Each submits one piece of work; its result comes back through Handle().
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
  // At the attempt's deadline, or earlier when the step has used up its time.
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
  std::vector<Request>
      early_;  // events of ids that were moved here and whose requests have not come yet
  std::vector<verbs::CmId> listeners_;
  base::RecordTable<Connection> connections_;
  std::vector<uint32_t> free_;
  size_t in_use_ = 0;
  size_t leaving_ = 0;  // connections that are closed and keep their number
  Pacing pacing_;
  // Numbers whose id is gone; the first to come free on top.
  std::priority_queue<Quarantined, std::vector<Quarantined>, std::greater<>> quarantine_;
  base::Timer quarantine_timer_;
  int refusals_ = 0;  // under way
  Metrics metrics_;   // but what is counted elsewhere
};

}  // namespace sluice::cm

#endif  // SLUICE_TRANSPORT_CM_CONNECTION_MANAGER_H_
