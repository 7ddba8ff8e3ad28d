// SPDX-License-Identifier: Apache-2.0
//
// Server: one poller of a server process: an endpoint, a ServerEngine, an interceptor, and the handlers of service.h.
#ifndef SLUICE_TESTS_NODES_SERVER_H_
#define SLUICE_TESTS_NODES_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "middleware/call/server_engine.h"
#include "tests/nodes/gatekeeper.h"
#include "tests/nodes/process.h"
#include "tests/nodes/task.h"

namespace sluice::nodes {

class Server final : public Process {
 public:
  Server(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed, const Plan& plan,
         Ledger* ledger, std::shared_ptr<cm::RequestDesk> desk);
  ~Server() override;

  void Listen();
  void StartDrain();
  bool drained() const { return closed() || engine_->drain().over(); }
  // What is left of its calls, for people; empty: nothing.
  std::string Left() const;

  // For its tasks.
  Ledger& ledger() { return *ledger_; }
  int64_t Draw(int64_t below) {
    return static_cast<int64_t>(dice_.Below(static_cast<uint64_t>(below)));
  }
  uint32_t SizeOf(uint32_t number) const;
  // The attachment of the request goes back with the reply.
  void Attach(const call::Incoming& incoming);
  void EndLater(uint64_t task, int64_t delay_ns);
  void Forget(uint64_t task) { tasks_.erase(task); }

 private:
  void EndEngine() override;
  int PollEngine() override { return engine_->Poll(); }
  bool EngineMaySleep() override { return engine_->PrepareToSleep(); }
  int64_t EngineLimitNs() override { return engine_->SleepLimitNs(); }
  void Answer(const call::Method& method);
  void Take(const call::Method& method);

  Gatekeeper gatekeeper_;
  std::unique_ptr<call::ServerEngine> engine_;
  std::map<uint64_t, std::unique_ptr<Task>> tasks_;
  uint64_t next_task_ = 0;
};

}  // namespace sluice::nodes

#endif  // SLUICE_TESTS_NODES_SERVER_H_
