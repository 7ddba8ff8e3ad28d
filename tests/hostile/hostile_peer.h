// SPDX-License-Identifier: Apache-2.0
//
// HostilePeer: a process that holds the secret, speaks the wire by hand, and does what its script says.
//
// Purpose       RDMA_CM, DCIs and DCTs of its own; several connections at once (personas), each with what an honest peer would
//               know of it, so that a lie is a lie about something. What the script does not break, it does right. After
//               Serve() it is a server, its personas are its connections, and what would be calls are replies.
// Ownership     The trial; the simulation outlives it.
// Threads       One thread.
#ifndef SLUICE_TESTS_HOSTILE_HOSTILE_PEER_H_
#define SLUICE_TESTS_HOSTILE_HOSTILE_PEER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "middleware/frame/frame.h"
#include "tests/hostile/grammar.h"
#include "tests/hostile/host.h"
#include "transport/base/timer_wheel.h"
#include "transport/cm/connection_manager.h"
#include "transport/lane/writer.h"
#include "transport/memory/slab.h"
#include "transport/path/address_handles.h"
#include "transport/peer/handshake.h"
#include "transport/peer/prefix.h"
#include "transport/peer/secrets.h"
#include "transport/peer/terms.h"
#include "transport/queue/dci_pool.h"
#include "transport/receive/receive_queue.h"

namespace sluice::hostile {

// Of its DCTs.
inline constexpr uint64_t kHostileKey = 0x5eed;

class HostilePeer final : public Host, private cm::User, private queue::QueueUser {
 public:
  HostilePeer(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed,
              const std::string& server, const std::string& secret);
  ~HostilePeer() override;

  // It listens instead of dialling, and answers instead of calling. Before Play().
  absl::Status Serve();

  // Begins; `over` is called when the script has come to its end, its ending included.
  void Play(const Script& script, std::function<void()> over);
  bool over() const { return over_; }
  // How many messages it has sent, and their bytes.
  uint64_t messages() const { return messages_; }
  uint64_t bytes() const { return bytes_; }
  // Connections on which data could be sent.
  uint64_t came_up() const { return came_up_; }

 private:
  struct Persona {
    enum class State : uint8_t { kNobody, kDialling, kWelcomed, kProved, kUp };
    State state = State::kNobody;
    cm::ConnectionId connection;
    peer::HelloMessage hello = {};
    peer::SessionKeys keys;
    queue::Target target;
    bool has_target = false;
    bool failed = false;  // nothing gets through to the server any more
    uint32_t remote_index = 0;
    uint32_t remote_token = 0;
    uint32_t token = 0;
    uint32_t granted = 0;    // by the server
    uint32_t held_back = 0;  // its nominal window less the one in use
    uint16_t committed = 0;  // data messages to it; also what of its credit is used
    uint32_t used = 0;
    uint32_t consumed = 0;  // of its data messages
    uint32_t told = 0;      // of those, in grants
    uint32_t sequence = 0;
    uint64_t next_call = 1;
    std::optional<lane::Writer> lane;
    std::deque<uint64_t> asked;  // calls that came, the latest at the end
  };

  int Poll() override;
  bool PrepareToSleep() override { return true; }
  int64_t SleepLimitNs() override;

  void DoNext();
  bool AnybodyUp() const;
  void End();
  void Do(const Act& act);

  // Connections.
  void Dial(uint32_t number, bool lying, base::SeededRandom& dice);
  void Prove(Persona& persona, bool lying, base::SeededRandom& dice);
  void Retire(Persona& persona);
  // As a server: hostile_server.cc.
  void Welcome(cm::ConnectionId id, std::span<const std::byte> hello, const cm::PathInfo& path);
  void OnProof(Persona& persona, std::span<const std::byte> body, std::span<const std::byte> whole);
  void OnCall(Persona& persona, std::span<const std::byte> message);
  frame::Header Reply(Persona& persona, base::SeededRandom& dice, std::vector<std::byte>* payload);
  void CleanUp();
  Persona* Find(cm::ConnectionId id);
  peer::Terms Terms(const Persona& persona) const;
  uint32_t NumberOf(const Persona& persona) const;

