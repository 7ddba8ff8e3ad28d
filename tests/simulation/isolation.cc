// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/isolation.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cassert>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "middleware/session/sessions.h"
#include "tests/transport/cm/sim_commands.h"
#include "transport/base/random.h"
#include "transport/device/device.h"
#include "transport/endpoint/create.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::simulation {
namespace {

using endpoint::PeerId;
using softdc::sim::Activity;
using softdc::sim::Simulation;

constexpr uint16_t kPort = 7471;
constexpr int64_t kMs = 1'000'000;
constexpr int64_t kPollDelayNs = 100;
constexpr int64_t kNapNs = 100'000;
constexpr int64_t kRedialNs = 20 * kMs;
// Who has more to do after so many can not sleep.
constexpr int kMostPasses = 1'000;
constexpr uint32_t kCallBytes = 64;

std::string AddressOf(uint32_t node) {
  char text[INET_ADDRSTRLEN];
  const in_addr address = Simulation::Address(node);
  return inet_ntop(AF_INET, &address, text, sizeof(text));
}

// A process on a host, which looks when something has come.
class Process : public session::User {
 public:
  Process(Simulation& simulation, uint32_t node, uint64_t seed, const endpoint::Options& options)
      : simulation_(simulation),
        node_(node),
        clock_(simulation),
        random_(seed * 1'000'003 + node),
        commands_(simulation, node, random_, [this] { OnActivity(Activity::kEvent); }),
        sessions_(this) {
    const Simulation::As as(simulation, node);
    device_ = *device::Device::Open("softdc0", {&Simulation::Verbs()});
    endpoint_ =
        *endpoint::CreateEndpoint(options, *device_, clock_, random_, commands_, &sessions_);
    sessions_.Attach(endpoint_.get());
  }
  ~Process() override {
    const Simulation::As as(simulation_, node_);
    endpoint_.reset();
    device_.reset();
  }

  void OnActivity(Activity what) {
    deeper_ = deeper_ || what != Activity::kCompletion;
    if (!std::exchange(look_due_, true)) simulation_.After(kPollDelayNs, [this] { Look(); });
  }
  // What is left is what the destructor needs: nobody to say goodbye to, which would take real time.
  void Leave() {
    const Simulation::As as(simulation_, node_);
    for (const PeerId peer : peers_) endpoint_->Disconnect(peer);
    OnActivity(Activity::kEvent);
  }
  uint64_t sleepless() const { return sleepless_; }
  bool gone() const { return endpoint_->Connections().numbers_live == 0; }
  // The host: a process that is killed on one that lives is missed at once, since its kernel says so.
  void Die() { simulation_.PortDown(node_); }

 protected:
  void Add(PeerId peer) { peers_.push_back(peer); }
  void Remove(PeerId peer) { std::erase(peers_, peer); }
  void Look() {
    look_due_ = false;
    const Simulation::As as(simulation_, node_);
    if (std::exchange(deeper_, false)) endpoint_->PrepareToSleep();
    while (endpoint_->Poll() != 0) {
    }
    Nap(kNapNs);
  }
  void Nap(int64_t delay_ns) {
    if (std::exchange(nap_due_, true)) return;
    simulation_.After(delay_ns, [this] {
      nap_due_ = false;
      const Simulation::As as(simulation_, node_);
      int passes = 0;
      for (bool nothing_left = false; endpoint_->Poll() != 0 || !nothing_left;) {
        nothing_left = endpoint_->PrepareToSleep();
        if (++passes < kMostPasses) continue;
        ++sleepless_;
        return Nap(kNapNs);
      }
      const int64_t limit_ns = endpoint_->SleepLimitNs();
      if (limit_ns >= 0) Nap(std::clamp<int64_t>(limit_ns, 1, kMs));
    });
  }
  // False: not now.
  bool Say(PeerId peer, uint64_t what) {
    auto buffer = sessions_.Reserve(peer, kCallBytes);
    if (!buffer.ok()) return false;
    std::fill_n(buffer->data, kCallBytes, std::byte{7});
    frame::Header header;
    header.call_id = what;
    header.method_id = 1;
    header.payload_bytes = kCallBytes;
    sessions_.Commit(peer, *buffer, header);
    return true;
  }
  void OnProtocolError(PeerId peer, std::string_view, std::string_view) override {
    endpoint_->Disconnect(peer);
  }

  Simulation& simulation_;
  const uint32_t node_;
  cm::SimClock clock_;
  base::SeededRandom random_;
  cm::SimCommands commands_;
  session::Sessions sessions_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<endpoint::Endpoint> endpoint_;
  bool look_due_ = false;
  bool nap_due_ = false;
  bool deeper_ = false;
  uint64_t sleepless_ = 0;
  std::vector<PeerId> peers_;  // that are up
};

class Server final : public Process {
 public:
  Server(Simulation& simulation, uint32_t node, uint64_t seed, const endpoint::Options& options)
      : Process(simulation, node, seed, options) {
    const Simulation::As as(simulation, node);
    const auto port = endpoint_->Listen("*", kPort);
    assert(port.ok());
    (void)port;
  }

