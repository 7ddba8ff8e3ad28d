// SPDX-License-Identifier: Apache-2.0
//
// FakeStack: the stack of most tests of the API: a LocalStack, without a device. With SLUICE_TEST_STACK=device, the production stack on the
// device softdc0 instead, with the addresses of the tests. The lab runs tests so, on a soft RoCE device of that name (tests/lab). A test that
// uses the faults of its FakeNetwork has no endpoint to use them on then: it crashes, and is listed with this reason.
//
// Ownership     As for LocalStack.
// Threads       As for LocalStack.
#ifndef SLUICE_TESTS_SUPPORT_FAKE_STACK_H_
#define SLUICE_TESTS_SUPPORT_FAKE_STACK_H_

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "middleware/api/local_stack.h"
#include "middleware/api/open_stack.h"
#include "tests/support/device_endpoint.h"
#include "tests/support/fake_endpoint.h"

namespace sluice::testing_support {

inline bool TestsUseDevice() {
  const char* const name = std::getenv("SLUICE_TEST_STACK");
  return name != nullptr && std::string_view(name) == "device";
}

class FakeStack final : public Stack {
 public:
  FakeStack(FakeNetwork* network, FakeNetwork::Options options, FakeEndpoint** endpoint = nullptr) {
    if (!TestsUseDevice()) {
      stack_ = std::make_unique<LocalStack>(network, options, endpoint);
      return;
    }
    auto opened = OpenStack("softdc0", PathOptions());
    if (!opened.ok()) {
      std::fprintf(stderr, "%s\n", opened.status().ToString().c_str());
      std::abort();
    }
    stack_ = *std::move(opened);
    ports_ = PortsOf(network);
  }

  base::Clock* clock() override { return stack_->clock(); }
  base::Random* random() override { return stack_->random(); }
  base::LogSink* log() override { return ports_ == nullptr ? stack_->log() : nullptr; }
  absl::StatusOr<std::unique_ptr<endpoint::Endpoint>> CreateEndpoint(
      const EndpointLimits& limits, const Authentication& authentication,
      const std::vector<Tenant>& tenants, base::LogSink* log, endpoint::Handler* handler) override {
    auto made = stack_->CreateEndpoint(limits, authentication, tenants, log, handler);
    if (!made.ok() || ports_ == nullptr) return made;
    return std::make_unique<DeviceEndpoint>(*std::move(made), ports_);
  }
  const std::string& device_choice() const override { return stack_->device_choice(); }
  const verbs::CapabilityReport& capabilities() const override { return stack_->capabilities(); }

 private:
  // Networks are few, and their entries stay until the end of the process.
  static PortsOfNames* PortsOf(const FakeNetwork* network) {
    static std::mutex mutex;
    static auto* const all = new std::map<const FakeNetwork*, PortsOfNames>();
    std::lock_guard lock(mutex);
    return &(*all)[network];
  }

  std::unique_ptr<Stack> stack_;
  PortsOfNames* ports_ = nullptr;  // set on a device
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_SUPPORT_FAKE_STACK_H_
