// SPDX-License-Identifier: Apache-2.0
//
// Process: a host's process with one endpoint and one engine, which may be destroyed while its endpoint still disconnects.
//
//   lives -> Close(): engine gone, goodbyes in flight -> gone(): may be destroyed
//   lives -> Die(): killed -> Bury(): may be destroyed
#ifndef SLUICE_TESTS_NODES_PROCESS_H_
#define SLUICE_TESTS_NODES_PROCESS_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "tests/hostile/host.h"
#include "tests/hostile/victim.h"
#include "tests/nodes/ledger.h"
#include "tests/nodes/plan.h"
#include "tests/nodes/valve.h"

namespace sluice::nodes {

class Process : public hostile::Host {
 public:
  Process(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed, const Plan& plan,
          Ledger* ledger);
  ~Process() override;

  // Its engine ends, with all its calls.
  void Close();
  bool closed() const { return valve_.shut(); }
  // Closed, and nothing is under way.
  bool gone() const;
  // The process was killed. Its engine ends here, but nobody judges how.
  void Die();
  bool dead() const { return dead_; }
  // What was under way at a dead process has failed by now.
  void Bury();

  // Nothing is done on purpose any more.
  void BeQuiet() { quiet_ = true; }

  // Called after a pass that did something.
  void set_on_work(std::function<void()> on_work) { on_work_ = std::move(on_work); }

  const hostile::Tap& tap() const { return tap_; }
  Valve& endpoint() { return valve_; }

 protected:
  void Dials() { tap_.set_dials(); }
  // Its engine hears of everything from now on.
  void Open(const endpoint::Options& options, endpoint::Handler* engine);
  virtual void EndEngine() = 0;
  virtual int PollEngine() = 0;
  virtual bool EngineMaySleep() = 0;
  virtual int64_t EngineLimitNs() = 0;
  bool quiet() const { return quiet_; }
  bool One(uint32_t ppm) { return dice_.Below(1'000'000) < ppm; }

  const Plan& plan_;
  Ledger* const ledger_;
  base::SeededRandom dice_;  // the program's
  Valve valve_;

 private:
  int Poll() override;
  bool PrepareToSleep() override {
    return valve_.shut() ? valve_.PrepareToSleep() : EngineMaySleep();
  }
  int64_t SleepLimitNs() override {
    return valve_.shut() ? valve_.SleepLimitNs() : EngineLimitNs();
  }
  int fd() const override { return valve_.fd(); }
  void Meddle(endpoint::PeerId peer);

  hostile::Tap tap_;
  std::function<void()> on_work_;
  bool dead_ = false;
  bool quiet_ = false;
};

}  // namespace sluice::nodes

#endif  // SLUICE_TESTS_NODES_PROCESS_H_
