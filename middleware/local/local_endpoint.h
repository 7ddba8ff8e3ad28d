// SPDX-License-Identifier: Apache-2.0
//
// LocalNetwork, LocalEndpoint: an endpoint::Endpoint in memory, within one process, with faults that tests can switch on.
//
// Purpose       Endpoints of one process that find each other by "host:port", without a device or shared memory. InProcess
//               (middleware/api) and tests use them. They keep the contract of endpoint.h: handler calls only inside Poll(), credits,
//               doorbell batches, arming, a descriptor to sleep on. tests/middleware/local/contract_test runs against both
//               implementations. Each message is copied, and allocates.
// Ownership     The creator of the network. Endpoints end before it.
// Threads       As in endpoint.h. Fault switches: any thread. One lock protects everything.
#ifndef SLUICE_MIDDLEWARE_LOCAL_LOCAL_ENDPOINT_H_
#define SLUICE_MIDDLEWARE_LOCAL_LOCAL_ENDPOINT_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "transport/base/clock.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::local {

class LocalEndpoint;

class LocalNetwork {
 public:
  struct Options {
    uint32_t max_message_bytes = 4096;
    int credits = 64;  // messages that each side may have in flight to the other
    uint64_t max_large_bytes = 0;
    uint64_t large_memory_bytes = 256 << 20;  // maximum memory lent at the same time
  };

  std::unique_ptr<LocalEndpoint> Create(endpoint::Handler* handler, base::Clock* clock,
                                        Options options);
  std::unique_ptr<LocalEndpoint> Create(endpoint::Handler* handler, base::Clock* clock) {
    return Create(handler, clock, Options());
  }

  // If true, later attempts to connect get no answer, and end at their deadline.
  void set_silent(bool silent);

 private:
  friend class LocalEndpoint;

  std::mutex mutex_;
  std::map<std::string, LocalEndpoint*> listeners_;
  uint16_t next_port_ = 10000;
  bool silent_ = false;
};

class LocalEndpoint final : public endpoint::Endpoint {
 public:
  ~LocalEndpoint() override;

  // ---- Faults
  // Simulates the death of the process: its peers get OnPeerDown(), and this endpoint no longer sends or delivers.
  void Kill();
  // If true, messages that are flushed from now on are dropped.
  void set_drop(bool drop);
  // If true, messages that arrive from now on return no credit. If false, also returns the withheld credits.
  void set_withhold_credits(bool withhold);
  // Calls `tamper` for each message that is flushed. `tamper` may change the message, and returns the number of its deliveries: 0, 1, 2 …
  void set_tamper(std::function<int(std::vector<std::byte>& message)> tamper);
  // Drops all messages that were committed and not delivered to the peer. OnResend() follows, as after a failed request.
  void FailRequests(endpoint::PeerId peer);
  // Lets the next `count` Reserve() calls return RESOURCE_EXHAUSTED; OnWritable() follows.
  void set_fail_reserves(int count);
  // If true, memory that is lent from now on is not registered before FinishLending(), which ends the registration with `status`.
  void set_slow_lending(bool slow);
  void FinishLending(const absl::Status& status);
  // If true, Lend() returns ABORTED from now on, as if the system had no memory.
  void set_fail_lending(bool fail);
  // If true, fetches from now on wait. If false, waiting fetches continue.
  void set_hold_fetches(bool hold);
  // Continues one waiting fetch; 0: the oldest.
  void LetFetch(size_t which);
  // Lets fetches from now on fail with `status`; OK: they succeed.
  void set_fail_fetches(const absl::Status& status);
  // Calls `run` at the beginning of each PrepareToSleep(), on its thread: just before a sleep.
  void set_before_sleep(std::function<void()> run);
  // Calls `run` at the end of each Wake(), on its thread.
  void set_after_wake(std::function<void()> run);

  // ---- For assertions
  // Blocks until PrepareToSleep() has returned true and no Poll() has followed.
  void WaitUntilArmed();
  // Blocks until the next Poll(). Returns false if there was none within `time`.
  bool PollsWithin(absl::Duration time);
  // Returns the number of messages to other endpoints whose credit has not come back.
  int credits_out() const;
  // Returns the number of send slots that are in use.
  size_t slots_out() const;
  // Returns the number of large buffers, lent and fetched, that have not come back.
  size_t large_out() const;

  // ---- endpoint::Endpoint
  absl::StatusOr<uint16_t> Listen(const std::string& host, uint16_t port) override;
  absl::StatusOr<endpoint::PeerId> Connect(const std::string& host, uint16_t port,
                                           int64_t deadline_ns) override;
  absl::StatusOr<endpoint::SendBuffer> Reserve(endpoint::PeerId peer, uint32_t size_bytes) override;
  endpoint::Room TryReserve(endpoint::PeerId peer, uint32_t size_bytes) override;
  void Commit(endpoint::PeerId peer, endpoint::SendBuffer buffer, uint32_t length_bytes,
              bool report_soon) override;
  void Repost(endpoint::PeerId peer, uint32_t slot) override;
  void Release(uint32_t slot) override;
  void Cancel(endpoint::PeerId peer, endpoint::SendBuffer buffer) override;
  void Flush() override;
  // Peers have no shares here, and a later caller may overtake a waiting caller.
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
  int Poll() override;
  bool PrepareToSleep() override;
  int fd() const override { return event_fd_; }
  int64_t SleepLimitNs() const override;
  void Wake() override;
  // Sets only `address` and `up`.
  absl::StatusOr<endpoint::PeerReport> Report(endpoint::PeerId peer) const override;
  // Returns zeros: there is no handshake.
  endpoint::HandshakeCounts Handshakes() const override { return {}; }
  absl::Status Health() const override { return absl::OkStatus(); }
  endpoint::ConnectionCounts Connections() const override { return {}; }
  endpoint::Counters Counts() const override { return {}; }
  void Disconnect(endpoint::PeerId peer) override;
  void Close() override;

