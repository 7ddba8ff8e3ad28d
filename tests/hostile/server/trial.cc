// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/server/trial.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/hostile/hostile_peer.h"
#include "tests/hostile/report.h"
#include "tests/hostile/server/caller.h"
#include "tests/hostile/small_options.h"
#include "tests/hostile/victim.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::hostile::server {
namespace {

using softdc::sim::Activity;
using softdc::sim::Simulation;

// Nodes: the honest server, clients, the hostile server.
constexpr uint32_t kHonest = 0;
constexpr uint32_t kClients = 2;
constexpr uint32_t kHostile = kClients + 1;
constexpr char kSecret[] = "a secret that all sides share";

constexpr int64_t kWarmUpNs = 5 * kMs;
constexpr int64_t kPeaceNs = 30 * kMs;
constexpr int64_t kAfterNs = 5 * kMs;
constexpr int64_t kEndNs = 500 * kMs;
constexpr uint64_t kMostRestless = 100;
// What a client does, in its one thread, with all that the hostile server's credits on two channels allow.
constexpr int64_t kBusyNs = 2 * 16 * 100;
constexpr size_t kMostPassBytes = 6 << 20;
constexpr int64_t kMostLeftBytes = 2 << 20;
constexpr uint64_t kMostLargeSteps = 8;  // for each message
constexpr uint32_t kLargeBytes = 24'000;

constexpr uint32_t kWorlds = 5;

Features WorldOf(uint64_t seed) {
  const uint64_t which = seed % kWorlds;
  return {.lanes = (which & 1) != 0, .large = (which & 2) != 0, .streams = which != kWorlds - 1};
}

endpoint::Options EndpointOptions(const Features& world) {
  endpoint::Options options = SmallOptions(world);
  options.secrets = [] { return std::vector<std::string>{kSecret}; };
  return options;
}

class Trial final : private softdc::sim::Observer {
 public:
  Trial(const Features& world, const Script* script);
  ~Trial() override;

  ServerResult Run();

 private:
  void OnActivity(uint32_t node, Activity what) override {
    if (hosts_.contains(node)) hosts_[node]->OnActivity(what);
  }
  void Attack();
  void CheckEnd();
  void Judge(int64_t since_ns, ServerResult* result);
  bool Until(const std::function<bool()>& done) {
    return simulation_->RunUntil([&] { return !report_.violations().empty() || done(); }, kEndNs) &&
           done();
  }

  const Features world_;
  const Script* const script_;  // null: nobody is hostile, and nobody listens there
  Report report_;
  std::unique_ptr<Simulation> simulation_;
  std::map<uint32_t, Host*> hosts_;
  std::unique_ptr<Victim> honest_;
  std::vector<std::unique_ptr<Caller>> clients_;
  std::unique_ptr<HostilePeer> hostile_;
};

Trial::Trial(const Features& world, const Script* script) : world_(world), script_(script) {
  softdc::sim::Options network;
  network.seed = 1;
  network.nodes = kHostile + 1;
  network.arena_bytes = uint64_t{32} << 20;
  network.dials.cm.retry_ns = 10 * kMs;
  simulation_ = Simulation::Create(network).value();
  simulation_->SetObserver(this);
  honest_ = std::make_unique<Victim>(*simulation_, kHonest, 1, EndpointOptions(world),
                                     /*interceptors=*/false, &report_);
  honest_->set_weighed(false);
  hosts_[kHonest] = honest_.get();
  for (uint32_t node = 1; node <= kClients; ++node) {
    clients_.push_back(std::make_unique<Caller>(*simulation_, node, 1, EndpointOptions(world),
                                                Host::AddressOf(kHonest), Host::AddressOf(kHostile),
                                                world.large ? kLargeBytes : 0, &report_));
    hosts_[node] = clients_.back().get();
    clients_.back()->OnActivity(Activity::kEvent);
  }
}

Trial::~Trial() {
  simulation_->SetObserver(nullptr);
  hosts_.clear();
  hostile_.reset();
  clients_.clear();
  honest_.reset();
}

void Trial::Attack() {
  if (script_ == nullptr) return simulation_->RunFor(kPeaceNs);
  hostile_ =
      std::make_unique<HostilePeer>(*simulation_, kHostile, 1, Host::AddressOf(kHonest), kSecret);
  hosts_[kHostile] = hostile_.get();
  hostile_->set_weighed(false);
  const absl::Status listens = hostile_->Serve();
  if (!listens.ok()) return report_.Break(listens.ToString());
  bool over = false;
  hostile_->Play(*script_, [&over] { over = true; });
  if (!Until([&over] { return over; })) return report_.Break("the script did not end");
  simulation_->RunFor(kAfterNs);
  hostile_->Stop();
}

void Trial::CheckEnd() {
  for (auto& client : clients_) client->Finish();
  const auto all_idle = [&] {
    return std::all_of(clients_.begin(), clients_.end(),
                       [](const auto& client) { return client->idle(); });
  };
  if (!Until(all_idle) && report_.violations().empty()) report_.Break("calls did not end");
  for (const Tap::End& end : honest_->tap().ends()) {
    report_.Break(absl::StrCat("a client lost the honest server: ", end.why.ToString()));
  }
}

void Trial::Judge(int64_t since_ns, ServerResult* result) {
  std::vector<int64_t> took;
  for (const auto& client : clients_) {
    for (const Caller::Took& one : client->took()) {
      if (one.began_ns >= since_ns) took.push_back(one.ns);
    }
    result->honest_calls += client->honest_calls();
    result->other_calls += client->other_calls();
    result->other_ok += client->other_ok();
    result->large_steps += client->large_steps();
    result->largest_pass_bytes = std::max(result->largest_pass_bytes, client->largest_pass_bytes());
    if (client->sleepless() != 0) report_.Break("a client never slept");
    if (client->restless() > kMostRestless)
      report_.Break("a client slept for no time, again and again");
  }
  std::sort(took.begin(), took.end());
  if (!took.empty()) {
    result->p50_ns = took[took.size() / 2];
    result->p99_ns = took[took.size() * 99 / 100];
  }
  if (result->largest_pass_bytes > kMostPassBytes) {
    report_.Break(
        absl::StrCat("one pass of a client allocated ", result->largest_pass_bytes, " bytes"));
  }
}

ServerResult Trial::Run() {
  ServerResult result;
  const auto all_up = [&] {
    return std::all_of(clients_.begin(), clients_.end(),
                       [](const auto& client) { return client->up(); });
  };
  if (!Until(all_up)) report_.Break("clients did not connect to the honest server");
  for (auto& client : clients_) client->Start();
  simulation_->RunFor(kWarmUpNs);
  const int64_t since_ns = simulation_->NowNs();
  const size_t before = HeapBytes();
  if (report_.violations().empty()) Attack();
  if (report_.violations().empty()) CheckEnd();
  if (hostile_ != nullptr) {
    result.hostile_messages = hostile_->messages();
    result.hostile_connections = hostile_->came_up();
  }
  hosts_.erase(kHostile);
  hostile_.reset();
  result.left_bytes = static_cast<int64_t>(HeapBytes()) - static_cast<int64_t>(before);
  Judge(since_ns, &result);
  for (auto& client : clients_) client->Leave();
  simulation_->RunFor(100 * kMs);
  result.violations = report_.violations();
  result.digest = simulation_->log().digest();
  return result;
}

// What the same world is like when nobody is hostile.
const ServerResult& Peace(uint64_t which) {
  static auto* const known = new std::map<uint64_t, ServerResult>();
  const auto it = known->find(which);
  if (it != known->end()) return it->second;
  return known->emplace(which, Trial(WorldOf(which), nullptr).Run()).first->second;
}

}  // namespace

