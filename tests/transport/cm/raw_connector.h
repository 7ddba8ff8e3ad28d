// SPDX-License-Identifier: Apache-2.0
//
// One side of an RDMA_CM connection without an endpoint: says what it likes in the private data.
#ifndef SLUICE_TESTS_TRANSPORT_CM_RAW_CONNECTOR_H_
#define SLUICE_TESTS_TRANSPORT_CM_RAW_CONNECTOR_H_

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/base/clock.h"
#include "transport/base/random.h"
#include "transport/base/timer_wheel.h"
#include "transport/cm/connection_manager.h"
#include "transport/device/device.h"
#include "transport/poller/commands.h"
#include "transport/softdc/verbs.h"

namespace sluice::cm {

struct RawConnector : User {
  // `table` outlives the connector.
  explicit RawConnector(const verbs::VerbsApi* table = &softdc::Verbs(), Options options = {}) {
    device = std::move(*device::Device::Open("softdc0", {table}));
    numbers = std::make_unique<QpnPool>(device->api(), device->context(), device->pd(), true);
    auto created = ConnectionManager::Create(device->api(), options, *numbers, commands, clock,
                                             timers, random, *this);
    EXPECT_TRUE(created.ok()) << created.status();
    manager = std::move(*created);
  }
  ~RawConnector() override { commands.Finish(); }

  int Poll() { return manager->ReadEvents() + commands.Drain() + timers.Advance(clock.NowNs()); }

  void OnRequest(ConnectionId id, std::span<const std::byte> data, const PathInfo&,
                 const std::string&) override {
    request.assign(data.begin(), data.end());
    manager->Accept(id, answer);
  }
  void OnResponse(ConnectionId id, std::span<const std::byte> data, const PathInfo&) override {
    response.assign(data.begin(), data.end());
    manager->Establish(id);
  }
  void OnUp(ConnectionId) override { up = true; }
  void OnDown(ConnectionId, const absl::Status& status, std::span<const std::byte> data) override {
    down = true;
    why = status;
    reject_data.assign(data.begin(), data.end());
  }

  base::RealClock clock;
  base::TimerWheel timers{clock.NowNs()};
  base::SystemRandom random;
  poller::ThreadCommands commands;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<QpnPool> numbers;
  std::unique_ptr<ConnectionManager> manager;

  std::vector<std::byte> answer;  // what OnRequest() accepts with
  std::vector<std::byte> request, response, reject_data;
  bool up = false, down = false;
  absl::Status why;
};

}  // namespace sluice::cm

#endif  // SLUICE_TESTS_TRANSPORT_CM_RAW_CONNECTOR_H_
