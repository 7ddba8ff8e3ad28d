// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/cm/storm.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "tests/transport/cm/number_watch.h"
#include "tests/transport/cm/sim_process.h"
#include "transport/base/error.h"
#include "transport/base/random.h"

namespace sluice::cm {
namespace {

using softdc::sim::CmFaults;
using softdc::sim::Simulation;

constexpr uint16_t kPort = 7471;
constexpr int64_t kMs = 1'000'000;
constexpr int64_t kMaxLifeNs = 2'000 * kMs;
// When the other side has gone without a word, this side finds out by itself.
constexpr int64_t kDeadPeerNs = 4'000 * kMs;
// Timer tick and one command.
constexpr int64_t kSlackNs = 1 * kMs;
constexpr int64_t kLimitNs = 600'000 * kMs;  // for the last to be gone

using Key = std::pair<uint32_t, uint32_t>;  // index and generation

Key KeyOf(ConnectionId id) { return {id.index, id.generation}; }

class Storm {
 public:
  explicit Storm(const StormOptions& options);
  StormResult Run();

 private:
  // One of the program's ends of a connection.
  struct End {
    bool client = false;
    bool up = false;
    uint64_t connect = 0;  // its number, which the private data carries
    int64_t deadline_ns = 0;
  };

  class Host final : public User {
   public:
    Host(Storm& storm, uint32_t node) : storm_(storm), node_(node) { Start(); }

    void Start();
    void Die();
    void AddCounts();
    void Connect(const Host& server, uint64_t number, int64_t within_ns);
    void CheckDeadlines();
    SimProcess* process() { return process_.get(); }  // null: it was killed
    void Poll() {
      if (process_ != nullptr) process_->Poll();
    }
    size_t open() const { return ends_.size(); }

    void OnRequest(ConnectionId id, std::span<const std::byte> data, const PathInfo& path,
                   const std::string&) override;
    void OnResponse(ConnectionId id, std::span<const std::byte> data,
                    const PathInfo& path) override;
    void OnUp(ConnectionId id) override;
    void OnDown(ConnectionId id, const absl::Status& why, std::span<const std::byte>) override;

   private:
    void Answer(ConnectionId id, const PathInfo& path, bool accept);
    void CloseAfter(ConnectionId id, int64_t delay_ns);
    void GiveUp(ConnectionId id);
    void EndWithProgram() { ++storm_.result_.died, ++storm_.ended_; }
    End* Find(ConnectionId id, const char* what);
    uint64_t Chance(uint64_t bound) { return storm_.random_.Below(bound); }

    Storm& storm_;
    const uint32_t node_;
    std::map<Key, End> ends_;
    uint32_t lives_ = 0;  // what one has left to do is not the next one's
    std::unique_ptr<SimProcess> process_;
  };

  static softdc::sim::Options Network(const StormOptions& options, base::Random& random);
  void Violation(const std::string& what);
  void Plan();
  void Check();
  bool Quiet();
  void Note(uint64_t what) { digest_ = (digest_ ^ what) * 0x100000001b3; }

