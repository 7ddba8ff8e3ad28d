// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/bulk/trial.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/hostile/bulk/hostile_port.h"
#include "tests/hostile/bulk/port_host.h"
#include "tests/hostile/bulk/script.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::hostile::bulk_port {
namespace {

using softdc::sim::Activity;
using softdc::sim::Simulation;

// Nodes: the victim, honest ports, one that comes at the end, the hostile port.
constexpr uint32_t kVictim = 0;
constexpr uint32_t kHonest = 3;
constexpr uint32_t kLate = kHonest + 1;
constexpr uint32_t kHostile = kHonest + 2;

constexpr int64_t kWarmUpNs = 5 * kMs;
constexpr int64_t kAfterNs = 10 * kMs;
constexpr int64_t kEndNs = 200 * kMs;
constexpr uint64_t kMostRestless = 100;
constexpr size_t kMostPassBytes = 8 << 20;
constexpr int64_t kMostLeftBytes = 1 << 20;

// Worlds differ in what is switched on.
struct World {
  bulk::Reach reach = bulk::Reach::kShared;
  bool offload = true;  // signatures by the device
  bool scarce = false;  // queue pairs for protected transfers
  bool slow = false;    // the victim
  bool plain = false;   // what honest ports move to it: only the victim wants queue pairs then

  static constexpr uint32_t kCount = 8;
  static World Of(uint64_t seed, bool withhold) {
    const uint64_t which = seed % kCount;
    return {.reach = (which & 1) != 0 ? bulk::Reach::kOwn : bulk::Reach::kShared,
            .offload = (which & 2) != 0,
            .scarce = (which & 4) != 0,
            .slow = which == kCount - 1,
            .plain = !withhold && (which & 4) != 0};
  }
};

bulk::PortOptions PortOptionsOf(const World& world) {
  bulk::PortOptions options;
  options.max_peers = 16;
  options.max_signed_peers = world.scarce ? 2 : 8;
  options.max_leases = 64;
  options.max_transfers = 64;
  options.max_pieces_in_flight = 8;
  options.piece_bytes = 8192;
  options.patience_ns = 20 * kMs;
  options.dead_peer_ns = 10 * kMs;
  options.watch_ns = 5 * kMs;
  options.offload = world.offload;
  return options;
}

class Trial final : private softdc::sim::Observer {
 public:
  Trial(const World& world, const Script* script);
  ~Trial() override;

  BulkResult Run();

 private:
  void OnActivity(uint32_t node, Activity what) override {
    if (hosts_.contains(node)) hosts_[node]->OnActivity(what);
  }
  PortHost& MakeHost(uint32_t node);
  void Attack();
  void CheckEnd();
  void CheckLate();
  bool Until(const std::function<bool()>& done) {
    return simulation_->RunUntil([&] { return !report_.violations().empty() || done(); }, kEndNs) &&
           done();
  }
  void Want(const char* what, const std::function<bool()>& done) {
    if (!Until(done) && report_.violations().empty()) report_.Break(what);
  }
  bool AllIdle() const {
    return std::all_of(ports_.begin(), ports_.end(), [](const auto& port) { return port->idle(); });
  }

