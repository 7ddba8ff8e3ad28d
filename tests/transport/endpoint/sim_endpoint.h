// SPDX-License-Identifier: Apache-2.0
//
// SimEndpoint: an endpoint on a simulated host, in virtual time, with all that it takes.
#ifndef SLUICE_TESTS_TRANSPORT_ENDPOINT_SIM_ENDPOINT_H_
#define SLUICE_TESTS_TRANSPORT_ENDPOINT_SIM_ENDPOINT_H_

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "gtest/gtest.h"
#include "tests/transport/cm/sim_commands.h"
#include "tests/transport/endpoint/endpoint_pair.h"
#include "transport/base/random.h"
#include "transport/device/device.h"
#include "transport/endpoint/create.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::endpoint {

// Small: there may be many.
inline Options SimEndpointOptions() {
  Options options;
  options.max_message_bytes = 256;
  options.srq_size = 64;
  options.credits_per_peer = 8;
  options.send_buffers = 64;
  options.max_peers = 16;
  options.dci_depth = 64;
  options.dead_peer_ns = 100'000'000;
  return options;
}

class SimEndpoint {
 public:
  static constexpr uint16_t kPort = 7471;

  // Without a handler of the test's own, the recorder is told. `table` stands for a device that fails; it outlives this.
  SimEndpoint(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed = 1,
              const Options& options = SimEndpointOptions(), Handler* handler = nullptr,
              const verbs::VerbsApi* table = &softdc::sim::Simulation::Verbs())
      : simulation_(simulation),
        node_(node),
        clock_(simulation),
        random_(seed * 1000 + node),
        commands_(simulation, node, random_) {
    const softdc::sim::Simulation::As as(simulation, node);
    auto opened = device::Device::Open("softdc0", {table});
    // Ends the test.
    if (!opened.ok()) throw std::runtime_error(opened.status().ToString());
    device_ = std::move(*opened);
    auto created = CreateEndpoint(options, *device_, clock_, random_, commands_,
                                  handler != nullptr ? handler : &recorder);
    if (!created.ok()) {
      device_.reset();
      throw std::runtime_error(created.status().ToString());
    }
    endpoint_ = std::move(*created);
  }
  // Goodbyes leave in virtual time: the destructor would wait for them in real time.
  ~SimEndpoint() {
    const softdc::sim::Simulation::As as(simulation_, node_);
    if (endpoint_ != nullptr) {
      for (const Recorder::Up& up : recorder.ups) endpoint_->Disconnect(up.id);
      const int64_t end_ns = simulation_.NowNs() + 1'000'000'000;
      for (Poll(); simulation_.NowNs() < end_ns && simulation_.Step();) Poll();
    }
    endpoint_.reset();
    device_.reset();
  }
  SimEndpoint(const SimEndpoint&) = delete;
  SimEndpoint& operator=(const SimEndpoint&) = delete;

  void Listen(const std::string& host = "*") {
    const softdc::sim::Simulation::As as(simulation_, node_);
    const auto port = endpoint_->Listen(host, kPort);
    EXPECT_TRUE(port.ok()) << port.status();
  }
  absl::StatusOr<PeerId> Connect(uint32_t to) {
    const softdc::sim::Simulation::As as(simulation_, node_);
    return endpoint_->Connect(AddressOf(to), kPort, clock_.NowNs() + 5'000'000'000);
  }
  absl::Status Send(PeerId peer, std::string_view text) {
    auto buffer = endpoint_->Reserve(peer, static_cast<uint32_t>(text.size()));
    if (!buffer.ok()) return buffer.status();
    std::memcpy(buffer->data, text.data(), text.size());
    endpoint_->Commit(peer, *buffer, static_cast<uint32_t>(text.size()), false);
    endpoint_->Release(buffer->slot);
    return absl::OkStatus();
  }
  // As a thread that sleeps whenever there is nothing to do.
  void Poll() {
    const softdc::sim::Simulation::As as(simulation_, node_);
    // Completions of errors are looked for in one pass of 64 when nothing else is awaited.
    for (int pass = 0; pass < 65; ++pass) endpoint_->Poll();
    for (bool sleeps = false; !sleeps;) {
      const bool ready = endpoint_->PrepareToSleep();
      sleeps = endpoint_->Poll() == 0 && ready;
    }
    const int64_t limit_ns = endpoint_->SleepLimitNs();
    if (limit_ns < 0) return;
    const int64_t wake_ns = simulation_.NowNs() + std::max<int64_t>(limit_ns, 1);
    if (wake_ns_ > simulation_.NowNs() && wake_ns_ <= wake_ns) return;
    wake_ns_ = wake_ns;
    simulation_.After(wake_ns - simulation_.NowNs(), [] {});
  }

  static std::string AddressOf(uint32_t node) {
    char text[INET_ADDRSTRLEN];
    const in_addr address = softdc::sim::Simulation::Address(node);
    return inet_ntop(AF_INET, &address, text, sizeof(text));
  }
  Endpoint& endpoint() { return *endpoint_; }
  device::Device& device() { return *device_; }

  Recorder recorder;

 private:
  softdc::sim::Simulation& simulation_;
  const uint32_t node_;
  cm::SimClock clock_;
  base::SeededRandom random_;
  cm::SimCommands commands_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<Endpoint> endpoint_;
  int64_t wake_ns_ = 0;
};

// Until `done`, asked before the first and after each step. False: not within `limit_ns` of virtual
// time.
inline bool RunUntil(softdc::sim::Simulation& simulation,
                     std::initializer_list<SimEndpoint*> endpoints,
                     const std::function<bool()>& done, int64_t limit_ns = 60'000'000'000) {
  const int64_t end_ns = simulation.NowNs() + limit_ns;
  for (;;) {
    for (SimEndpoint* endpoint : endpoints) endpoint->Poll();
    if (done()) return true;
    if (simulation.NowNs() >= end_ns || !simulation.Step()) return false;
  }
}

}  // namespace sluice::endpoint

#endif  // SLUICE_TESTS_TRANSPORT_ENDPOINT_SIM_ENDPOINT_H_
