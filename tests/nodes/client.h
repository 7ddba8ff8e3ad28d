// SPDX-License-Identifier: Apache-2.0
//
// Client: a process with a ClientEngine, which makes calls of all kinds, and judges each end.
#ifndef SLUICE_TESTS_NODES_CLIENT_H_
#define SLUICE_TESTS_NODES_CLIENT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "middleware/call/client_engine.h"
#include "tests/nodes/outgoing.h"
#include "tests/nodes/process.h"
#include "tests/nodes/service.h"

namespace sluice::nodes {

class Client final : public Process {
 public:
  Client(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed, const Plan& plan,
         Ledger* ledger);
  ~Client() override;

  // Calls from now on, until Finish().
  void Start();
  void Finish() { calling_ = false; }
  bool idle() const { return calls_.empty(); }
  bool up() const { return !closed() && engine_->state() == call::ConnectionState::kUp; }
  // Other servers from now on: a part of all.
  void ChangeServers();
  // It says goodbye to all servers.
  void Leave();
  // What is left, for people; empty: nothing.
  std::string Left() const;
  std::string LastError() const { return engine_->last_error().ToString(); }
  uint64_t ended() const { return ended_; }
  uint64_t ok() const { return ok_; }
  // Messages that may be sent to its first server now.
  uint32_t Credits();

 private:
  friend class Outgoing;

  void EndEngine() override;
  int PollEngine() override { return engine_->Poll(); }
  bool EngineMaySleep() override { return engine_->PrepareToSleep(); }
  int64_t EngineLimitNs() override { return engine_->SleepLimitNs(); }
  void AfterSleep() override {
    if (!closed()) engine_->AfterSleep();
  }
  std::vector<call::ServerAddress> Servers() const;
  void Tick();
  void Begin();
  void Cancel(uint64_t serial);
  // Inside callbacks.
  void Nest();
  void OnEnd(Outgoing* call, const absl::Status& status);

  std::unique_ptr<call::ClientEngine> engine_;
  std::map<uint64_t, std::unique_ptr<Outgoing>> calls_;  // by serial: those that have not ended
  bool calling_ = false;
  bool closing_ = false;
  bool leaving_ = false;
  uint32_t depth_ = 0;
  uint64_t ended_ = 0;
  uint64_t ok_ = 0;
};

}  // namespace sluice::nodes

#endif  // SLUICE_TESTS_NODES_CLIENT_H_