  const World world_;
  const Script* const script_;  // null: nobody is hostile
  Report report_;
  std::unique_ptr<Simulation> simulation_;
  std::map<uint32_t, Host*> hosts_;
  std::vector<std::unique_ptr<PortHost>> ports_;  // the victim first
  std::unique_ptr<HostilePort> hostile_;
};

Trial::Trial(const World& world, const Script* script) : world_(world), script_(script) {
  softdc::sim::Options network;
  network.seed = 1;
  network.nodes = kHostile + 1;
  network.arena_bytes = uint64_t{32} << 20;
  simulation_ = Simulation::Create(network).value();
  simulation_->SetObserver(this);
  PortHost& victim = MakeHost(kVictim);
  for (uint32_t node = 1; node <= kHonest; ++node) {
    PortHost::Join(victim, MakeHost(node), world.reach);
  }
  if (world.slow) victim.set_step_ns(2 * kUs);
}

Trial::~Trial() {
  simulation_->SetObserver(nullptr);
  hosts_.clear();
  hostile_.reset();
  ports_.clear();
}

PortHost& Trial::MakeHost(uint32_t node) {
  ports_.push_back(
      std::make_unique<PortHost>(*simulation_, node, 1, PortOptionsOf(world_), &report_));
  hosts_[node] = ports_.back().get();
  ports_.back()->set_weighed(node == kVictim);
  ports_.back()->set_plain(world_.plain && node != kVictim);
  ports_.back()->OnActivity(Activity::kEvent);
  return *ports_.back();
}

void Trial::Attack() {
  if (script_ == nullptr) return simulation_->RunFor(30 * kMs);
  hostile_ =
      std::make_unique<HostilePort>(*simulation_, kHostile, 1, *ports_[kVictim], world_.reach);
  hosts_[kHostile] = hostile_.get();
  hostile_->set_weighed(false);
  bool over = false;
  hostile_->Play(*script_, [&over] { over = true; });
  Want("the script did not end", [&over] { return over; });
  simulation_->RunFor(kAfterNs);
  hostile_->Stop();
}

void Trial::CheckEnd() {
  PortHost& victim = *ports_[kVictim];
  for (auto& port : ports_) port->Finish();
  Want("transfers did not end", [&] { return AllIdle(); });
  if (hostile_ != nullptr) {
    for (const std::string& what : hostile_->OffendersUp()) {
      report_.Break(absl::StrCat("a guest is still there, though ", what));
    }
  }
  for (const uint32_t guest : victim.guests()) victim.PutOut(guest);
  Want("guests that were disconnected did not go down", [&] { return victim.guests().empty(); });
}

// Whoever comes now is served as if nothing had been.
void Trial::CheckLate() {
  PortHost& victim = *ports_[kVictim];
  PortHost& late = MakeHost(kLate);
  victim.Resume();
  PortHost::Join(victim, late, world_.reach);
  Want("no memory was lent to a new honest port", [&] { return late.ready(); });
  simulation_->RunFor(10 * kMs);
  for (auto& port : ports_) port->Finish();
  Want("transfers of a new honest port did not end", [&] { return AllIdle(); });
  if (late.moved() < 10) report_.Break("a new honest port was served too slowly");
  for (auto& port : ports_) port->Leave();
  Want("memory did not come back", [&] {
    return std::all_of(ports_.begin(), ports_.end(), [](const auto& port) { return port->left(); });
  });
}

BulkResult Trial::Run() {
  BulkResult result;
  Want("honest ports lent no memory", [&] {
    return std::all_of(ports_.begin(), ports_.end(),
                       [](const auto& port) { return port->ready(); });
  });
  simulation_->RunFor(kWarmUpNs);
  const int64_t since_ns = simulation_->NowNs();
  const size_t before = HeapBytes();
  if (report_.violations().empty()) Attack();
  if (report_.violations().empty()) CheckEnd();
  if (hostile_ != nullptr) {
    result.joined = hostile_->joined();
    result.words = hostile_->words();
    result.writes = hostile_->writes();
  }
  hosts_.erase(kHostile);
  hostile_.reset();
  simulation_->RunFor(kAfterNs);
  result.left_bytes = static_cast<int64_t>(HeapBytes()) - static_cast<int64_t>(before);
  PortHost& victim = *ports_[kVictim];
  result.largest_pass_bytes = victim.largest_pass_bytes();
  std::vector<int64_t> took;
  for (const auto& port : ports_) {
    result.honest_transfers += port->moved();
    for (const PortHost::Took& one : port->took()) {
      if (one.began_ns >= since_ns) took.push_back(one.ns);
    }
    if (port->sleepless() != 0) report_.Break("a port never slept");
    if (port->restless() > kMostRestless)
      report_.Break("a port slept for no time, again and again");
  }
  result.guest_transfers = victim.guest_transfers();
  std::sort(took.begin(), took.end());
  if (!took.empty()) {
    result.p50_ns = took[took.size() / 2];
    result.p99_ns = took[took.size() * 99 / 100];
  }
  for (const PortHost::End& end : victim.ends()) {
    result.reasons.push_back(std::string(end.why.message()));
  }
  if (result.largest_pass_bytes > kMostPassBytes) {
    report_.Break(
        absl::StrCat("one pass of the victim allocated ", result.largest_pass_bytes, " bytes"));
  }
  if (report_.violations().empty()) CheckLate();
  simulation_->RunFor(kAfterNs);
  result.violations = report_.violations();
  result.digest = simulation_->log().digest();
  return result;
}

// What the same world is like when nobody is hostile.
const BulkResult& Peace(uint64_t which, bool withhold) {
  static auto* const known = new std::map<std::pair<uint64_t, bool>, BulkResult>();
  const std::pair key(which, withhold);
  const auto it = known->find(key);
  if (it != known->end()) return it->second;
  return known->emplace(key, Trial(World::Of(which, withhold), nullptr).Run()).first->second;
}

}  // namespace

BulkResult RunBulkTrial(uint64_t seed, bool withhold, size_t limit) {
  Script script = Draw(seed);
  if (script.acts.size() > limit) script.acts.resize(limit);
  const World world = World::Of(seed, withhold);
  const BulkResult& peace = Peace(seed % World::kCount, withhold);
  BulkResult result = Trial(world, &script).Run();
  for (const std::string& one : peace.violations) {
    result.violations.push_back("without a hostile port: " + one);
  }
  if (!result.ok()) return result;
  // The victim's record of latencies grows as well; what stays is charged against peace.
  if (result.left_bytes - peace.left_bytes > kMostLeftBytes) {
    result.violations.push_back(
        absl::StrCat(result.left_bytes - peace.left_bytes, " bytes were left behind"));
  }
  return result;
}

std::string ToString(uint64_t seed, const BulkResult& result) {
  std::map<std::string, int> reasons;
  for (const std::string& one : result.reasons) ++reasons[one];
  std::string text = absl::StrCat(
      "seed ", seed, ": ", result.joined, " hostile peers, ", result.words, " words, ",
      result.writes, " reads and writes; ", result.honest_transfers, " honest transfers, p50 ",
      result.p50_ns, " ns, p99 ", result.p99_ns, " ns; ", result.guest_transfers,
      " to the hostile port; largest pass ", result.largest_pass_bytes, " bytes, left ",
      result.left_bytes, " bytes; digest ", absl::Hex(result.digest, absl::kZeroPad16), "\n");
  for (const auto& [reason, count] : reasons) {
    absl::StrAppend(&text, "  ended ", count, " times: ", reason, "\n");
  }
  for (const std::string& one : result.violations) absl::StrAppend(&text, "  FAILED: ", one, "\n");
  return text;
}

}  // namespace sluice::hostile::bulk_port
