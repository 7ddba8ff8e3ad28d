// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/trial.h"

#include <algorithm>
#include <map>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/hostile/client.h"
#include "tests/hostile/hostile_peer.h"
#include "tests/hostile/report.h"
#include "tests/hostile/small_options.h"
#include "tests/hostile/victim.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::hostile {
namespace {

using softdc::sim::Activity;
using softdc::sim::Simulation;

// Nodes: the server, honest clients, a client that comes at the end, the hostile peer.
constexpr uint32_t kServer = 0;
constexpr uint32_t kClients = 3;
constexpr uint32_t kLate = kClients + 1;
constexpr uint32_t kHostile = kClients + 2;
constexpr char kSecret[] = "a secret that both sides share";
constexpr char kOther[] = "a secret of the other tenant's";

constexpr int64_t kStepNs = 100;  // what the server needs for a message
constexpr int64_t kSlowStepNs = 2 * kUs;
constexpr int64_t kRnrWaitNs = 700 * kUs;  // one wait of a sender whose receiver had no buffer
constexpr int64_t kMostCredits = 5 * 16;   // of all connections of the hostile peer
constexpr int64_t kWarmUpNs = 5 * kMs;
constexpr int64_t kAfterNs = 5 * kMs;
constexpr int64_t kPeaceNs = 30 * kMs;
constexpr int64_t kEndNs = 2'000 * kMs;
// Of each connection of the hostile peer's, and of the server as a whole.
constexpr uint64_t kMostRestless = 100;
constexpr size_t kMostPassBytes = 6 << 20;
constexpr int64_t kMostLeftBytes = 2 << 20;
constexpr uint64_t kMostSteps = 24;      // for each message
constexpr uint64_t kMostLargeSteps = 8;  // entries behind large messages, for each message
constexpr uint32_t kLargeBytes = 24'000;

endpoint::Options ServerOptions(const World& world) {
  endpoint::Options options =
      SmallOptions({.lanes = world.lanes, .large = world.large, .streams = world.streams});
  const auto holds = [](const char* secret) {
    return [secret] { return std::vector<std::string>{secret}; };
  };
  if (!world.tenants) {
    options.secrets = holds(kSecret);
    return options;
  }
  options.tenants = {{"one", holds(kSecret), options.srq_size, options.max_peers},
                     {"two", holds(kOther), options.srq_size, options.max_peers}};
  return options;
}

int64_t StepNs(const World& world) { return world.slow ? kSlowStepNs : kStepNs; }

// How long messages of the hostile peer can delay an honest one beyond 1.5 times its p99. Completions are taken in the order of arrival. A
// flood beyond the credits fills the receive queue; it is noticed, and its peer ended, only when the server reads it, and the rest of what
// the queue held must still be read. Without a flood, messages within the credits matter only to a slow server.
int64_t MostDelayNs(const World& world, const Script& script, uint64_t floods) {
  const bool beyond = std::any_of(script.acts.begin(), script.acts.end(), [](const Act& act) {
    return act.operation == Operation::kOvercommit;
  });
  const int64_t within_credits = world.slow ? kMostCredits : 0;
  const int64_t messages =
      beyond ? static_cast<int64_t>(ServerOptions(world).srq_size) : within_credits;
  // Meanwhile the queue is empty: a sender waits one RNR timer for each peer that was ended for its flood.
  return messages * StepNs(world) + static_cast<int64_t>(floods) * kRnrWaitNs;
}

// Every other client is the other tenant's.
endpoint::Options ClientOptions(const World& world, uint32_t node) {
  endpoint::Options options = ServerOptions(world);
  const char* secret = world.tenants && node % 2 == 1 ? kOther : kSecret;
  options.tenants.clear();
  options.secrets = [secret] { return std::vector<std::string>{secret}; };
  options.max_peers = 4;
  return options;
}

class Trial final : private softdc::sim::Observer {
 public:
  Trial(const World& world, const Script* script, bool interceptors);
  ~Trial() override;

  TrialResult Run();

 private:
  void OnActivity(uint32_t node, Activity what) override {
    if (hosts_.contains(node)) hosts_[node]->OnActivity(what);
  }
  void Attack();
  void CheckEnd(TrialResult* result);
  void Judge(TrialResult* result);
  std::unique_ptr<Client> MakeClient(uint32_t node);
  bool Until(const std::function<bool()>& done, int64_t limit_ns) {
    return simulation_->RunUntil([&] { return !report_.violations().empty() || done(); },
                                 limit_ns) &&
           done();
  }