// Of a server's acts more are about messages than about connections, which its clients begin.
Script DrawServer(uint64_t seed) {
  Script script = Draw(seed + 1'000'000);
  script.manners.personas = std::max(script.manners.personas, 2 * kClients);
  return script;
}

ServerResult RunServerTrial(uint64_t seed, size_t limit) {
  Script script = DrawServer(seed);
  if (script.acts.size() > limit) script.acts.resize(limit);
  const Features world = WorldOf(seed);
  const ServerResult& peace = Peace(seed % kWorlds);
  ServerResult result = Trial(world, &script).Run();
  for (const std::string& one : peace.violations) {
    result.violations.push_back("without a hostile server: " + one);
  }
  if (!result.ok()) return result;
  // Without streams whoever is dead holds up who shares its DCI, until its retries end.
  const int64_t limit_ns = peace.p99_ns * 3 / 2 + kBusyNs;
  if (world.streams && result.p99_ns > limit_ns) {
    result.violations.push_back(absl::StrCat("p99 of honest calls was ", result.p99_ns,
                                             " ns, without the hostile server it is ", peace.p99_ns,
                                             " ns"));
  }
  if (result.left_bytes - peace.left_bytes > kMostLeftBytes) {
    result.violations.push_back(
        absl::StrCat(result.left_bytes - peace.left_bytes, " bytes were left behind"));
  }
  const uint64_t messages =
      result.hostile_messages + 4 * (result.honest_calls + result.other_calls) + 1'000;
  if (result.large_steps > kMostLargeSteps * messages) {
    result.violations.push_back(absl::StrCat("clients looked at ", result.large_steps,
                                             " entries for ", messages, " messages"));
  }
  return result;
}

std::string ToString(uint64_t seed, const ServerResult& result) {
  std::string text = absl::StrCat(
      "seed ", seed, ": ", result.hostile_connections, " connections to the hostile server, ",
      result.hostile_messages, " messages of it; ", result.honest_calls, " honest calls, p50 ",
      result.p50_ns, " ns, p99 ", result.p99_ns, " ns; ", result.other_calls, " other calls, ",
      result.other_ok, " OK; largest pass ", result.largest_pass_bytes, " bytes, left ",
      result.left_bytes, " bytes, ", result.large_steps, " steps for large messages; digest ",
      absl::Hex(result.digest, absl::kZeroPad16), "\n");
  for (const std::string& one : result.violations) absl::StrAppend(&text, "  FAILED: ", one, "\n");
  return text;
}

}  // namespace sluice::hostile::server
