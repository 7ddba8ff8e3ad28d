// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/endpoint/window_rates.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/transport/cm/sim_commands.h"
#include "tests/transport/endpoint/sim_endpoint.h"
#include "transport/base/random.h"
#include "transport/device/device.h"
#include "transport/endpoint/create.h"
#include "transport/softdc/sim/activity.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::endpoint {
namespace {

using softdc::sim::Activity;
using softdc::sim::Simulation;

constexpr uint32_t kBusyHosts = 4;
constexpr uint32_t kIdleHosts = 4;
constexpr uint32_t kHosts = 1 + kBusyHosts + kIdleHosts;
constexpr uint32_t kConnectsAtOnce = 30;  // of a host, whose attempts have a pace
constexpr uint32_t kMessageBytes = 64;
constexpr int64_t kLookNs = 200;  // from a completion until the process sees it
constexpr int64_t kCostNs = 300;  // of a process, for each thing that Poll() counts
constexpr int64_t kPatienceNs = 600'000'000'000;

// A process: an endpoint that looks when something has come, and a program that answers, or asks and measures.
class Host final : public Handler {
 public:
  struct Line {
    PeerId id;
    bool asks = false;     // again, when it has an answer
    uint32_t to_send = 0;  // waits for a window or a buffer
    uint32_t acknowledged = 0;
    uint32_t expected = 0;
    uint32_t sent = 0;
    std::deque<uint32_t> kept;        // slots
    std::deque<int64_t> asked_at_ns;  // of requests without an answer
  };

  Host(Simulation& simulation, uint32_t node, uint64_t seed, const Options& options)
      : simulation_(simulation),
        node_(node),
        clock_(simulation),
        random_(seed * 1000 + node),
        commands_(simulation, node, random_, [this] { Notice(Activity::kEvent); }) {
    const Simulation::As as(simulation, node);
    device_ = std::move(*device::Device::Open("softdc0", {&Simulation::Verbs()}));
    endpoint_ = std::move(*CreateEndpoint(options, *device_, clock_, random_, commands_, this));
  }
  // Left before, and time has passed: nothing is under way that the endpoint would wait for in real time.
  ~Host() override {
    const Simulation::As as(simulation_, node_);
    endpoint_.reset();
    device_.reset();
  }