 private:
  void OnPeerUp(PeerId peer, const endpoint::PeerInfo&) override { Add(peer); }
  void OnPeerDown(PeerId peer, const absl::Status&) override {
    Remove(peer);
    owed_.clear();  // there is one
  }
  void OnMessage(PeerId peer, const frame::Header& header, std::span<const std::byte>) override {
    owed_.push_back(header.call_id);
    OnWritable(peer);
  }
  void OnWritable(PeerId peer) override {
    while (!owed_.empty() && Say(peer, owed_.front())) owed_.pop_front();
  }

  std::deque<uint64_t> owed_;
};

class Client final : public Process {
 public:
  Client(Simulation& simulation, const IsolationOptions& options,
         const endpoint::Options& endpoint_options)
      : Process(simulation, 0, options.seed, endpoint_options),
        options_(options),
        places_(options.peers) {
    for (uint32_t i = 0; i < options.peers; ++i) Dial(i);
  }

  uint32_t up() const { return up_; }
  uint64_t lost() const { return lost_; }
  endpoint::Counters Counts() { return endpoint_->Counts(); }
  void ExpectDeaths(uint32_t dead) { dead_ones_ = dead; }
  // Of those that are to die, none is up.
  bool AllKnown() const {
    return std::none_of(places_.begin(), places_.begin() + dead_ones_,
                        [](const Place& place) { return place.up; });
  }
  // Calls each in turn, for ever, each once a period, from a moment of its own in it on.
  void Start() {
    const int64_t step_ns = options_.period_ns / options_.peers;
    for (uint32_t i = 0; i < options_.peers; ++i) {
      simulation_.After(1 + i * step_ns, [this, i] { Tick(i); });
    }
  }
  void Stop() {
    stopped_ = true;
    const Simulation::As as(simulation_, node_);
    for (const Place& place : places_) {
      if (!place.up) endpoint_->Disconnect(place.id);
    }
  }

  struct Call {
    int64_t began_ns;
    int64_t took_ns;  // -1: no answer yet
  };
  // To those that live.
  const std::vector<Call>& calls() const { return calls_; }

 private:
  struct Place {
    PeerId id;
    bool up = false;
    std::deque<uint64_t> waiting;  // calls that could not be sent yet
  };

  void Dial(uint32_t index) {
    if (stopped_) return;
    const Simulation::As as(simulation_, node_);
    const auto id = endpoint_->Connect(AddressOf(index + 1), kPort, clock_.NowNs() + 2'000 * kMs);
    if (!id.ok()) return Redial(index);
    places_[index].id = *id;
    if (id->index >= place_of_.size()) place_of_.resize(id->index + 1);
    place_of_[id->index] = index;
    OnActivity(Activity::kEvent);
  }
  void Redial(uint32_t index) {
    simulation_.After(kRedialNs, [this, index] { Dial(index); });
  }
  void Tick(uint32_t index) {
    if (stopped_) return;
    simulation_.After(options_.period_ns, [this, index] { Tick(index); });
    Place& place = places_[index];
    const bool lives = index >= dead_ones_;
    if (!lives && (!place.up || place.waiting.size() > 4)) return;
    uint64_t name = UINT64_MAX;
    if (lives) {
      name = calls_.size();
      calls_.push_back({simulation_.NowNs(), -1});
    }
    place.waiting.push_back(name);
    const Simulation::As as(simulation_, node_);
    OnWritable(place.id);
    endpoint_->Flush();
    OnActivity(Activity::kCompletion);
  }
  void OnPeerUp(PeerId peer, const endpoint::PeerInfo&) override {
    places_[place_of_[peer.index]].up = true;
    ++up_;
    Add(peer);
  }
  void OnPeerDown(PeerId peer, const absl::Status&) override {
    const uint32_t index = place_of_[peer.index];
    Place& place = places_[index];
    if (place.up) {
      --up_;
      Remove(peer);
      if (index >= dead_ones_ && !stopped_) ++lost_;
    }
    place.up = false;
    place.waiting.clear();
    Redial(index);
  }
  void OnMessage(PeerId, const frame::Header& header, std::span<const std::byte>) override {
    if (header.call_id == UINT64_MAX) return;
    Call& call = calls_[header.call_id];
    call.took_ns = simulation_.NowNs() - call.began_ns;
  }
  void OnWritable(PeerId peer) override {
    Place& place = places_[place_of_[peer.index]];
    while (place.up && !place.waiting.empty() && Say(peer, place.waiting.front())) {
      place.waiting.pop_front();
    }
  }

  const IsolationOptions options_;
  std::vector<Place> places_;
  std::vector<uint32_t> place_of_;  // by PeerId::index
  std::vector<Call> calls_;
  uint32_t up_ = 0;
  uint32_t dead_ones_ = 0;
  uint64_t lost_ = 0;
  bool stopped_ = false;
};

class World final : private softdc::sim::Observer {
 public:
  explicit World(const IsolationOptions& options) : options_(options) {
    softdc::sim::Options network;
    network.seed = options.seed;
    network.nodes = options.peers + 1;
    network.arena_bytes = uint64_t{32} << 20;
    network.dials = options.dials;
    network.dials.cm.retry_ns = 100 * kMs;
    simulation_ = Simulation::Create(network).value();
    simulation_->SetObserver(this);
    endpoint::Options server;
    server.max_message_bytes = 256;
    server.srq_size = 64;
    server.credits_per_peer = 8;
    server.send_buffers = 64;
    server.max_peers = 4;
    server.dci_count = 1;
    server.dci_depth = 64;
    server.dead_peer_ns = options.dead_peer_ns;
    for (uint32_t node = 1; node <= options.peers; ++node) {
      servers_.push_back(std::make_unique<Server>(*simulation_, node, options.seed, server));
    }
    endpoint::Options client = server;
    client.srq_size = std::max(64u, options.peers * 8);
    client.send_buffers = std::max(256u, options.peers * 8);
    client.max_peers = options.peers * 2;
    client.dci_count = options.dci_count;
    client.dci_depth = options.dci_depth;
    client_ = std::make_unique<Client>(*simulation_, options, client);
  }
  ~World() override {
    simulation_->SetObserver(nullptr);
    client_.reset();
    servers_.clear();
  }

