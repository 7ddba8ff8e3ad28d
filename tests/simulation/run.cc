// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/run.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "tests/simulation/fault_driver.h"
#include "tests/simulation/scene.h"

namespace sluice::simulation {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int kSweepPeriod = 4'096;  // events
// Virtual time for things to come to rest after the last message.
constexpr int64_t kRestNs = 20'000 * kMs;
// And without any message sent before it.
constexpr int64_t kStandstillNs = 20'000 * kMs;
// Until each connection is over, its last messages lost.
constexpr int64_t kGoneNs = 120'000 * kMs;

class Run final : private softdc::sim::Observer {
 public:
  explicit Run(const Plan& plan) : scene_(plan) {
    for (uint32_t index = 0; index < plan.network.nodes; ++index) {
      nodes_.push_back(std::make_unique<Node>(scene_, index));
    }
    driver_ = std::make_unique<FaultDriver>(scene_, nodes_);
    scene_.simulation->SetObserver(this);
  }
  ~Run() override { scene_.simulation->SetObserver(nullptr); }

  Result Go();

 private:
  void OnActivity(uint32_t node, softdc::sim::Activity what) override {
    nodes_[node]->OnActivity(what);
  }
  void Work();
  void Rest();
  void CheckRoom();
  void End();
  bool broken() const { return !scene_.ledger.violations().empty(); }
  bool AllConnected() const;
  bool AllEmpty() const;
  // Until `done`, asked now and then. False: not within `limit_ns`.
  template <typename Done>
  bool StepUntil(Done done, int64_t limit_ns);

  Scene scene_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::unique_ptr<FaultDriver> driver_;
};

template <typename Done>
bool Run::StepUntil(Done done, int64_t limit_ns) {
  const int64_t end_ns = scene_.now_ns() + limit_ns;
  scene_.simulation->After(limit_ns, [] {});  // time does not leap over the end
  for (int steps = 0; scene_.now_ns() < end_ns && !broken(); ++steps) {
    if (steps % 64 == 0 && done()) return true;
    if (!scene_.simulation->Step()) break;
  }
  return done();
}

void Run::Work() {
  for (auto& node : nodes_) node->Start();
  uint64_t sent = 0;
  int64_t sent_ns = scene_.now_ns();
  while (scene_.ledger.sent() < scene_.plan.stop_after && !broken()) {
    for (int i = 0; i < kSweepPeriod && !broken(); ++i) {
      if (!scene_.simulation->Step()) break;
      driver_->Advance();
    }
    scene_.ledger.Sweep();
    if (scene_.ledger.sent() != sent) {
      sent = scene_.ledger.sent();
      sent_ns = scene_.now_ns();
    } else if (scene_.now_ns() > sent_ns + kStandstillNs) {
      scene_.ledger.Break("3 Isolation", "nobody sends any more", 0, 0);
    }
  }
  scene_.quiet = true;
}

bool Run::AllConnected() const {
  for (const auto& [from, to] : scene_.plan.pairs) {
    if (!scene_.ledger.Connected(from, to)) return false;
  }
  return scene_.refused.size() == scene_.plan.unlike.size();
}

bool Run::AllEmpty() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->empty(); });
}

// Everything that was sent arrives, everybody finds everybody again.
void Run::Rest() {
  const auto over = [&] {
    return driver_->idle() && std::all_of(nodes_.begin(), nodes_.end(),
                                          [](const auto& node) { return node->running(); });
  };
  if (!StepUntil(over, kRestNs)) {
    return scene_.ledger.Break("rest", "faults do not end", 0, 0);
  }
  driver_->Stop();
  // Those that are up and have not said anything yet know their counterparts only then.
  const int64_t end_ns = scene_.now_ns() + kRestNs;
  for (bool all = false; !all && !broken();) {
    for (auto& node : nodes_) node->Act([](App& app) { app.SendLast(); });
    const auto at_rest = [&] {
      for (auto& node : nodes_) {
        bool said = false;
        node->Act([&](App& app) { said = app.said_last(); });
        if (!said) return false;
      }
      return scene_.ledger.AllArrived();
    };
    StepUntil([&] { return at_rest() && AllConnected(); }, 200 * kMs);
    all = at_rest() && AllConnected();
    if (all || scene_.now_ns() < end_ns) continue;
    scene_.ledger.BreakMissing();
    for (const auto& [from, to] : scene_.plan.unlike) {
      if (scene_.refused.contains({from, to})) continue;
      scene_.ledger.Break("refusal", absl::StrCat("host ", from, " was not refused by host ", to),
                          from, to);
    }
    for (const auto& [from, to] : scene_.plan.pairs) {
      if (scene_.ledger.Connected(from, to)) continue;
      scene_.ledger.Break("rest", absl::StrCat("hosts ", from, " and ", to, " are not connected"),
                          from, to);
    }
    return;
  }
}

