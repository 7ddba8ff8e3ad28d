// SPDX-License-Identifier: Apache-2.0
//
// LocalStack: a Stack over a LocalNetwork, without a device, in real time.
#ifndef SLUICE_MIDDLEWARE_API_LOCAL_STACK_H_
#define SLUICE_MIDDLEWARE_API_LOCAL_STACK_H_

#include <memory>
#include <string>
#include <utility>

#include "middleware/api/stack.h"
#include "middleware/local/local_endpoint.h"

namespace sluice {

class LocalStack final : public Stack {
 public:
  // `endpoint`: optional; CreateEndpoint() stores the endpoint there, for fault injection.
  LocalStack(std::shared_ptr<local::LocalNetwork> network, local::LocalNetwork::Options options,
             local::LocalEndpoint** endpoint = nullptr)
      : network_(std::move(network)), options_(options), endpoint_(endpoint) {}
  // `network` outlives the stack.
  LocalStack(local::LocalNetwork* network, local::LocalNetwork::Options options,
             local::LocalEndpoint** endpoint = nullptr)
      : LocalStack(std::shared_ptr<local::LocalNetwork>(std::shared_ptr<void>(), network), options,
                   endpoint) {}

  base::Clock* clock() override { return &clock_; }
  base::Random* random() override { return &random_; }
  base::LogSink* log() override { return nullptr; }
  absl::StatusOr<std::unique_ptr<endpoint::Endpoint>> CreateEndpoint(
      const EndpointLimits& limits, const Authentication&, const std::vector<Tenant>&,
      base::LogSink*, endpoint::Handler* handler) override {
    options_.max_message_bytes = limits.max_message_bytes;
    options_.max_large_bytes = limits.max_large_message_bytes;
    options_.large_memory_bytes = limits.large_memory_bytes;
    auto made = network_->Create(handler, &clock_, options_);
    if (endpoint_ != nullptr) *endpoint_ = made.get();
    return made;
  }
  const std::string& device_choice() const override { return choice_; }
  const verbs::CapabilityReport& capabilities() const override { return report_; }

 private:
  const std::shared_ptr<local::LocalNetwork> network_;
  local::LocalNetwork::Options options_;
  local::LocalEndpoint** const endpoint_;
  base::RealClock clock_;
  base::SeededRandom random_{1};
  const std::string choice_ = "in process: no device";
  const verbs::CapabilityReport report_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_LOCAL_STACK_H_
