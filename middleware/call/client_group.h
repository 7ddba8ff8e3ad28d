// SPDX-License-Identifier: Apache-2.0
//
// ClientGroup: several ClientEngines over one endpoint (docs/decisions/0069).
//
// Purpose       Polls the endpoint once for all engines. Gives the events of each peer to the engine that connected the peer.
//               Runs the timers of the engines that have any. An engine without calls and timers costs nothing in a pass.
//               GroupEndpoint is an engine's view of the endpoint. It has the peers of that engine only, and numbers them itself,
//               so that the tables of an engine grow with its own peers, not with the peers of the group.
// Ownership     The creator owns the group, which outlives all its GroupEndpoints. The endpoint outlives the group's last call.
//               The owner of an engine owns the engine's GroupEndpoint.
// Threads       One at a time, as ClientEngine.
// End           GroupEndpoint::Close() disconnects the engine's peers; gone() is true after the next Poll(); then Leave().
#ifndef SLUICE_MIDDLEWARE_CALL_CLIENT_GROUP_H_
#define SLUICE_MIDDLEWARE_CALL_CLIENT_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "middleware/call/client_engine.h"
#include "transport/base/clock.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::call {

class ClientGroup;

class GroupEndpoint final : public endpoint::Endpoint {
 public:
  // `group` and `engine` outlive it.
  GroupEndpoint(ClientGroup* group, ClientEngine* engine);
  ~GroupEndpoint() override;
  GroupEndpoint(const GroupEndpoint&) = delete;
  GroupEndpoint& operator=(const GroupEndpoint&) = delete;

  // Returns true if no peer of the engine is left.
  bool gone() const { return live_ == 0; }
  // Calls `run` once, in a Poll(), when gone() becomes true.
  void WhenGone(std::function<void()> run) { when_gone_ = std::move(run); }

  // Returns FAILED_PRECONDITION: a group only connects.
  absl::StatusOr<uint16_t> Listen(const std::string& host, uint16_t port) override;
  absl::StatusOr<endpoint::PeerId> Connect(const std::string& host, uint16_t port,
                                           int64_t deadline_ns) override;
  absl::StatusOr<endpoint::SendBuffer> Reserve(endpoint::PeerId peer, uint32_t size_bytes) override;
  void Commit(endpoint::PeerId peer, endpoint::SendBuffer buffer, uint32_t length_bytes,
              bool report_soon) override;
  endpoint::Room TryReserve(endpoint::PeerId peer, uint32_t size_bytes) override;
  void CommitRoom(endpoint::PeerId peer, endpoint::Room room, uint32_t length_bytes,
                  bool report_soon) override;
  SlotRange NeverReleased() const override;
  void Repost(endpoint::PeerId peer, uint32_t slot) override;
  void Release(uint32_t slot) override;
  void Cancel(endpoint::PeerId peer, endpoint::SendBuffer buffer) override;
  void Flush() override;
  absl::StatusOr<endpoint::LargeBuffer> Lend(endpoint::PeerId peer, uint64_t bytes,
                                             bool waits) override;
  std::optional<endpoint::RemoteMemory> WhereLent(uint32_t number) override;
  void EndLoan(uint32_t number) override;
  absl::StatusOr<uint32_t> Fetch(endpoint::PeerId peer,
                                 const endpoint::RemoteMemory& from) override;
  void CancelFetch(uint32_t number) override;
  void GiveBack(uint32_t number) override;
  endpoint::HeldMemory HoldLent(uint32_t number) override;
  bool LendHeld(endpoint::PeerId peer, const endpoint::HeldMemory& memory) override;
  endpoint::HeldMemory HoldFetched(uint32_t number) override;
  // Poll(), PrepareToSleep() and SleepLimitNs() have no effect: the group polls and sleeps.
  int Poll() override { return 0; }
  bool PrepareToSleep() override { return false; }
  int fd() const override;
  int64_t SleepLimitNs() const override { return -1; }
  void Wake() override;
  absl::StatusOr<endpoint::PeerReport> Report(endpoint::PeerId peer) const override;
  // The next functions report values of the whole group.
  endpoint::HandshakeCounts Handshakes() const override;
  absl::Status Health() const override;
  endpoint::ConnectionCounts Connections() const override;
  endpoint::Counters Counts() const override;
  std::vector<endpoint::QueueReport> Queues() const override;
  void Disconnect(endpoint::PeerId peer) override;
  // Disconnects the engine's peers. Unlike other endpoints, it still calls OnPeerDown() of the handler for each of them, so that the
  // handler releases its buffers of the shared endpoint.
  void Close() override;

 private:
  friend class ClientGroup;

  // A peer of the engine. The engine knows the peer by the index of its slot.
  struct Slot {
    endpoint::PeerId shared;  // id in the shared endpoint
    uint32_t generation = 0;  // that the engine knows; 0: unused
  };

  // Returns the id in the shared endpoint; {} if the engine has no such peer.
  endpoint::PeerId SharedOf(endpoint::PeerId peer) const;
  void Forget(uint32_t index);

  ClientGroup* const group_;
  ClientEngine* const engine_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> unused_;  // indexes of slots_
  uint32_t live_ = 0;
  uint32_t next_generation_ = 1;
  std::function<void()> when_gone_;
  // The members below belong to the group.
  bool left_ = false;
  bool entered_ = false;  // entered_, calling_, timed_: in the group's list of the same name
  bool calling_ = false;
  bool timed_ = false;
  uint64_t pass_ = 0;  // last pass in which the engine was entered
};