  const World world_;
  const Script* const script_;  // nullptr: nobody is hostile
  int64_t since_ns_ = 0;        // what began before is not judged by its time
  Report report_;
  std::unique_ptr<Simulation> simulation_;
  std::map<uint32_t, Host*> hosts_;
  std::unique_ptr<Victim> victim_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::unique_ptr<HostilePeer> hostile_;
};

Trial::Trial(const World& world, const Script* script, bool interceptors)
    : world_(world), script_(script) {
  softdc::sim::Options network;
  network.seed = 1;
  network.nodes = kHostile + 1;
  network.arena_bytes = uint64_t{32} << 20;
  network.dials.cm.retry_ns = 10 * kMs;
  simulation_ = Simulation::Create(network).value();
  simulation_->SetObserver(this);
  victim_ = std::make_unique<Victim>(*simulation_, kServer, 1, ServerOptions(world), interceptors,
                                     &report_);
  const bool lanes =
      world.lanes || (script != nullptr &&
                      std::any_of(script->acts.begin(), script->acts.end(), [](const Act& act) {
                        return act.operation == Operation::kLaneAsk;
                      }));
  if (!lanes) victim_->JudgeCredits(ServerOptions(world).credits_per_peer);
  hosts_[kServer] = victim_.get();
  for (uint32_t node = 1; node <= kClients; ++node) clients_.push_back(MakeClient(node));
}

Trial::~Trial() {
  simulation_->SetObserver(nullptr);
  hosts_.clear();
  hostile_.reset();
  clients_.clear();
  victim_.reset();
}

std::unique_ptr<Client> Trial::MakeClient(uint32_t node) {
  auto client = std::make_unique<Client>(*simulation_, node, 1, ClientOptions(world_, node),
                                         Host::AddressOf(kServer), world_.large ? kLargeBytes : 0,
                                         200 * kUs, &report_);
  hosts_[node] = client.get();
  client->set_weighed(false);
  client->OnActivity(Activity::kEvent);
  return client;
}

void Trial::Attack() {
  if (script_ == nullptr) {
    simulation_->RunFor(kPeaceNs);
    return;
  }
  hostile_ =
      std::make_unique<HostilePeer>(*simulation_, kHostile, 1, Host::AddressOf(kServer), kSecret);
  hosts_[kHostile] = hostile_.get();
  hostile_->set_weighed(false);
  bool over = false;
  hostile_->Play(*script_, [&over] { over = true; });
  if (!Until([&over] { return over; }, kEndNs)) return;
  simulation_->RunFor(kAfterNs);
  // It says nothing any more, or hangs up: either way it is noticed.
  hostile_->Stop();
}

void Trial::CheckEnd(TrialResult* result) {
  const std::string address = Host::AddressOf(kHostile);
  const auto hostile_gone = [&] {
    return victim_->tap().Up(address) == 0 && victim_->endpoint().Handshakes().under_way == 0;
  };
  if (!Until(hostile_gone, kEndNs) && report_.violations().empty()) {
    report_.Break(absl::StrCat(victim_->tap().Up(address),
                               " connections of the hostile peer were never ended"));
  }
  for (const Tap::End& end : victim_->tap().ends()) {
    if (absl::StartsWith(end.address, address)) {
      result->reasons.push_back(std::string(end.why.message()));
    } else {
      report_.Break(absl::StrCat("the server ended an honest client: ", end.why.ToString()));
    }
  }
  for (auto& client : clients_) client->Finish();
  const auto all_idle = [&] {
    return std::all_of(clients_.begin(), clients_.end(),
                       [](const auto& client) { return client->idle(); });
  };
  if (!Until(all_idle, 3 * kEndNs) && report_.violations().empty()) {
    report_.Break("calls of honest clients did not end");
  }
  if (victim_->has_interceptors() &&
      victim_->watchman().inside() != static_cast<int64_t>(victim_->engine().calls_under_way()) &&
      report_.violations().empty()) {
    report_.Break(absl::StrCat("interceptors were told of ", victim_->watchman().inside(),
                               " calls that have not ended, ", victim_->engine().calls_under_way(),
                               " are under way"));
  }
  if (!report_.violations().empty()) return;
  // Whoever comes now is served as if nothing had been.
  clients_.push_back(MakeClient(kLate));
  Client& late = *clients_.back();
  if (!Until([&] { return late.up(); }, kEndNs) && report_.violations().empty()) {
    report_.Break("a new honest client was not let in");
  }
  late.Start();
  simulation_->RunFor(10 * kMs);
  late.Finish();
  if (!Until([&] { return late.idle(); }, 3 * kEndNs) && report_.violations().empty()) {
    report_.Break("a new honest client was not served");
  }
  if (late.echoed() < 20) report_.Break("a new honest client was served too slowly");
}

void Trial::Judge(TrialResult* result) {
  std::vector<int64_t> took;
  for (uint32_t i = 0; i < kClients; ++i) {
    for (const Client::Took& one : clients_[i]->took()) {
      if (one.began_ns >= since_ns_) took.push_back(one.ns);
    }
    result->honest_calls += clients_[i]->ended();
    if (clients_[i]->sleepless() != 0) report_.Break("an honest client never slept");
  }
  std::sort(took.begin(), took.end());
  if (!took.empty()) {
    result->p50_ns = took[took.size() / 2];
    result->p99_ns = took[took.size() * 99 / 100];
  }
  if (victim_->sleepless() != 0) report_.Break("the server always had more to do");
  if (victim_->restless() > kMostRestless) {
    report_.Break("the server slept for no time, again and again");
  }
  result->steps = victim_->steps();
  result->large_steps = victim_->engine().large_steps();
  result->floods = victim_->endpoint().Counts().over_credit;
  result->largest_pass_bytes = victim_->largest_pass_bytes();
  if (result->largest_pass_bytes > kMostPassBytes) {
    report_.Break(
        absl::StrCat("one pass of the server allocated ", result->largest_pass_bytes, " bytes"));
  }
}

TrialResult Trial::Run() {
  TrialResult result;
  const auto all_up = [&] {
    return std::all_of(clients_.begin(), clients_.end(),
                       [](const auto& client) { return client->up(); });
  };
  if (!Until(all_up, kEndNs)) report_.Break("honest clients did not connect");
  for (auto& client : clients_) client->Start();
  victim_->set_step_ns(StepNs(world_));
  simulation_->RunFor(kWarmUpNs);
  since_ns_ = simulation_->NowNs();
  const size_t before = HeapBytes();
  if (report_.violations().empty()) Attack();
  if (report_.violations().empty()) CheckEnd(&result);
  if (hostile_ != nullptr) {
    result.hostile_messages = hostile_->messages();
    result.hostile_bytes = hostile_->bytes();
    result.hostile_connections = hostile_->came_up();
  }
  hosts_.erase(kHostile);
  hostile_.reset();
  result.left_bytes = static_cast<int64_t>(HeapBytes()) - static_cast<int64_t>(before);
  Judge(&result);
  for (auto& client : clients_) client->Leave();
  victim_->Leave();
  simulation_->RunFor(100 * kMs);
  result.violations = report_.violations();
  result.digest = simulation_->log().digest();
  return result;
}

// What the same world is like when nobody is hostile.
const TrialResult& Peace(uint64_t which) {
  static auto* const known = new std::map<uint64_t, TrialResult>();
  const auto it = known->find(which);
  if (it != known->end()) return it->second;
  return known->emplace(which, Trial(World::Of(which), nullptr, /*interceptors=*/true).Run())
      .first->second;
}

}  // namespace

