// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/endpoint/lane_crowd.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/transport/endpoint/lane_world.h"
#include "transport/peer/prefix.h"

namespace sluice::endpoint {
namespace {

using softdc::sim::Simulation;

constexpr uint32_t kCredits = 4;          // of each peer: what the least one gets
constexpr uint32_t kConnectsAtOnce = 30;  // of a host, whose attempts have a pace
constexpr uint32_t kMessageBytes = 64;
constexpr uint32_t kLaneBytes = 4096;  // of a peer with so few credits
constexpr int64_t kPatienceNs = 600'000'000'000;

// The hot of the first phase, those of the second, and everybody else: each sort has a host of its own, so that its counters
// are theirs. The last one has several.
constexpr uint32_t kColdHosts = 3;
constexpr uint32_t kHosts = 3 + kColdHosts;

class Crowd {
 public:
  explicit Crowd(const CrowdPlan& plan) : plan_(plan) {
    softdc::sim::Options network;
    network.seed = plan.seed;
    network.nodes = kHosts;
    // Ten thousand peers want more than the software device has by default; NICs have millions.
    network.dials.limits.max_cqe = 1 << 18;
    network.arena_bytes = uint64_t{1} << 30;
    simulation_ = Simulation::Create(network).value();
    for (uint32_t node = 0; node < kHosts; ++node) {
      hosts_.push_back(std::make_unique<LaneHost>(*simulation_, node, plan.seed,
                                                  node == 0 ? ReceiverOptions() : SenderOptions(),
                                                  Simulation::Verbs()));
    }
    hosts_[0]->Listen();
    senders_.resize(kHosts);
  }

  CrowdResult Run() {
    const Options options = ReceiverOptions();
    result_.buffer_bytes =
        uint64_t{options.srq_size} * (options.max_message_bytes + peer::kPrefixBytes);
    result_.lane_bytes_limit = options.lane_memory_bytes;
    for (uint32_t peer = 0; peer < plan_.peers; ++peer) senders_[HostOf(peer)].left.push_back(0);
    while (ConnectSome()) {
    }
    for (uint32_t phase = 0; phase < 2 && result_.wrong.empty(); ++phase) Phase(phase);
    uint64_t cold = 0, written = 0;
    for (uint32_t host = 3; host < kHosts; ++host) {
      cold += hosts_[host]->Counts().messages_sent;
      written += hosts_[host]->Counts().lane_sent;
    }
    result_.cold_share = cold == 0 ? 0 : static_cast<double>(written) / static_cast<double>(cold);
    const Counters counts = hosts_[0]->Counts();
    result_.messages = hosts_[0]->program.received;
    result_.lanes_granted = counts.lanes_granted;
    result_.lanes_closed = counts.lanes_closed;
    Judge();
    return result_;
  }

 private:
  struct Sender {
    std::vector<PeerId> peers;
    std::vector<uint32_t> left;  // messages, of each
    size_t next = 0;
  };

  Options ReceiverOptions() const {
    Options options = LaneOptions();
    options.max_message_bytes = 128;
    options.credits_per_peer = kCredits;
    options.srq_size = std::max(256u, plan_.peers * kCredits + 64);
    options.send_buffers = 1024;
    options.max_peers = plan_.peers;
    options.lane_memory_bytes = plan_.lanes * kLaneBytes;
    options.lane_after_messages = 64;
    return options;
  }
  // What comes back to them are credits.
  Options SenderOptions() const {
    Options options = LaneOptions();
    options.max_message_bytes = 128;
    options.credits_per_peer = kCredits;
    options.srq_size = std::max(256u, plan_.peers * kCredits / 2 + 64);
    options.send_buffers = 8192;
    options.max_peers = plan_.peers;
    options.lane_memory_bytes = 0;
    return options;
  }
  uint32_t HostOf(uint32_t peer) const {
    return peer < 2 * plan_.hot ? 1 + peer / plan_.hot : 3 + peer % kColdHosts;
  }

  // Each host as many as its pace allows before they time out. False: all of them are connected.
  bool ConnectSome() {
    uint32_t all = 0;
    for (uint32_t host = 1; host < kHosts; ++host) {
      Sender& sender = senders_[host];
      for (uint32_t i = 0; i < kConnectsAtOnce && sender.peers.size() < sender.left.size(); ++i) {
        sender.peers.push_back(hosts_[host]->Connect(0));
      }
      all += static_cast<uint32_t>(sender.peers.size());
    }
    const bool up = RunUntil(
        [&] {
          size_t ups = 0;
          for (uint32_t host = 1; host < kHosts; ++host) ups += hosts_[host]->program.ups.size();
          return ups == all && hosts_[0]->program.ups.size() == all;
        },
        /*thorough=*/true);
    if (!up) Wrong(absl::StrCat(hosts_[0]->program.ups.size(), " of ", all, " peers: ", Why()));
    return up && all < plan_.peers;
  }