  IsolationResult Go();

 private:
  void OnActivity(uint32_t node, Activity what) override {
    if (node == 0) {
      if (client_ != nullptr) client_->OnActivity(what);
    } else if (node <= servers_.size()) {
      servers_[node - 1]->OnActivity(what);
    }
  }
  Latencies Judge(int64_t from_ns, int64_t to_ns) const;

  const IsolationOptions options_;
  std::unique_ptr<Simulation> simulation_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::unique_ptr<Client> client_;
};

Latencies World::Judge(int64_t from_ns, int64_t to_ns) const {
  std::vector<int64_t> took;
  for (const Client::Call& call : client_->calls()) {
    if (call.began_ns < from_ns || call.began_ns >= to_ns || call.took_ns < 0) continue;
    took.push_back(call.took_ns);
  }
  if (took.empty()) return {};
  std::sort(took.begin(), took.end());
  return {took.size(), took[took.size() / 2], took[took.size() * 99 / 100], took.back()};
}

IsolationResult World::Go() {
  const bool all =
      simulation_->RunUntil([&] { return client_->up() == options_.peers; }, 60'000 * kMs);
  assert(all);
  (void)all;
  client_->ExpectDeaths(options_.dead);
  client_->Start();
  simulation_->RunFor(3 * options_.period_ns);  // nobody is new any more
  const int64_t start_ns = simulation_->NowNs();
  simulation_->RunFor(options_.before_ns);
  const int64_t death_ns = simulation_->NowNs();
  for (uint32_t i = 0; i < options_.dead; ++i) servers_[i]->Die();
  simulation_->RunUntil([&] { return client_->AllKnown(); }, 100 * options_.dead_peer_ns);
  const int64_t known_ns = simulation_->NowNs();
  simulation_->RunFor(options_.after_ns);
  const int64_t end_ns = simulation_->NowNs();
  client_->Stop();
  simulation_->RunFor(2 * options_.dead_peer_ns);  // what was late arrives
  for (uint32_t i = 0; i < options_.dead; ++i) simulation_->PortUp(i + 1);
  client_->Leave();
  for (auto& server : servers_) server->Leave();
  size_t left = servers_.size();
  simulation_->RunUntil(
      [&] {
        while (left != 0 && servers_[left - 1]->gone()) --left;
        return left == 0 && client_->gone();
      },
      60'000 * kMs);
  simulation_->RunFor(options_.dead_peer_ns);
  IsolationResult result;
  result.before = Judge(start_ns, death_ns);
  result.during = Judge(death_ns, known_ns);
  result.known = Judge(known_ns, end_ns);
  result.known_after_ns = known_ns - death_ns;
  result.lost_peers = client_->lost();
  result.sleepless = client_->sleepless();
  for (const Client::Call& call : client_->calls()) result.unanswered += call.took_ns < 0;
  const endpoint::Counters counts = client_->Counts();
  result.failed_requests = counts.requests_failed;
  result.stream_resets = counts.stream_resets;
  result.recoveries = counts.queue_recoveries;
  return result;
}

}  // namespace

IsolationResult MeasureIsolation(const IsolationOptions& options) { return World(options).Go(); }

}  // namespace sluice::simulation