  void Leave() {
    const Simulation::As as(simulation_, node_);
    for (const Line& line : lines) endpoint_->Disconnect(line.id);
    Notice(Activity::kEvent);
  }
  void Notice(Activity what) {
    deeper_ = deeper_ || what != Activity::kCompletion;
    LookAt(simulation_.NowNs() + kLookNs);
  }
  void Listen() {
    const Simulation::As as(simulation_, node_);
    EXPECT_TRUE(endpoint_->Listen("*", SimEndpoint::kPort).ok());
    Notice(Activity::kEvent);
  }
  void Connect() {
    const Simulation::As as(simulation_, node_);
    const auto id = endpoint_->Connect(SimEndpoint::AddressOf(0), SimEndpoint::kPort,
                                       simulation_.NowNs() + 5'000'000'000);
    EXPECT_TRUE(id.ok()) << id.status();
    if (id.ok()) ids.push_back(*id);
    Notice(Activity::kEvent);
  }
  void Ask(PeerId id, uint32_t requests, bool again) {
    const Simulation::As as(simulation_, node_);
    Line& line = Of(id);
    line.asks = again;
    for (uint32_t i = 0; i < requests; ++i) Send(&line, /*request=*/true);
    Notice(Activity::kCompletion);
  }
  Counters Counts() const { return endpoint_->Counts(); }

  void OnPeerUp(PeerId id, const PeerInfo&) override {
    Of(id) = {};
    Of(id).id = id;
    ++ups;
  }
  void OnPeerDown(PeerId id, const absl::Status& why) override {
    if (down.ok()) down = why;
    for (const uint32_t slot : Of(id).kept) endpoint_->Release(slot);
    Of(id).kept.clear();
  }
  bool OnMessage(PeerId id, std::span<const std::byte> bytes) override {
    Line& line = Of(id);
    uint32_t number = 0;
    std::memcpy(&number, bytes.data(), sizeof(number));
    if (number != line.expected) return false;  // a copy
    ++line.expected;
    if (node_ == 0) {
      Send(&line, /*request=*/false);
      return true;
    }
    latencies_ns.push_back(simulation_.NowNs() - line.asked_at_ns.front());
    line.asked_at_ns.pop_front();
    if (line.asks) Send(&line, /*request=*/true);
    return true;
  }
  void OnAcknowledged(PeerId id, uint32_t total) override {
    Line& line = Of(id);
    for (; line.acknowledged != total && !line.kept.empty(); ++line.acknowledged) {
      endpoint_->Release(line.kept.front());
      line.kept.pop_front();
    }
  }
  bool OnResend(PeerId id) override {
    for (const uint32_t slot : Of(id).kept) endpoint_->Repost(id, slot);
    return true;
  }
  void OnWritable(PeerId id) override { Write(&Of(id)); }

  std::vector<Line> lines;  // by the peer's index
  std::vector<PeerId> ids;
  uint64_t ups = 0;
  absl::Status down;
  std::vector<int64_t> latencies_ns;

 private:
  Line& Of(PeerId id) {
    if (id.index >= lines.size()) lines.resize(id.index + 1);
    return lines[id.index];
  }
  void Send(Line* line, bool request) {
    if (request) line->asked_at_ns.push_back(simulation_.NowNs());
    ++line->to_send;
    Write(line);
  }
  void Write(Line* line) {
    for (; line->to_send != 0; --line->to_send) {
      auto buffer = endpoint_->Reserve(line->id, kMessageBytes);
      if (!buffer.ok()) return;
      std::memcpy(buffer->data, &line->sent, sizeof(line->sent));
      ++line->sent;
      line->kept.push_back(buffer->slot);
      endpoint_->Commit(line->id, *buffer, kMessageBytes, false);
    }
  }

  void LookAt(int64_t at_ns) {
    at_ns = std::max(at_ns, busy_until_ns_);
    if (look_ns_ > simulation_.NowNs() && look_ns_ <= at_ns) return;
    look_ns_ = at_ns;
    simulation_.After(at_ns - simulation_.NowNs(), [this] { Look(); });
  }
  // One pass; the next one when what it did is paid for.
  void Look() {
    const int64_t now_ns = simulation_.NowNs();
    if (now_ns < busy_until_ns_) return LookAt(busy_until_ns_);
    const Simulation::As as(simulation_, node_);
    bool ready = true;
    const bool deeper = std::exchange(deeper_, false);
    int done = endpoint_->Poll();
    if (done == 0 || deeper) ready = endpoint_->PrepareToSleep();
    if (deeper) done += endpoint_->Poll();
    busy_until_ns_ = now_ns + std::max(done, 1) * kCostNs;
    if (done != 0 || !ready) return LookAt(busy_until_ns_);
    const int64_t limit_ns = endpoint_->SleepLimitNs();
    if (limit_ns >= 0) {
      deeper_ = true;
      LookAt(now_ns + std::max<int64_t>(limit_ns, kLookNs));
    }
  }

  Simulation& simulation_;
  const uint32_t node_;
  cm::SimClock clock_;
  base::SeededRandom random_;
  cm::SimCommands commands_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<Endpoint> endpoint_;
  int64_t look_ns_ = 0;
  int64_t busy_until_ns_ = 0;
  bool deeper_ = false;
};

class World final : public softdc::sim::Observer {
 public:
  explicit World(const RatesPlan& plan) : plan_(plan) {
    softdc::sim::Options network;
    network.seed = plan.seed;
    network.nodes = kHosts;
    network.jitter_ns = 200;
    network.dials.limits.max_cqe = 1 << 18;
    network.arena_bytes = uint64_t{1} << 30;
    simulation_ = Simulation::Create(network).value();
    // Buffers, credits and places are those of a server with default options; messages are small.
    Options options;
    options.max_message_bytes = 128;
    options.lane_memory_bytes = 0;
    for (uint32_t node = 0; node < kHosts; ++node) {
      hosts_.push_back(std::make_unique<Host>(*simulation_, node, plan.seed, options));
    }
    simulation_->SetObserver(this);
    hosts_[0]->Listen();
  }
  ~World() override {
    ended_ = true;
    for (auto& host : hosts_) host->Leave();
    const int64_t end_ns = simulation_->NowNs() + 2'000'000'000;
    while (simulation_->NowNs() < end_ns && simulation_->Step()) {
    }
    simulation_->SetObserver(nullptr);
    hosts_.clear();
  }

  void OnActivity(uint32_t node, Activity what) override { hosts_[node]->Notice(what); }

  RatesResult Run() {
    if (!ConnectAll(1 + kBusyHosts, kIdleHosts, plan_.idle) ||
        !ConnectAll(1, kBusyHosts, plan_.busy)) {
      return result_;
    }
    for (uint32_t host = 1; host <= kBusyHosts; ++host) {
      for (const PeerId id : hosts_[host]->ids) hosts_[host]->Ask(id, plan_.outstanding, true);
    }
    if (plan_.words_per_second != 0 && plan_.idle != 0) SayWord(0);
    if (Measure(plan_.requests / 10)) Measure(plan_.requests);
    return result_;
  }

