// SPDX-License-Identifier: Apache-2.0
//
// Victim: the server under attack, whole: device, endpoint, sessions, call engine and services. A tap between endpoint and
// sessions is told of each peer, and judges what the endpoint says against its contract.
// Services: Echo answers at once; Hold answers later, or never; Pipe sends back each message of a stream.
#ifndef SLUICE_TESTS_HOSTILE_VICTIM_H_
#define SLUICE_TESTS_HOSTILE_VICTIM_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "middleware/call/gate.h"
#include "middleware/call/server_engine.h"
#include "tests/hostile/host.h"
#include "tests/hostile/report.h"
#include "transport/endpoint/create.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::hostile {

inline constexpr call::Method kEcho("/hostile.Service/Echo");
inline constexpr call::Method kHold("/hostile.Service/Hold");
inline constexpr call::Method kPipe("/hostile.Service/Pipe", call::Streams::kBoth);

// What stands between an endpoint and its user.
class Tap final : public endpoint::Handler {
 public:
  struct End {
    std::string address;
    absl::Status why;
  };

  Tap(endpoint::Handler* below, Report* report) : below_(below), report_(report) {}
  // Its user dials: peers go down that never came up.
  void set_dials() { dials_ = true; }
  // Judges how the endpoint enforces credits. All peers have this window, and no peer has lanes or asks for one: the endpoint keeps or
  // drops messages of peers with lanes, and calls no handler for them in their look.
  void JudgeCredits(uint32_t window) { window_ = window; }

  void OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) override;
  void OnPeerDown(endpoint::PeerId peer, const absl::Status& why) override;
  bool OnMessage(endpoint::PeerId peer, std::span<const std::byte> bytes) override;
  void OnAcknowledged(endpoint::PeerId peer, uint32_t total) override;
  bool OnResend(endpoint::PeerId peer) override;
  void OnWritable(endpoint::PeerId peer) override;
  void OnLent(endpoint::PeerId peer, uint32_t number, const absl::Status& status) override;
  void OnFetched(endpoint::PeerId peer, const absl::StatusOr<endpoint::LargeBuffer>& buffer,
                 uint32_t number) override;

  // How many peers are up whose address begins so.
  size_t Up(const std::string& address) const;
  std::vector<endpoint::PeerId> up() const;
  const std::vector<End>& ends() const { return ends_; }

 private:
  using Id = std::pair<uint32_t, uint32_t>;  // index and generation

  void Check(endpoint::PeerId peer, const char* what);
  void CheckCredits(const Id& id, const absl::Status& why);

  endpoint::Handler* const below_;
  Report* const report_;
  bool dials_ = false;
  uint32_t window_ = 0;  // 0: credits are not judged
  std::map<Id, std::string> up_;
  std::set<Id> over_;
  // Whether each of the latest messages was new; of each peer, as many as one look may have.
  std::map<Id, std::deque<bool>> latest_;
  std::vector<End> ends_;
};

// Interceptors, as the API has them: it reads all that it is given, and counts.
class Watchman final : public call::Gate {
 public:
  absl::Status OnCall(const call::Incoming& incoming) override;
  void OnEnd(const call::Incoming& incoming, const absl::Status& status, int64_t now_ns) override;
  // Calls that were let in and have not ended.
  int64_t inside() const { return inside_; }

 private:
  void Read(const call::Incoming& incoming);

  int64_t inside_ = 0;
  uint64_t calls_ = 0;
  uint64_t sum_ = 0;
};

class Victim final : public Host {
 public:
  Victim(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed,
         const endpoint::Options& options, bool interceptors, Report* report);
  ~Victim() override;

  // Says goodbye to everybody; the destructor would wait for that in real time.
  void Leave();

  const Tap& tap() const { return tap_; }
  void JudgeCredits(uint32_t window) { tap_.JudgeCredits(window); }
  endpoint::Endpoint& endpoint() { return *endpoint_; }
  call::ServerEngine& engine() { return engine_; }
  bool has_interceptors() const { return has_interceptors_; }
  const Watchman& watchman() const { return watchman_; }

 private:
  class Pipe;

  int Poll() override { return engine_.Poll(); }
  bool PrepareToSleep() override { return engine_.PrepareToSleep(); }
  int64_t SleepLimitNs() override { return engine_.SleepLimitNs(); }
  void Serve(const call::Method& method, void (*start)(Victim*, call::ServerCall*));
  void Hold(call::ServerCall* call);

  const bool has_interceptors_;
  Watchman watchman_;
  call::ServerEngine engine_;
  Tap tap_;
  std::unique_ptr<endpoint::Endpoint> endpoint_;
};

}  // namespace sluice::hostile

#endif  // SLUICE_TESTS_HOSTILE_VICTIM_H_
