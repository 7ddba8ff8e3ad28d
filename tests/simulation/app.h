// SPDX-License-Identifier: Apache-2.0
//
// App: the program of one process: connects to the hosts that it should, sends what the workload says, answers, checks
// what comes, and connects again.
#ifndef SLUICE_TESTS_SIMULATION_APP_H_
#define SLUICE_TESTS_SIMULATION_APP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "middleware/session/sessions.h"
#include "tests/simulation/scene.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::simulation {

class App final : public session::User {
 public:
  static constexpr uint16_t kPort = 7471;

  // `run` calls back as the process, when it is not held up; never after its end.
  using RunAs = std::function<void(int64_t delay_ns, std::function<void()> task)>;
  App(Scene& scene, uint32_t node, uint32_t life, RunAs run);

  // Both outlive it.
  void Attach(session::Sessions* sessions, endpoint::Endpoint* endpoint) {
    sessions_ = sessions;
    endpoint_ = endpoint;
  }
  void Listen();
  void Connect(uint32_t to);
  // The process is dead: whatever was under way has failed.
  void Die();
  // Each connection sends one more message, whose delivery it wants to know of.
  void SendLast();
  // Everybody is told goodbye.
  void Leave();
  // Reserves all that can be had, and gives it back: credits and buffers that are there.
  struct Room {
    uint32_t reserved = 0;
    bool short_of_buffers = false;
    uint64_t missing_credits = 0;  // of what there was in the beginning
  };
  Room Measure();
  bool said_last() const;

  void OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) override;
  void OnPeerDown(endpoint::PeerId peer, const absl::Status& why) override;
  void OnMessage(endpoint::PeerId peer, const frame::Header& header,
                 std::span<const std::byte> payload) override;
  void OnWritable(endpoint::PeerId peer) override;
  void OnDelivered(endpoint::PeerId peer, uint32_t sequence) override;
  void OnProtocolError(endpoint::PeerId peer, std::string_view what,
                       std::string_view explanation) override;

 private:
  struct Link {
    endpoint::PeerId id;
    uint32_t end = kNoEnd;
    uint32_t to = 0;
    uint32_t most_bytes = 0;
    uint32_t burst = 0;    // messages left of it
    uint32_t replies = 0;  // owed
    uint32_t credits = 0;  // there were in the beginning
    bool last = false;     // the last message is due
    bool dialled = false;
    bool left = false;  // this side has disconnected it
  };
  struct Attempt {
    endpoint::PeerId id;
    uint32_t to = 0;
  };

  Link* Find(endpoint::PeerId peer);
  void StartBurst(endpoint::PeerId peer);
  void Pump(Link& link);
  // False: not now.
  bool SendOne(Link& link, bool wants_reply, bool wants_report);
  void Redial(uint32_t to);
  bool Alike(uint32_t to) const { return scene_.plan.rc[node_] == scene_.plan.rc[to]; }
  // Disconnects it, now and then, inside the callback that asks.
  void LeaveSometimes(Link& link);

  Scene& scene_;
  const uint32_t node_;
  const uint32_t life_;
  const RunAs run_;
  softdc::sim::Random random_;
  session::Sessions* sessions_ = nullptr;
  endpoint::Endpoint* endpoint_ = nullptr;
  std::vector<Link> links_;  // by PeerId::index
  std::vector<Attempt> attempts_;
  bool leaving_ = false;
  bool dead_ = false;
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_APP_H_
