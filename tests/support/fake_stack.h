// SPDX-License-Identifier: Apache-2.0
//
// FakeStack: a Stack over a FakeNetwork, for tests of Channel and Server.
#ifndef SLUICE_TESTS_SUPPORT_FAKE_STACK_H_
#define SLUICE_TESTS_SUPPORT_FAKE_STACK_H_

#include <memory>
#include <string>
#include <utility>

#include "middleware/api/stack.h"
#include "tests/support/fake_endpoint.h"

namespace sluice::testing_support {

class FakeStack final : public Stack {
 public:
  // `endpoint`, if given, is where the made endpoint can be found, for its fault switches.
  FakeStack(FakeNetwork* network, FakeNetwork::Options options, FakeEndpoint** endpoint = nullptr)
      : network_(network), options_(options), endpoint_(endpoint) {}

  base::Clock* clock() override { return &clock_; }
  base::Random* random() override { return &random_; }
  base::LogSink* log() override { return nullptr; }
  absl::StatusOr<std::unique_ptr<endpoint::Endpoint>> CreateEndpoint(
      const EndpointLimits& limits, const Authentication&, const std::vector<Tenant>&,
      endpoint::Handler* handler) override {
    options_.max_message_bytes = limits.max_message_bytes;
    auto made = network_->Create(handler, &clock_, options_);
    if (endpoint_ != nullptr) *endpoint_ = made.get();
    return made;
  }
  const std::string& device_choice() const override { return choice_; }
  const verbs::CapabilityReport& capabilities() const override { return report_; }

 private:
  FakeNetwork* const network_;
  FakeNetwork::Options options_;
  FakeEndpoint** const endpoint_;
  base::RealClock clock_;
  base::SeededRandom random_{1};
  const std::string choice_ = "fake: asked for by a test";
  const verbs::CapabilityReport report_;
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_SUPPORT_FAKE_STACK_H_