World World::Of(uint64_t seed) {
  const uint64_t which = seed % kCount;
  return {.tenants = (which & 1) != 0,
          .lanes = (which & 2) != 0,
          .large = (which & 4) != 0,
          .streams = which != kCount - 1,
          .slow = which == kCount - 2};
}

TrialResult RunTrial(uint64_t seed, bool withhold, size_t limit) {
  Script script = Draw(seed, withhold);
  if (script.acts.size() > limit) script.acts.resize(limit);
  const uint64_t which = seed % World::kCount;
  const TrialResult& peace = Peace(which);
  TrialResult result =
      Trial(World::Of(which), &script, !withhold || !IsWithheld("interceptors")).Run();
  for (const std::string& one : peace.violations) {
    result.violations.push_back("without a hostile peer: " + one);
  }
  if (!result.ok()) return result;
  // Without streams whoever is dead holds up who shares its DCI, until its retries end.
  const World world = World::Of(which);
  const int64_t limit_ns = peace.p99_ns * 3 / 2 + MostDelayNs(world, script, result.floods);
  if (world.streams && result.p99_ns > limit_ns) {
    result.violations.push_back(absl::StrCat("p99 of honest calls was ", result.p99_ns,
                                             " ns, without the hostile peer it is ", peace.p99_ns,
                                             " ns"));
  }
  // What stays is charged against what the same world keeps in peace.
  if (result.left_bytes - peace.left_bytes > kMostLeftBytes) {
    result.violations.push_back(
        absl::StrCat(result.left_bytes - peace.left_bytes, " bytes were left behind"));
  }
  const uint64_t large_messages = result.hostile_messages + result.honest_calls + 1'000;
  if (result.large_steps > kMostLargeSteps * large_messages) {
    result.violations.push_back(absl::StrCat("the server looked at ", result.large_steps,
                                             " entries for ", large_messages, " messages"));
  }
  const uint64_t messages = result.hostile_messages + 8 * result.honest_calls + 10'000;
  if (result.steps > kMostSteps * messages) {
    result.violations.push_back(
        absl::StrCat("the server did ", result.steps, " things for ", messages, " messages"));
  }
  return result;
}

std::string ToString(uint64_t seed, const TrialResult& result) {
  std::map<std::string, int> reasons;
  for (const std::string& one : result.reasons) ++reasons[one];
  std::string text = absl::StrCat(
      "seed ", seed, ": ", result.hostile_connections, " hostile connections, ",
      result.hostile_messages, " messages, ", result.hostile_bytes, " bytes; ", result.honest_calls,
      " honest calls, p50 ", result.p50_ns, " ns, p99 ", result.p99_ns, " ns; ", result.steps,
      " steps, largest pass ", result.largest_pass_bytes, " bytes, left ", result.left_bytes,
      " bytes; digest ", absl::Hex(result.digest, absl::kZeroPad16), "\n");
  for (const auto& [reason, count] : reasons) {
    absl::StrAppend(&text, "  ended ", count, " times: ", reason, "\n");
  }
  for (const std::string& one : result.violations) absl::StrAppend(&text, "  FAILED: ", one, "\n");
  return text;
}

}  // namespace sluice::hostile