  // What it sends. The prefix is true, but for what `change` makes of it.
  using Change = std::function<void(peer::Prefix&)>;
  void SendControl(Persona& persona, peer::Kind kind, std::span<const std::byte> body = {},
                   const Change& change = nullptr);
  void SendData(Persona& persona, std::span<const std::byte> message,
                const Change& change = nullptr);
  void SendFrame(Persona& persona, frame::Header header, std::span<const std::byte> payload,
                 const Change& change = nullptr);
  void Post(Persona& persona, bool control, std::span<const std::byte> bytes);
  void WriteRemote(Persona& persona, const queue::RemoteWrite& write, bool announced,
                   std::span<const std::byte> bytes);
  static bool HasCredit(const Persona& persona) {
    return static_cast<int32_t>(persona.granted - persona.used) > 0;
  }
  frame::Header Request(Persona& persona, base::SeededRandom& dice,
                        std::vector<std::byte>* payload);
  uint64_t SomeCall(const Persona& persona, base::SeededRandom& dice) const;

  // Operations.
  void DoControl(const Act& act, Persona& persona, base::SeededRandom& dice);
  void DoCalls(const Act& act, Persona& persona, base::SeededRandom& dice);
  void Flood();
  void DoNumbers(Persona& persona, base::SeededRandom& dice);
  void DoLarge(Persona& persona, base::SeededRandom& dice);
  void DoLieInHeader(Persona& persona, base::SeededRandom& dice);
  void DoGarbage(const Act& act, Persona& persona, base::SeededRandom& dice);
  void DoLaneWrite(Persona& persona, base::SeededRandom& dice);
  void DoWriteAnywhere(const Act& act, Persona& persona, base::SeededRandom& dice);

  // What comes in.
  void OnReceived(const ibv_wc& wc);
  void OnControl(Persona& persona, const peer::Prefix& prefix, std::span<const std::byte> body,
                 std::span<const std::byte> whole);
  void OnLaneAsk(Persona& persona, std::span<const std::byte> body);

  // cm::User
  void OnRequest(cm::ConnectionId id, std::span<const std::byte> hello, const cm::PathInfo& path,
                 const std::string&) override;
  void OnResponse(cm::ConnectionId id, std::span<const std::byte> data,
                  const cm::PathInfo& path) override;
  void OnUp(cm::ConnectionId id) override;
  void OnDown(cm::ConnectionId id, const absl::Status& why,
              std::span<const std::byte> reject_data) override;
  // queue::QueueUser
  void OnSent(queue::Target*, uint32_t, bool) override {}
  // It never gives up.
  void OnTargetReset(queue::Target* target, const absl::Status&) override {
    queue_->Resume(target);
    if (flooding_until_ns_ > now_ns()) queue_->Acknowledged(target);
  }
  void OnTargetFailed(queue::Target* target, const absl::Status&) override;
  void OnUnanswered(queue::Target*) override {}
  void OnTargetQuiet(queue::Target*) override {}
  void OnQueueDead(const absl::Status&) override {}

  const std::string server_;
  const peer::Secrets secrets_;
  base::TimerWheel timers_;
  verbs::Cq send_cq_;
  verbs::Cq receive_cq_;
  std::unique_ptr<receive::ReceiveQueue> control_;
  std::unique_ptr<receive::ReceiveQueue> data_;
  memory::Slab memory_;  // of what it sends
  memory::Slab lent_;    // that others may read
  std::optional<queue::SlotTable> slots_;
  std::optional<path::AddressHandles> handles_;
  std::optional<cm::QpnPool> numbers_;
  std::unique_ptr<cm::ConnectionManager> connections_;
  std::unique_ptr<queue::DciPool> queue_;

  bool serving_ = false;
  Script script_;
  size_t next_ = 0;
  uint32_t waited_ = 0;
  int64_t flooding_until_ns_ = 0;
  uint32_t flooder_ = 0;  // the persona
  std::function<void()> on_over_;
  bool over_ = false;
  std::vector<std::unique_ptr<Persona>> personas_;  // who it is now, by number
  std::vector<std::unique_ptr<Persona>> retired_;   // while the queue may name them
  peer::HelloMessage recorded_ = {};
  uint32_t tokens_ = 100;
  uint64_t messages_ = 0;
  uint64_t bytes_ = 0;
  uint64_t came_up_ = 0;
};

}  // namespace sluice::hostile

#endif  // SLUICE_TESTS_HOSTILE_HOSTILE_PEER_H_