 private:
  bool ConnectAll(uint32_t first, uint32_t hosts, uint32_t peers) {
    for (uint32_t made = 0; made < peers;) {
      for (uint32_t i = 0; i < kConnectsAtOnce * hosts && made < peers; ++i, ++made, ++all_) {
        hosts_[first + made % hosts]->Connect();
      }
      if (RunUntil([&] { return hosts_[0]->ups == all_ && ClientUps() == all_; })) continue;
      Wrong(absl::StrCat(hosts_[0]->ups, " of ", all_, " peers are up"));
      return false;
    }
    return true;
  }
  uint64_t ClientUps() const {
    uint64_t ups = 0;
    for (uint32_t host = 1; host < kHosts; ++host) ups += hosts_[host]->ups;
    return ups;
  }
  // Idle clients, one after the other, whatever has become of the word before.
  void SayWord(uint32_t number) {
    const uint32_t peer = number % plan_.idle;
    Host& host = *hosts_[1 + kBusyHosts + peer % kIdleHosts];
    host.Ask(host.ids[peer / kIdleHosts], 1, false);
    simulation_->After(1'000'000'000 / plan_.words_per_second, [this, number] {
      if (!ended_) SayWord(number + 1);
    });
  }
  bool Measure(uint32_t requests) {
    for (auto& host : hosts_) host->latencies_ns.clear();
    const Counters before = hosts_[0]->Counts();
    const uint64_t failed_before = Failed();
    const int64_t before_ns = simulation_->NowNs();
    const bool done = RunUntil([&] { return Replies() >= requests; });
    if (!done) {
      Wrong(absl::StrCat(Replies(), " of ", requests, " replies came"));
      return false;
    }
    std::vector<int64_t> busy = Latencies(1, kBusyHosts);
    result_.per_second = static_cast<double>(busy.size()) * 1e9 /
                         static_cast<double>(simulation_->NowNs() - before_ns);
    result_.p50_us = At(&busy, 0.5);
    result_.p99_us = At(&busy, 0.99);
    std::vector<int64_t> words = Latencies(1 + kBusyHosts, kIdleHosts);
    result_.words = words.size();
    if (!words.empty()) {
      result_.word_p50_us = At(&words, 0.5);
      result_.word_p99_us = At(&words, 0.99);
    }
    const Counters counts = hosts_[0]->Counts();
    result_.recalled = counts.windows_recalled - before.windows_recalled;
    result_.granted = counts.windows_granted - before.windows_granted;
    result_.failed = Failed() - failed_before;
    for (auto& host : hosts_) {
      if (!host->down.ok()) Wrong(host->down.ToString());
    }
    return true;
  }
  uint64_t Replies() const {
    uint64_t replies = 0;
    for (uint32_t host = 1; host <= kBusyHosts; ++host)
      replies += hosts_[host]->latencies_ns.size();
    return replies;
  }
  uint64_t Failed() const {
    uint64_t failed = 0;
    for (const auto& host : hosts_) failed += host->Counts().requests_failed;
    return failed;
  }
  std::vector<int64_t> Latencies(uint32_t first, uint32_t hosts) const {
    std::vector<int64_t> all;
    for (uint32_t host = first; host < first + hosts; ++host) {
      const std::vector<int64_t>& some = hosts_[host]->latencies_ns;
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
  static double At(std::vector<int64_t>* latencies_ns, double share) {
    const auto at = latencies_ns->begin() +
                    static_cast<ptrdiff_t>(share * static_cast<double>(latencies_ns->size() - 1));
    std::nth_element(latencies_ns->begin(), at, latencies_ns->end());
    return static_cast<double>(*at) / 1000;
  }
  bool RunUntil(const std::function<bool()>& done) {
    const int64_t end_ns = simulation_->NowNs() + kPatienceNs;
    while (!done()) {
      if (simulation_->NowNs() >= end_ns || !simulation_->Step()) return false;
    }
    return true;
  }
  void Wrong(const std::string& what) {
    if (result_.wrong.empty()) result_.wrong = what;
  }

  const RatesPlan plan_;
  std::unique_ptr<Simulation> simulation_;
  std::vector<std::unique_ptr<Host>> hosts_;
  uint64_t all_ = 0;  // peers that were connected
  bool ended_ = false;
  RatesResult result_;
};

}  // namespace

RatesResult RunWindowRates(const RatesPlan& plan) { return World(plan).Run(); }

}  // namespace sluice::endpoint
