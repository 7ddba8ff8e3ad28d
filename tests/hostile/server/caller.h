// SPDX-License-Identifier: Apache-2.0
//
// Caller: an honest process with several channels: one to an honest server, one to a hostile one, one to both. Each call must end
// once, soon after its deadline at the latest; those to the honest server with OK and their own bytes.
//
// Ownership     The trial; the simulation outlives it.
// Threads       One thread.
#ifndef SLUICE_TESTS_HOSTILE_SERVER_CALLER_H_
#define SLUICE_TESTS_HOSTILE_SERVER_CALLER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "middleware/call/client_engine.h"
#include "tests/hostile/host.h"
#include "tests/hostile/report.h"
#include "transport/endpoint/create.h"

namespace sluice::hostile::server {

class Caller final : public Host {
 public:
  struct Took {
    int64_t began_ns;
    int64_t ns;
  };

  Caller(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed,
         const endpoint::Options& options, const std::string& honest, const std::string& hostile,
         uint32_t large_bytes, Report* report);
  ~Caller() override;

  // Calls from now on, until Finish().
  void Start();
  void Finish() { calling_ = false; }
  // Returns whether the channel to the honest server is connected.
  bool up() const;
  bool idle() const { return outstanding_ == 0; }
  // Disconnects; the destructor would do so in real time.
  void Leave();

  const std::vector<Took>& took() const { return took_; }  // of calls to the honest server
  uint64_t honest_calls() const { return honest_calls_; }
  uint64_t other_calls() const { return other_calls_; }  // to others, that have ended
  uint64_t other_ok() const { return other_ok_; }
  uint64_t large_steps() const;

 private:
  struct Channel;
  struct Call;
  struct Stream;

  int Poll() override;
  bool PrepareToSleep() override;
  int64_t SleepLimitNs() override;
  void Open(const std::vector<std::string>& servers, bool honest, const endpoint::Options& options);
  void Tick();
  void Begin(Channel& channel);
  void OnEnd(Call* call, const absl::Status& status);

  Report* const report_;
  const uint32_t large_bytes_;
  std::vector<std::unique_ptr<Channel>> channels_;
  bool calling_ = false;
  uint64_t calls_ = 0;
  uint64_t outstanding_ = 0;
  uint64_t honest_calls_ = 0;
  uint64_t other_calls_ = 0;
  uint64_t other_ok_ = 0;
  std::vector<Took> took_;
};

}  // namespace sluice::hostile::server

#endif  // SLUICE_TESTS_HOSTILE_SERVER_CALLER_H_