// Credits and buffers are back where they were, once the queues have been asked for what nobody had wanted to know.
void Run::CheckRoom() {
  StepUntil([] { return false; }, 4 * scene_.plan.endpoint.dead_peer_ns);
  for (uint32_t index = 0; index < nodes_.size(); ++index) {
    App::Room room;
    nodes_[index]->Act([&](App& app) { room = app.Measure(); });
    if (room.missing_credits != 0) {
      scene_.ledger.Break("7 Data credits", absl::StrCat(room.missing_credits, " are missing"),
                          index, index);
    }
    // The last requests to a peer that is gone are answered for when the next one uses their DCI.
    const bool lost_peers = scene_.ledger.lost_peers(index);
    const uint32_t tails = lost_peers ? 15 * (scene_.plan.endpoint.dci_count + 1) : 0;
    if (room.short_of_buffers && room.reserved + tails < scene_.plan.endpoint.send_buffers) {
      scene_.ledger.Break("leak",
                          absl::StrCat("send buffers: ", room.reserved, " of ",
                                       scene_.plan.endpoint.send_buffers, " are free"),
                          index, index);
    }
  }
}

void Run::End() {
  for (auto& node : nodes_) node->Act([](App& app) { app.Leave(); });
  // A handle stays while a request to its peer has not asked for a completion: the next one of the
  // same DCI would answer for it, and here none comes.
  const uint32_t tails = scene_.plan.endpoint.dci_count + 1;
  const auto is_gone = [tails](const endpoint::ConnectionCounts& counts) {
    return counts.numbers_live == 0 && counts.handles_in_use <= tails;
  };
  const auto has_queue_pairs = [&](uint32_t index) {
    return scene_.plan.rc[index] && !nodes_[index]->endpoint().Queues().empty();
  };
  const auto all_gone = [&] {
    for (uint32_t index = 0; index < nodes_.size(); ++index) {
      if (!is_gone(nodes_[index]->endpoint().Connections()) || has_queue_pairs(index)) return false;
    }
    return true;
  };
  StepUntil(all_gone, kGoneNs);
  StepUntil([] { return false; }, 50 * kMs);  // what was submitted last is done
  for (uint32_t index = 0; index < nodes_.size(); ++index) {
    if (has_queue_pairs(index))
      scene_.ledger.Break("leak", "queue pairs of peers that left", index, index);
    const endpoint::ConnectionCounts counts = nodes_[index]->endpoint().Connections();
    if (is_gone(counts)) continue;
    scene_.ledger.Break("leak",
                        absl::StrCat(counts.numbers_live, " QP numbers and ", counts.handles_in_use,
                                     " address handles are in use"),
                        index, index);
  }
}

Result Run::Go() {
  Work();
  if (!broken()) Rest();
  if (!broken()) CheckRoom();
  if (!broken()) End();
  for (auto& node : nodes_) node->End();
  while (!AllEmpty() && scene_.simulation->Step()) {
  }
  Result result;
  result.violations = scene_.ledger.violations();
  result.messages = scene_.ledger.sent();
  result.delivered = scene_.ledger.delivered();
  result.peers_down = scene_.ledger.downs();
  result.faults = driver_->happened();
  result.events = scene_.simulation->events();
  result.virtual_ns = scene_.now_ns();
  for (const auto& node : nodes_) {
    const Totals& one = node->totals();
    result.totals.duplicates += one.duplicates;
    result.totals.sent_again += one.sent_again;
    result.totals.stream_resets += one.stream_resets;
    result.totals.recoveries += one.recoveries;
    result.totals.failures += one.failures;
    result.totals.probes += one.probes;
  }
  scene_.Note(scene_.simulation->log().digest());
  scene_.Note(static_cast<uint64_t>(scene_.now_ns()));
  result.digest = scene_.digest;
  if (!result.ok()) {
    const Violation& first = result.violations.front();
    result.trail = scene_.trail.Last(40, first.node, first.peer);
    result.log = scene_.simulation->log().Text();
  }
  return result;
}

}  // namespace

Result RunPlan(const Plan& plan) { return Run(plan).Go(); }

std::string ToString(const Plan& plan, const Result& result) {
  return absl::StrCat("seed ", plan.options.seed, ": ", result.messages, " messages, ",
                      result.delivered, " delivered, ", result.virtual_ns / kMs, " ms, ",
                      result.faults, " faults, ", result.totals.failures, " failed requests, ",
                      result.totals.stream_resets, " resets, ", result.totals.recoveries,
                      " recoveries, ", result.totals.sent_again, " sent again, ",
                      result.totals.duplicates, " duplicates, ", result.peers_down,
                      " peers down, digest ", absl::Hex(result.digest, absl::kZeroPad16));
}

}  // namespace sluice::simulation