  // The hot ones have much to send, the others little; everybody sends as fast as credits allow.
  void Phase(uint32_t phase) {
    const uint32_t hot = 1 + phase;
    uint64_t target = hosts_[0]->program.received;
    for (uint32_t host = 1; host < kHosts; ++host) {
      for (uint32_t& left : senders_[host].left) {
        left = host == hot ? plan_.hot_messages : plan_.cold_messages;
        target += left;
      }
    }
    const Counters before = hosts_[hot]->Counts();
    const uint64_t half = uint64_t{plan_.hot} * plan_.hot_messages / 2;
    Counters middle = before;
    const bool done = RunUntil([&] {
      for (uint32_t host = 1; host < kHosts; ++host) SendFrom(host);
      if (middle.messages_sent - before.messages_sent < half) middle = hosts_[hot]->Counts();
      return hosts_[0]->program.received >= target;
    });
    if (!done) return Wrong(absl::StrCat("phase ", phase, " did not end"));
    const Counters after = hosts_[hot]->Counts();
    result_.hot_share[phase] = static_cast<double>(after.lane_sent - middle.lane_sent) /
                               static_cast<double>(after.messages_sent - middle.messages_sent);
  }

  // A round over its peers, in which each sends one; some of the cold, since there are many.
  void SendFrom(uint32_t host) {
    constexpr size_t kTries = 16;
    Sender& sender = senders_[host];
    for (size_t i = 0; i < std::min(sender.peers.size(), kTries); ++i) {
      const size_t at = sender.next++ % sender.peers.size();
      if (sender.left[at] == 0 || !hosts_[host]->Send(sender.peers[at], kMessageBytes)) continue;
      --sender.left[at];
    }
  }

  bool RunUntil(const std::function<bool()>& done, bool thorough = false) {
    const int64_t end_ns = simulation_->NowNs() + kPatienceNs;
    for (int still = 0; still < 1000;) {
      bool busy = false;
      for (auto& host : hosts_) busy = host->Look(thorough || still != 0) != 0 || busy;
      result_.lane_bytes_most = std::max(result_.lane_bytes_most, hosts_[0]->Counts().lane_bytes);
      if (done()) return true;
      if (simulation_->NowNs() >= end_ns) return false;
      if (!busy) ScheduleTimers();
      still = simulation_->Step() || busy ? 0 : still + 1;
    }
    return false;
  }

  // So that time does not jump over what an endpoint wants to do in it.
  void ScheduleTimers() {
    const int64_t now_ns = simulation_->NowNs();
    for (uint32_t host = 0; host < kHosts; ++host) {
      const int64_t limit_ns = hosts_[host]->endpoint().SleepLimitNs();
      if (limit_ns < 0) continue;
      const int64_t at_ns = now_ns + std::max<int64_t>(limit_ns, 1);
      if (timers_ns_[host] > now_ns && timers_ns_[host] <= at_ns) continue;
      timers_ns_[host] = at_ns;
      simulation_->After(at_ns - now_ns, [] {});
    }
  }

  void Judge() {
    for (uint32_t host = 0; host < kHosts; ++host) {
      const Program& program = hosts_[host]->program;
      if (program.torn + program.gaps + program.doubles + program.downs == 0) continue;
      Wrong(absl::StrCat("host ", host, ": ", program.torn, " torn, ", program.gaps, " gaps, ",
                         program.doubles, " doubles, ", program.downs, " peers ended"));
    }
  }
  // Of the first peer that ended, if one did.
  std::string Why() {
    for (auto& host : hosts_) {
      for (const Program::Peer& peer : host->program.peers) {
        if (!peer.down.ok()) return peer.down.ToString();
      }
    }
    return "nobody said why";
  }
  void Wrong(const std::string& what) {
    if (result_.wrong.empty()) result_.wrong = what;
  }

  const CrowdPlan plan_;
  std::unique_ptr<Simulation> simulation_;
  std::vector<std::unique_ptr<LaneHost>> hosts_;
  std::vector<Sender> senders_;     // by host
  int64_t timers_ns_[kHosts] = {};  // when each is woken for its timers
  CrowdResult result_;
};

}  // namespace

CrowdResult RunLaneCrowd(const CrowdPlan& plan) { return Crowd(plan).Run(); }

}  // namespace sluice::endpoint