 private:
  friend class LocalNetwork;

  struct Event {
    enum Kind { kUp, kDown, kMessage, kWritable, kResend, kLent, kFetched } kind = kUp;
    endpoint::PeerId peer;
    endpoint::PeerInfo info;         // kUp
    absl::Status why;                // kDown
    std::vector<std::byte> message;  // kMessage
    uint32_t number = 0;             // kLent, kFetched
  };
  struct Peer {
    uint32_t generation = 0;
    enum { kFree, kConnecting, kUp, kLeaving } state = kFree;  // kLeaving: its kDown is due
    LocalEndpoint* remote = nullptr;
    endpoint::PeerId remote_id;
    std::string address;
    int64_t connect_deadline_ns = 0;
    int credits = 0;
    uint32_t max_message_bytes = 0;  // limit of both ends
    bool starved = false;            // a Reserve() failed
    bool lend_waits = false;         // a Lend() with `waits` failed
    bool broken = false;             // from FailRequests() to OnResend()
    uint32_t acknowledged = 0;       // total acknowledged by the peer, reported with its next event
    uint32_t told = 0;               // last total given to the handler
  };

  // Call with the network's mutex locked, for a peer with a credit.
  endpoint::Room TakeRoom(Peer* peer, uint32_t size_bytes);
  struct Large {
    endpoint::PeerId peer;
    std::shared_ptr<std::byte[]> data;
    uint64_t bytes = 0;
    bool known = true;
    bool failed = false;
  };
  struct Fetching {
    endpoint::PeerId peer;
    endpoint::RemoteMemory from;
    absl::Status status;
  };
  struct Pending {
    endpoint::PeerId peer;
    std::vector<std::byte> message;
  };

  LocalEndpoint(LocalNetwork* network, endpoint::Handler* handler, base::Clock* clock,
                LocalNetwork::Options options);

  // Call the following functions with network_->mutex_ held.
  endpoint::PeerId NewPeer(const std::string& address);
  Peer* Find(endpoint::PeerId id);
  const Peer* Find(endpoint::PeerId id) const { return const_cast<LocalEndpoint*>(this)->Find(id); }
  void Post(Event event);
  void Signal();
  void DropPeer(endpoint::PeerId id, const absl::Status& tell_remote);
  void ReturnCredits(endpoint::PeerId from, int count, bool taken);
  void MakeWritable(endpoint::PeerId id);
  void FlushLocked();
  void PostFetched(uint32_t number);
  absl::StatusOr<endpoint::LargeBuffer> Read(uint32_t number);
  void Leave(const absl::Status& why);
  static uint64_t Owner(endpoint::PeerId peer) {
    return uint64_t{peer.generation} << 32 | peer.index;
  }
  void FreeLent(uint32_t number);
  void CollectHeld();

  LocalNetwork* const network_;
  endpoint::Handler* const handler_;
  base::Clock* const clock_;
  const LocalNetwork::Options options_;
  const int event_fd_;

  std::vector<Peer> peers_;
  std::deque<Event> inbox_;
  std::vector<Pending> batch_;                       // committed, not flushed
  std::vector<std::vector<std::byte>> send_memory_;  // by SendBuffer::slot
  std::vector<uint32_t> free_slots_;
  std::vector<std::string> listening_;
  std::map<uint32_t, int> withheld_;  // credits by peer index
  bool armed_ = false;
  bool signalled_ = false;
  bool dead_ = false;
  bool drop_ = false;
  bool withhold_ = false;
  int fail_reserves_ = 0;
  bool slow_lending_ = false;
  bool fail_lending_ = false;
  bool hold_fetches_ = false;
  absl::Status fail_fetches_;
  std::map<uint32_t, Large> lent_;        // by number
  std::map<uint32_t, Fetching> fetches_;  // not ended
  std::map<uint32_t, Large> fetched_;     // owned by the handler
  endpoint::Holds held_lent_{[this] { Wake(); }};
  endpoint::Holds held_fetched_{[this] { Wake(); }};
  uint64_t lent_bytes_ = 0;
  uint32_t next_large_ = 1;
  std::function<int(std::vector<std::byte>&)> tamper_;
  std::function<void()> before_sleep_;
  std::function<void()> after_wake_;
  uint64_t polls_ = 0;
  std::condition_variable changed_;  // armed_ or polls_ has changed
};

}  // namespace sluice::local

#endif  // SLUICE_MIDDLEWARE_LOCAL_LOCAL_ENDPOINT_H_
