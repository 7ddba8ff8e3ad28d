// SPDX-License-Identifier: Apache-2.0
//
// The production stack: a device, the clock, random numbers from the kernel, and a helper thread for calls that may block. Also the
// functions that open such a stack. They are separate from the rest of api/, so that a program with its own stack (a test over a
// fake endpoint) links no verbs provider.
#include "middleware/api/open_stack.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "middleware/api/channel.h"
#include "middleware/api/messenger.h"
#include "middleware/api/runtime.h"
#include "middleware/api/server.h"
#include "middleware/api/stack.h"
#include "middleware/call/exceptions.h"
#include "transport/device/device.h"
#include "transport/device/tables.h"
#include "transport/endpoint/create.h"
#include "transport/peer/secrets.h"
#include "transport/poller/commands.h"

namespace sluice {
namespace {

peer::SecretSource SourceOf(const Authentication& authentication) {
  if (!authentication.secret_file.empty()) return peer::SecretsFromFile(authentication.secret_file);
  if (!authentication.secret_source) return {};
  return [source = authentication.secret_source]() -> absl::StatusOr<std::vector<std::string>> {
    try {
      return source();
    } catch (...) {
      return call::StatusOfException("secret_source", "secrets", "");
    }
  };
}

class ProductionStack final : public Stack {
 public:
  ProductionStack(std::unique_ptr<device::Device> device, std::shared_ptr<cm::RequestDesk> desk)
      : device_(std::move(device)), desk_(std::move(desk)) {}

  base::Clock* clock() override { return &clock_; }
  base::Random* random() override { return &random_; }
  base::LogSink* log() override { return &log_; }
  const std::string& device_choice() const override { return device_->choice(); }
  const verbs::CapabilityReport& capabilities() const override { return device_->capabilities(); }

  absl::StatusOr<std::unique_ptr<endpoint::Endpoint>> CreateEndpoint(
      const EndpointLimits& limits, const Authentication& authentication,
      const std::vector<Tenant>& tenants, base::LogSink* log, endpoint::Handler* handler) override {
    endpoint::Options options;
    options.max_message_bytes = limits.max_message_bytes;
    options.max_large_bytes = limits.max_large_message_bytes;
    options.large_memory_bytes = limits.large_memory_bytes;
    options.srq_size = limits.receive_buffers;
    options.credits_per_peer = limits.credits_per_peer;
    options.max_rc_queue_pairs = limits.max_rc_queue_pairs;
    options.keepalive_ns = absl::ToInt64Nanoseconds(limits.keepalive);
    options.dead_peer_ns = absl::ToInt64Nanoseconds(limits.dead_peer_timeout);
    options.lane_memory_bytes = limits.lanes == Lanes::kOff ? 0 : limits.lane_memory_bytes;
    options.lanes_without_order = limits.lanes == Lanes::kOn;
    options.lane_slots = limits.lane_slots;
    options.lane_slot_bytes = limits.lane_slot_bytes;
    options.lane_after_messages = limits.lane_after_messages;
    options.path_mtu_bytes = limits.path_mtu;
    options.log = log;
    options.secrets = SourceOf(authentication);
    options.desk = desk_;
    for (const Tenant& tenant : tenants) {
      options.tenants.push_back({.name = tenant.name,
                                 .secrets = SourceOf(tenant.authentication),
                                 .srq_size = tenant.receive_buffers,
                                 .max_peers = tenant.max_peers});
    }
    return endpoint::CreateEndpoint(options, *device_, clock_, endpoint_random_, commands_,
                                    handler);
  }

 private:
  const std::unique_ptr<device::Device> device_;
  const std::shared_ptr<cm::RequestDesk> desk_;
  base::RealClock clock_;
  base::SystemRandom random_;           // used by the engine
  base::SystemRandom endpoint_random_;  // used by the endpoint: a source serves one thread
  base::StderrLog log_;
  poller::ThreadCommands commands_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Stack>> OpenStack(const std::string& device, const PathOptions& path,
                                                 std::shared_ptr<cm::RequestDesk> desk) {
  auto opened = device::Device::Open(device, device::AllTables());
  if (!opened.ok()) return opened.status();
  if (absl::Status status = (*opened)->UsePath(path); !status.ok()) return status;
  return std::make_unique<ProductionStack>(*std::move(opened), std::move(desk));
}

absl::StatusOr<std::shared_ptr<Channel>> Channel::Connect(const std::string& address,
                                                          const ChannelOptions& options) {
  if (options.runtime != nullptr) return ConnectIn(options.runtime, address, options);
  // Check the options before the device is opened.
  if (absl::Status status = Validate(address, options); !status.ok()) return status;
  auto stack = OpenStack(options.device, options.path);
  if (!stack.ok()) return stack.status();
  return ConnectOn(*std::move(stack), address, options);
}

absl::StatusOr<std::shared_ptr<Runtime>> Runtime::Create(const RuntimeOptions& options) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  auto stack = OpenStack(options.device, options.path);
  if (!stack.ok()) return stack.status();
  return CreateOn(*std::move(stack), options);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Create(const ServerOptions& options) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  // Each poller has its own device, so that the pollers share only the desk.
  const auto desk = options.pollers > 1 ? endpoint::MakeRequestDesk() : nullptr;
  std::vector<std::unique_ptr<Stack>> stacks;
  while (stacks.size() < options.pollers) {
    auto stack = OpenStack(options.device, options.path, desk);
    if (!stack.ok()) return stack.status();
    stacks.push_back(*std::move(stack));
  }
  return CreateOn(std::move(stacks), options);
}

absl::StatusOr<std::unique_ptr<Messenger>> Messenger::Create(const MessengerOptions& options) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  auto stack = OpenStack(options.device, options.path);
  if (!stack.ok()) return stack.status();
  return CreateOn(*std::move(stack), options);
}

}  // namespace sluice
