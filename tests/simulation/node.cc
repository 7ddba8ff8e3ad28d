// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/node.h"

#include <algorithm>
#include <string>
#include <utility>

namespace sluice::simulation {
namespace {

using softdc::sim::Activity;
using softdc::sim::Simulation;

// A handler that always has more to do would never let time go on.
constexpr int kMostPasses = 1'000;
constexpr int64_t kMs = 1'000'000;

}  // namespace

Node::Process::Process(Scene& scene, Node& node, uint32_t life)
    : clock(*scene.simulation),
      random(scene.plan.network.seed * 1'000 + node.index_ * 17 + life),
      commands(*scene.simulation, node.index_, random,
               [&node, life] {
                 if (node.life_ == life) node.OnActivity(Activity::kEvent);
               }),
      app(scene, node.index_, life,
          [&node, life](int64_t delay_ns, std::function<void()> task) {
            node.RunAs(life, delay_ns, std::move(task));
          }),
      sessions(&app) {}

Node::~Node() {
  const Simulation::As as(*scene_.simulation, index_);
  process_.reset();
  remains_.clear();
}

void Node::Start() {
  if (process_ != nullptr || ended_) return;
  ++life_;
  scene_.trail.Add(scene_.now_ns(), index_, index_, Step::kStart, life_, 0);
  const Simulation::As as(*scene_.simulation, index_);
  auto process = std::make_unique<Process>(scene_, *this, life_);
  scene_.witness.Begin(index_);
  judged_ = 0;
  scene_.witness.SetTrial(true);
  auto device = device::Device::Open(scene_.plan.asks_rc[index_] ? "softdc0/rc" : "softdc0",
                                     {&Witness::Verbs()});
  scene_.witness.SetTrial(false);
  if (!device.ok()) return scene_.ledger.Break("open", device.status().ToString(), index_, index_);
  process->device = std::move(*device);
  auto endpoint = endpoint::CreateEndpoint(scene_.plan.endpoint, *process->device, process->clock,
                                           process->random, process->commands, &process->sessions);
  if (!endpoint.ok()) {
    return scene_.ledger.Break("create", endpoint.status().ToString(), index_, index_);
  }
  process->endpoint = std::move(*endpoint);
  process->sessions.Attach(process->endpoint.get());
  process->app.Attach(&process->sessions, process->endpoint.get());
  process_ = std::move(process);
  process_->app.Listen();
  for (const auto& [from, to] : scene_.plan.pairs) {
    if (from == index_) process_->app.Connect(to);
  }
  for (const auto& [from, to] : scene_.plan.unlike) {
    if (from == index_) process_->app.Connect(to);
  }
  OnActivity(Activity::kEvent);
}

void Node::Count(Process& process) {
  const endpoint::Counters counts = process.endpoint->Counts();
  totals_.duplicates += process.sessions.counters().duplicates;
  totals_.sent_again += process.sessions.counters().sent_again;
  totals_.stream_resets += counts.stream_resets;
  totals_.recoveries += counts.queue_recoveries;
  totals_.failures += counts.requests_failed;
  totals_.probes += counts.probes;
}

void Node::Bury() {
  if (process_ == nullptr) return;
  const Simulation::As as(*scene_.simulation, index_);
  Count(*process_);
  // The endpoint's destructor would wait in real time for goodbyes to leave.
  process_->app.Leave();
  process_->app.Die();
  ++life_;  // nothing of it is run any more
  Process* dead = process_.get();
  remains_.push_back(std::move(process_));
  scene_.simulation->After(2 * scene_.plan.endpoint.dead_peer_ns + kMs, [this, dead] {
    const Simulation::As as(*scene_.simulation, index_);
    for (int i = 0; i < 4; ++i) {
      dead->endpoint->PrepareToSleep();
      dead->endpoint->Poll();
    }
    std::erase_if(remains_, [dead](const auto& one) { return one.get() == dead; });
  });
}

void Node::End() {
  ended_ = true;
  Bury();
}

void Node::StartAgain() {
  if (remains_.empty()) return Start();
  scene_.simulation->After(kMs, [this] { StartAgain(); });
}

void Node::Act(const std::function<void(App&)>& act) {
  const Simulation::As as(*scene_.simulation, index_);
  act(process_->app);
  OnActivity(Activity::kEvent);
}

void Node::RunAs(uint32_t life, int64_t delay_ns, std::function<void()> task) {
  const int64_t when_ns = std::max(scene_.now_ns() + delay_ns, stalled_until_ns_);
  scene_.simulation->After(when_ns - scene_.now_ns(),
                           [this, life, task = std::move(task)]() mutable {
                             if (life != life_) return;
                             if (stalled_until_ns_ > scene_.now_ns())
                               return RunAs(life, 0, std::move(task));
                             const Simulation::As as(*scene_.simulation, index_);
                             task();
                             ScheduleNap(scene_.plan.nap_ns);
                           });
}

void Node::Stall(int64_t until_ns) { stalled_until_ns_ = std::max(stalled_until_ns_, until_ns); }

void Node::OnActivity(Activity what) {
  if (process_ == nullptr) return;
  if (what == Activity::kWritten && asleep_) return;
  deeper_ = deeper_ || (what != Activity::kCompletion && what != Activity::kWritten);
  if (look_due_) return;
  Schedule(scene_.now_ns() + scene_.plan.poll_delay_ns);
}

void Node::Schedule(int64_t when_ns) {
  look_due_ = true;
  when_ns = std::max(when_ns, stalled_until_ns_);
  scene_.simulation->After(when_ns - scene_.now_ns(), [this] { Look(); });
}

void Node::Look() {
  look_due_ = false;
  if (process_ == nullptr) return;
  if (stalled_until_ns_ > scene_.now_ns()) return Schedule(stalled_until_ns_);
  ++looks_;
  asleep_ = false;
  const Simulation::As as(*scene_.simulation, index_);
  if (deeper_) {
    deeper_ = false;
    LookDeeper();
  }
  for (int pass = 0; process_->endpoint->Poll() != 0; ++pass) {
    if (pass != kMostPasses) continue;
    scene_.ledger.Break("poll", "an endpoint always has more to do", index_, index_);
    return;
  }
  CheckAttribution();
  ScheduleNap(scene_.plan.nap_ns);
}

// Completions that were told a second time are nobody's.
void Node::CheckAttribution() {
  const uint64_t repeated = scene_.witness.repeated(index_);
  if (repeated == judged_) return;
  judged_ = repeated;
  const uint64_t dropped = process_->endpoint->Counts().late_completions;
  if (dropped >= repeated) return;
  scene_.ledger.Break("5 Attribution",
                      std::to_string(repeated - dropped) +
                          " completions of earlier uses of a slot were taken for those of now",
                      index_, index_);
}

// What a sleeper's last look finds: descriptors, timers, errors that nobody asked for.
void Node::LookDeeper() {
  process_->endpoint->PrepareToSleep();
  process_->endpoint->Poll();
}

void Node::ScheduleNap(int64_t delay_ns) {
  // The earliest counts: what has happened meanwhile may have set a timer.
  const int64_t when_ns = scene_.now_ns() + delay_ns;
  if (nap_due_ && nap_at_ns_ <= when_ns) return;
  nap_due_ = true;
  nap_at_ns_ = when_ns;
  looks_at_nap_ = looks_;
  scene_.simulation->After(delay_ns, [this, nap = ++naps_] {
    if (nap == naps_) Nap();
  });
}

void Node::Nap() {
  nap_due_ = false;
  if (process_ == nullptr) return;
  if (stalled_until_ns_ > scene_.now_ns()) {
    return ScheduleNap(stalled_until_ns_ - scene_.now_ns());
  }
  const Simulation::As as(*scene_.simulation, index_);
  endpoint::Endpoint& endpoint = *process_->endpoint;
  const int64_t until_ns = endpoint.SleepLimitNs();
  if (looks_ != looks_at_nap_ && until_ns != 0) return ScheduleNap(scene_.plan.nap_ns);
  for (int pass = 0;; ++pass) {
    const bool nothing_left = endpoint.PrepareToSleep();
    if (endpoint.Poll() == 0 && nothing_left) break;
    if (pass != kMostPasses) continue;
    scene_.ledger.Break("poll", "an endpoint never sleeps", index_, index_);
    return;
  }
  endpoint.PrepareToSleep();
  asleep_ = true;
  const int64_t limit_ns = endpoint.SleepLimitNs();
  if (limit_ns >= 0) ScheduleNap(std::max<int64_t>(limit_ns, 1));
}

}  // namespace sluice::simulation
