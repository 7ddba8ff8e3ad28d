// SPDX-License-Identifier: Apache-2.0
//
// SimCommands: Commands on a simulated host. Work is done in order, a random moment after it was
// submitted, as the node that submitted it; Finish() does at once what is left.
#ifndef SLUICE_TESTS_TRANSPORT_CM_SIM_COMMANDS_H_
#define SLUICE_TESTS_TRANSPORT_CM_SIM_COMMANDS_H_

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "transport/base/clock.h"
#include "transport/base/random.h"
#include "transport/poller/commands.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::cm {

class SimClock final : public base::Clock {
 public:
  explicit SimClock(const softdc::sim::Simulation& simulation) : simulation_(simulation) {}
  int64_t NowNs() override { return simulation_.NowNs(); }

 private:
  const softdc::sim::Simulation& simulation_;
};

class SimCommands final : public poller::Commands {
 public:
  // `finished`, if any, is called when Drain() has something to do.
  SimCommands(softdc::sim::Simulation& simulation, uint32_t node, base::Random& random,
              std::function<void()> finished = nullptr)
      : simulation_(simulation), node_(node), random_(random), on_finished_(std::move(finished)) {}
  ~SimCommands() override { *alive_ = false; }

  void Submit(Work work, Work done) override {
    const int64_t now_ns = simulation_.NowNs();
    free_ns_ = std::max(free_ns_, now_ns) + 1'000 + static_cast<int64_t>(random_.Below(kMaxNs));
    queued_.emplace_back(std::move(work), std::move(done));
    simulation_.After(free_ns_ - now_ns, [this, alive = alive_] {
      if (!*alive || queued_.empty()) return;
      DoNext();
      if (on_finished_) on_finished_();
    });
  }
  int Drain() override {
    std::vector<Work> now;
    now.swap(finished_);
    for (Work& done : now) done();
    return static_cast<int>(now.size());
  }
  void Finish() override {
    while (!queued_.empty()) DoNext();
    finished_.clear();
  }
  int fd() const override { return -1; }

 private:
  static constexpr uint64_t kMaxNs = 40'000;

  void DoNext() {
    const softdc::sim::Simulation::As as(simulation_, node_);
    auto [work, done] = std::move(queued_.front());
    queued_.pop_front();
    work();
    finished_.push_back(std::move(done));
  }

  softdc::sim::Simulation& simulation_;
  const uint32_t node_;
  base::Random& random_;
  const std::function<void()> on_finished_;
  int64_t free_ns_ = 0;
  std::deque<std::pair<Work, Work>> queued_;
  std::vector<Work> finished_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace sluice::cm

#endif  // SLUICE_TESTS_TRANSPORT_CM_SIM_COMMANDS_H_