  const StormOptions options_;
  base::SeededRandom random_;
  StormResult result_;
  uint64_t digest_ = 0xcbf29ce484222325;
  std::unique_ptr<Simulation> simulation_;
  std::unique_ptr<NumberWatch> watch_;
  std::vector<std::unique_ptr<Host>> hosts_;
  int64_t last_connect_ns_ = 0;
  uint64_t ended_ = 0;
};

// Every seed has weather of its own.
softdc::sim::Options Storm::Network(const StormOptions& options, base::Random& random) {
  constexpr uint32_t kLoss[] = {0, 10'000, 50'000, 200'000, 400'000};
  constexpr uint32_t kDuplicates[] = {0, 100'000, 300'000};
  constexpr uint32_t kDelays[] = {0, 100'000};
  constexpr uint32_t kRejects[] = {0, 20'000, 100'000};
  constexpr uint16_t kReasons[] = {3, 8, 28, 35};
  softdc::sim::Options network;
  network.seed = random.Next64();
  network.nodes = options.hosts;
  network.jitter_ns = 20'000;
  network.dials = options.dials;
  network.reissue_freed_numbers = true;
  CmFaults& cm = network.faults.cm;
  cm.loss_ppm = kLoss[random.Below(5)];
  cm.duplicate_ppm = kDuplicates[random.Below(3)];
  cm.delay_ppm = kDelays[random.Below(2)];
  cm.delay_ns = kMs + static_cast<int64_t>(random.Below(800 * kMs));
  cm.reject_ppm = kRejects[random.Below(3)];
  cm.reject_reason = kReasons[random.Below(4)];
  return network;
}

Storm::Storm(const StormOptions& options)
    : options_(options),
      random_(options.seed),
      simulation_(Simulation::Create(Network(options, random_)).value()),
      watch_(std::make_unique<NumberWatch>(*simulation_)) {
  for (uint32_t node = 0; node < options.hosts; ++node) {
    hosts_.push_back(std::make_unique<Host>(*this, node));
  }
}

void Storm::Host::Start() {
  ++lives_;
  storm_.simulation_->Revive(node_);
  process_ = std::make_unique<SimProcess>(*storm_.simulation_, node_, NumberWatch::Table(),
                                          storm_.options_.dials.features.ece, storm_.options_.cm,
                                          storm_.random_.Next64(), *this);
  const Simulation::As as(*storm_.simulation_, node_);
  const auto port = process_->manager().Listen("0.0.0.0", kPort);
  if (!port.ok()) storm_.Violation("listen: " + port.status().ToString());
}

void Storm::Host::Die() {
  if (process_ == nullptr) return;
  AddCounts();
  storm_.simulation_->Kill(node_);
  storm_.watch_->Died(node_);
  process_.reset();
  ++storm_.result_.killed;
  for (const auto& [key, end] : ends_) {
    if (end.client && !end.up) EndWithProgram();
  }
  ends_.clear();
  const auto down_ns = static_cast<int64_t>(Chance(3'000 * kMs));
  storm_.simulation_->After(down_ns, [this] { Start(); });
}

void Storm::Host::AddCounts() {
  if (process_ == nullptr) return;
  StormResult one;
  one.cm = process_->manager().metrics();
  one.mapped = process_->handles().counts().mapped;
  one.unmapped = process_->handles().counts().unmapped;
  Add(one, &storm_.result_);
}

void Storm::Violation(const std::string& what) {
  result_.violations.push_back("at " + std::to_string(simulation_->NowNs() / kMs) + " ms: " + what);
}

// All that comes from outside is decided here, before anything moves.
void Storm::Plan() {
  // From a crowd to so few that numbers come free in between; now and then two at once.
  constexpr uint64_t kGapsNs[] = {20 * kMs, 2'000 * kMs, 20'000 * kMs};
  const uint64_t gap_ns = kGapsNs[random_.Below(3)];
  int64_t at_ns = 0;
  for (int i = 0; i < options_.connects; ++i) {
    if (random_.Below(4) != 0) at_ns += static_cast<int64_t>(random_.Below(gap_ns));
    const auto from = static_cast<uint32_t>(random_.Below(options_.hosts));
    const auto to =
        static_cast<uint32_t>((from + 1 + random_.Below(options_.hosts - 1)) % options_.hosts);
    const int64_t within_ns = 500 * kMs + static_cast<int64_t>(random_.Below(12'000 * kMs));
    simulation_->After(at_ns, [this, from, to, within_ns, i] {
      hosts_[from]->Connect(*hosts_[to], static_cast<uint64_t>(i), within_ns);
    });
  }
  last_connect_ns_ = at_ns;
  const uint64_t cuts = random_.Below(5) == 0 ? 1 + random_.Below(3) : 0;
  for (uint64_t i = 0; i < cuts; ++i) {
    const auto a = static_cast<uint32_t>(random_.Below(options_.hosts));
    const uint32_t b = (a + 1) % options_.hosts;
    const auto cut_ns = static_cast<int64_t>(random_.Below(static_cast<uint64_t>(at_ns) + 1));
    simulation_->After(cut_ns, [this, a, b] { simulation_->CutLink(a, b); });
    simulation_->After(cut_ns + static_cast<int64_t>(random_.Below(6'000 * kMs)),
                       [this, a, b] { simulation_->HealLink(a, b); });
  }
  for (uint32_t i = 0; i < options_.kills; ++i) {
    const auto node = static_cast<uint32_t>(random_.Below(options_.hosts));
    const auto at = static_cast<int64_t>(random_.Below(static_cast<uint64_t>(at_ns) + 1));
    simulation_->After(at, [this, node] { hosts_[node]->Die(); });
  }
}

void Storm::Host::Connect(const Host& server, uint64_t number, int64_t within_ns) {
  ++storm_.result_.connects;
  if (process_ == nullptr) return EndWithProgram();
  const Simulation::As as(*storm_.simulation_, node_);
  const int64_t deadline_ns = storm_.simulation_->NowNs() + within_ns;
  std::byte data[sizeof(number)];
  std::memcpy(data, &number, sizeof(number));
  const auto id =
      process_->manager().Connect(SimProcess::Address(server.node_), kPort, deadline_ns, data);
  if (!id.ok()) {
    ++storm_.result_.refused[id.status().code()];
    ++storm_.ended_;
    return;
  }
  ends_[KeyOf(*id)] = {.client = true, .connect = number, .deadline_ns = deadline_ns};
}

Storm::End* Storm::Host::Find(ConnectionId id, const char* what) {
  const auto end = ends_.find(KeyOf(id));
  if (end != ends_.end()) return &end->second;
  storm_.Violation(std::string(what) + " for a connection that has ended or never was");
  return nullptr;
}

void Storm::Host::OnRequest(ConnectionId id, std::span<const std::byte> data, const PathInfo& path,
                            const std::string&) {
  End& end = ends_[KeyOf(id)];
  if (data.size() != kMaxRequestData) storm_.Violation("request data of another size");
  std::memcpy(&end.connect, data.data(), sizeof(end.connect));
  storm_.Note(end.connect);
  const uint64_t mood = Chance(100);
  if (mood < 84) return Answer(id, path, /*accept=*/true);
  if (mood < 88) return;  // never says a word
  if (mood < 92) {
    ends_.erase(KeyOf(id));
    return process_->manager().Close(id);
  }
  ends_.erase(KeyOf(id));
  process_->manager().Reject(id, data);
}

void Storm::Host::OnResponse(ConnectionId id, std::span<const std::byte> data,
                             const PathInfo& path) {
  End* end = Find(id, "response");
  if (end == nullptr) return;
  uint64_t connect = 0;
  std::memcpy(&connect, data.data(), sizeof(connect));
  if (connect != end->connect) storm_.Violation("another connection's response");
  const uint64_t mood = Chance(100);
  if (mood < 92) return Answer(id, path, /*accept=*/false);
  if (mood < 95) return;
  GiveUp(id);
  if (mood < 98) return process_->manager().Reject(id, data);
  process_->manager().Close(id);
}

// With a congestion profile and an address handle, as an endpoint does it.
void Storm::Host::Answer(ConnectionId id, const PathInfo& path, bool accept) {
  struct Result {
    const path::Profile* profile = nullptr;
    absl::StatusOr<path::Route> route;
  };
  auto result = std::make_shared<Result>();
  if (path.remote_ece.vendor_id != 0) ++storm_.result_.agreed_ece;
  const int64_t delay_ns = Chance(8) == 0 ? static_cast<int64_t>(Chance(4'000 * kMs)) : 0;
  process_->commands().Submit(
      [this, ah = path.ah, ece = path.remote_ece, result] {
        result->profile = process_->profiles().Of(ece);
        result->route = process_->handles().Acquire(ah, result->profile->template_qpn);
      },
      [this, id, accept, delay_ns, result] {
        if (!result->route.ok()) storm_.Violation("route: " + result->route.status().ToString());
        storm_.simulation_->After(
            delay_ns, [this, id, accept, life = lives_, ece = result->profile->accepted] {
              const auto end = ends_.find(KeyOf(id));
              if (life != lives_ || end == ends_.end()) return;
              const Simulation::As as(*storm_.simulation_, node_);
              std::byte data[sizeof(uint64_t)];
              std::memcpy(data, &end->second.connect, sizeof(data));
              if (accept) return process_->manager().Accept(id, data, ece);
              process_->manager().Establish(id);
            });
      });
}

void Storm::Host::OnUp(ConnectionId id) {
  End* end = Find(id, "up");
  if (end == nullptr) return;
  if (std::exchange(end->up, true)) storm_.Violation("up twice");
  storm_.Note(end->connect << 1);
  if (end->client) {
    ++storm_.result_.up;
    ++storm_.ended_;
  } else {
    ++storm_.result_.accepted;
  }
  // Either side may be the first to go, or both at once.
  const auto life_ns = static_cast<int64_t>(Chance(kMaxLifeNs));
  CloseAfter(id, Chance(3) == 0 ? life_ns + kDeadPeerNs : life_ns);
}

void Storm::Host::CloseAfter(ConnectionId id, int64_t delay_ns) {
  storm_.simulation_->After(delay_ns, [this, id, life = lives_] {
    if (life != lives_ || ends_.erase(KeyOf(id)) == 0) return;
    const Simulation::As as(*storm_.simulation_, node_);
    process_->manager().Close(id);
  });
}

void Storm::Host::GiveUp(ConnectionId id) {
  ends_.erase(KeyOf(id));
  ++storm_.result_.given_up;
  ++storm_.ended_;
}

void Storm::Host::OnDown(ConnectionId id, const absl::Status& why, std::span<const std::byte>) {
  End* end = Find(id, "down");
  if (end == nullptr) return;
  const auto detail = base::DetailOf(why);
  if (why.ok() || !detail.has_value() || detail->cause().empty()) {
    storm_.Violation("an end without its reason: " + why.ToString());
  }
  storm_.Note(static_cast<uint64_t>(why.code()) | end->connect << 8);
  if (end->client && !end->up) {
    ++storm_.result_.refused[why.code()];
    ++storm_.ended_;
  }
  ends_.erase(KeyOf(id));
}

void Storm::Host::CheckDeadlines() {
  const int64_t now_ns = storm_.simulation_->NowNs();
  for (const auto& [key, end] : ends_) {
    if (!end.client || end.up || now_ns <= end.deadline_ns + kSlackNs) continue;
    storm_.Violation("connect " + std::to_string(end.connect) + " is past its deadline: " +
                     process_->manager().Describe({key.first, key.second}));
  }
}

void Storm::Check() {
  for (auto& host : hosts_) host->CheckDeadlines();
  const auto& seen = watch_->violations();
  for (size_t i = 0; i < seen.size() && result_.violations.empty(); ++i) {
    result_.violations.push_back(seen[i]);
  }
}

bool Storm::Quiet() {
  if (ended_ != static_cast<uint64_t>(options_.connects)) return false;
  for (auto& host : hosts_) {
    SimProcess* process = host->process();
    if (process == nullptr || host->open() != 0 || process->manager().size() != 0) return false;
    if (process->numbers().in_use() != 0) return false;
  }
  return true;
}

StormResult Storm::Run() {
  Plan();
  while (!Quiet() && result_.violations.empty()) {
    if (!simulation_->Step() || simulation_->NowNs() > last_connect_ns_ + kLimitNs) {
      Violation("not at rest; " + std::to_string(ended_) + " connections have ended");
      break;
    }
    for (auto& host : hosts_) host->Poll();
    Check();
  }
  for (auto& host : hosts_) {
    host->AddCounts();
    SimProcess* process = host->process();
    if (process == nullptr || !result_.violations.empty()) continue;
    const Metrics m = process->manager().metrics();
    if (watch_->ids(process->node()) != 1) Violation("ids are left besides the listener");
    if (m.live != 0 || m.quarantined != 0) Violation("metrics count numbers that are free");
  }
  result_.stale = watch_->stale();
  result_.numbers_taken = watch_->taken();
  result_.numbers_reserved = watch_->reserved();
  result_.numbers_taken_again = watch_->taken_again();
  result_.numbers_reissued = watch_->reissued();
  result_.virtual_ns = simulation_->NowNs();
  Note(simulation_->log().digest());
  Note(static_cast<uint64_t>(simulation_->NowNs()));
  result_.digest = digest_;
  hosts_.clear();
  return result_;
}

}  // namespace

StormResult RunStorm(const StormOptions& options) { return Storm(options).Run(); }

}  // namespace sluice::cm
