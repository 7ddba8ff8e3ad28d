// SPDX-License-Identifier: Apache-2.0
//
// Host: a process on a simulated host, which looks when something has come and takes time for what it does.
//
// Purpose       The clock, the random source, the commands and the device of one process, and its loop: a pass, then the time
//               that the pass takes, then the next pass; without work it sleeps until an event or a timer (Loop).
// Ownership     The trial; the simulation outlives it.
// Threads       One thread.
#ifndef SLUICE_TESTS_HOSTILE_HOST_H_
#define SLUICE_TESTS_HOSTILE_HOST_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tests/transport/cm/sim_commands.h"
#include "transport/base/random.h"
#include "transport/device/device.h"
#include "transport/softdc/sim/activity.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::hostile {

inline constexpr uint16_t kPort = 7471;
inline constexpr int64_t kUs = 1'000;
inline constexpr int64_t kMs = 1'000'000;

// How a process waits.
enum class Loop : uint8_t {
  kSpins,   // It polls for a while before it sleeps, and looks whenever something has come.
  kSleeps,  // It polls once, and sleeps if PrepareToSleep() allows it, until fd() is readable or SleepLimitNs() is over.
};

// Bytes that the process has allocated and not freed. Registered slabs are not among them.
size_t HeapBytes();

class Host {
 public:
  Host(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed);
  virtual ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  void OnActivity(softdc::sim::Activity what);
  // A thing that a pass does takes so long.
  void set_step_ns(int64_t step_ns) { step_ns_ = step_ns; }
  void set_loop(Loop loop) { loop_ = loop; }
  // Whether largest_pass_bytes() is kept; it takes most of the time of a run.
  void set_weighed(bool weighed) { weighed_ = weighed; }
  // Nothing of it runs any more: the process was killed, or its program hangs.
  void Stop() { stopped_ = true; }

  static std::string AddressOf(uint32_t node);
  uint32_t node() const { return node_; }
  uint64_t steps() const { return steps_; }  // things that its passes have done
  uint64_t sleepless() const {
    return sleepless_;
  }  // times that it was about to sleep and never could
  // Sleeps in a row, the most of all, that were to last no time and had nothing to do afterwards.
  uint64_t restless() const { return restless_; }
  size_t largest_pass_bytes() const { return largest_pass_bytes_; }

 protected:
  using As = softdc::sim::Simulation::As;

  virtual int Poll() = 0;
  virtual bool PrepareToSleep() = 0;
  virtual int64_t SleepLimitNs() = 0;
  // The two below are for Loop::kSleeps. -1: each event wakes it.
  virtual int fd() const { return -1; }
  virtual void AfterSleep() {}

  int64_t now_ns() const { return simulation_.NowNs(); }
  // `task` runs as this host, unless it is stopped before.
  template <typename Task>
  void After(int64_t delay_ns, Task task) {
    simulation_.After(delay_ns, [this, alive = alive_, task = std::move(task)]() mutable {
      if (!*alive || stopped_) return;
      const As as(simulation_, node_);
      task();
    });
  }
  void Flushed() { OnActivity(softdc::sim::Activity::kCompletion); }
  // The program has done something outside of a pass. A loop that sleeps asks PrepareToSleep() again, and does not poll before.
  void Acted();

  softdc::sim::Simulation& simulation_;
  const uint32_t node_;
  cm::SimClock clock_;
  base::SeededRandom random_;
  cm::SimCommands commands_;
  std::unique_ptr<device::Device> device_;

 private:
  void Wake();
  void Look();
  void LookOnce();
  void Rest(int done);
  int Pass();
  void Nap(int64_t delay_ns);

  Loop loop_ = Loop::kSpins;
  int64_t step_ns_ = 100;
  bool weighed_ = true;
  bool stopped_ = false;
  bool look_due_ = false;
  bool deeper_ = false;  // descriptors, timers and errors too
  bool nap_due_ = false;
  bool asleep_ = false;  // Loop::kSleeps
  uint64_t sleeps_ = 0;  // the same
  uint64_t barren_ = 0;  // passes in a row that found nothing and could not be followed by a sleep
  uint64_t steps_ = 0;
  uint64_t sleepless_ = 0;
  uint64_t restless_ = 0;
  uint64_t restless_now_ = 0;
  size_t largest_pass_bytes_ = 0;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace sluice::hostile

#endif  // SLUICE_TESTS_HOSTILE_HOST_H_