class ClientGroup final : public endpoint::Handler {
 public:
  explicit ClientGroup(base::Clock* clock) : clock_(clock) { RefreshNow(); }

  // Returns the handler to create the endpoint with.
  endpoint::Handler* handler() { return this; }
  void Attach(endpoint::Endpoint* endpoint) { endpoint_ = endpoint; }

  // Call before each use of the member's engine: begins a pass of the engine if it has not been entered in this pass.
  void Enter(GroupEndpoint* member) {
    if (member->pass_ == pass_) [[likely]]
      return;
    EnterPass(member);
  }
  // Removes a member whose engine is closed, and that is gone(). The engine may be called afterwards, and may be destroyed.
  void Leave(GroupEndpoint* member);

  // As in ClientEngine.
  int Poll();
  bool PrepareToSleep() { return entered_.empty() && endpoint_->PrepareToSleep(); }
  int64_t SleepLimitNs();
  int AfterSleep();
  void Flush() { endpoint_->Flush(); }
  // Returns true if an engine has calls that have not ended.
  bool HasCalls();
  int64_t now_ns() const { return now_ns_; }
  base::Clock* clock() const { return clock_; }

  void OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) override;
  void OnPeerDown(endpoint::PeerId peer, const absl::Status& why) override;
  bool OnMessage(endpoint::PeerId peer, std::span<const std::byte> bytes) override;
  void OnAcknowledged(endpoint::PeerId peer, uint32_t total) override;
  bool OnResend(endpoint::PeerId peer) override;
  void OnWritable(endpoint::PeerId peer) override;
  void OnLent(endpoint::PeerId peer, uint32_t number, const absl::Status& status) override;
  void OnFetched(endpoint::PeerId peer, const absl::StatusOr<endpoint::LargeBuffer>& buffer,
                 uint32_t number) override;

 private:
  friend class GroupEndpoint;

  // As in ClientEngine.
  static constexpr uint32_t kIdlePassesPerClockRead = 16;
  static constexpr uint32_t kBusyPassesPerClockRead = 64;
  static constexpr uint32_t kQuietPasses = 64;

  // Receiver of the events of a peer.
  struct Route {
    GroupEndpoint* member = nullptr;
    uint32_t generation = 0;  // in the shared endpoint
    endpoint::PeerId own;     // id that the engine knows
  };

  void EnterPass(GroupEndpoint* member);
  // Returns the route of a peer, and enters its member. Returns nullptr if the peer belongs to no member.
  const Route* RouteOf(endpoint::PeerId peer) {
    if (peer.index >= routes_.size()) return nullptr;
    const Route& route = routes_[peer.index];
    if (route.member == nullptr || route.generation != peer.generation) return nullptr;
    Enter(route.member);
    return &route;
  }
  void RefreshNow() { now_ns_ = clock_->NowNs(); }
  // Fires the timers that are due; returns their number.
  int FireTimers();
  static bool IsIdle(GroupEndpoint* member);

  base::Clock* const clock_;
  endpoint::Endpoint* endpoint_ = nullptr;
  std::vector<Route> routes_;  // by PeerId::index of the shared endpoint
  // Members may be in several lists, and in each of them once.
  std::vector<GroupEndpoint*> entered_;  // since the last pass began; may have work
  std::vector<GroupEndpoint*> calling_;  // may have calls
  std::vector<GroupEndpoint*> timed_;    // may have timers
  std::vector<GroupEndpoint*> working_;  // list that Poll() works on
  uint64_t pass_ = 1;
  int64_t now_ns_ = 0;
  uint32_t idle_passes_ = 0;
  uint32_t busy_passes_ = 0;
  uint32_t quiet_passes_ = 0;  // in a row
};

// The object that a thread drives: an engine with an endpoint of its own, or a group.
class Driven {
 public:
  explicit Driven(ClientEngine* alone) : alone_(alone) {}
  explicit Driven(ClientGroup* group) : group_(group) {}

  int Poll() const { return group_ == nullptr ? alone_->Poll() : group_->Poll(); }
  bool PrepareToSleep() const {
    return group_ == nullptr ? alone_->PrepareToSleep() : group_->PrepareToSleep();
  }
  int64_t SleepLimitNs() const {
    return group_ == nullptr ? alone_->SleepLimitNs() : group_->SleepLimitNs();
  }
  int AfterSleep() const { return group_ == nullptr ? alone_->AfterSleep() : group_->AfterSleep(); }
  void Flush() const { group_ == nullptr ? alone_->Flush() : group_->Flush(); }
  bool HasCalls() const {
    return group_ == nullptr ? alone_->outstanding() != 0 : group_->HasCalls();
  }
  int64_t now_ns() const { return group_ == nullptr ? alone_->now_ns() : group_->now_ns(); }
  base::Clock* clock() const { return group_ == nullptr ? alone_->clock() : group_->clock(); }
  ClientGroup* group() const { return group_; }  // nullptr: a single engine

 private:
  ClientEngine* const alone_ = nullptr;
  ClientGroup* const group_ = nullptr;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_CLIENT_GROUP_H_
