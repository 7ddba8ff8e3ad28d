// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/in_process.h"

#include <string>
#include <utility>

#include "middleware/api/local_stack.h"

namespace sluice {
namespace {

constexpr char kAddress[] = "in-process:1";

}  // namespace

struct InProcess::Parts {
  // Shared: a channel that ends on its background thread may end after the InProcess.
  const std::shared_ptr<local::LocalNetwork> network = std::make_shared<local::LocalNetwork>();
  local::LocalEndpoint* server_end = nullptr;
  std::unique_ptr<Server> server;
};

InProcess::InProcess(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
InProcess::~InProcess() = default;

absl::StatusOr<std::unique_ptr<InProcess>> InProcess::Start(const std::vector<Service*>& services,
                                                            const ServerOptions& options,
                                                            const RegisterOptions& registering) {
  auto parts = std::make_unique<Parts>();
  local::LocalNetwork::Options local;
  local.credits = static_cast<int>(options.limits.credits_per_peer);
  ServerOptions server_options = options;
  server_options.pollers = 1;  // clients are not distributed here
  auto server = Server::CreateOn(
      std::make_unique<LocalStack>(parts->network, local, &parts->server_end), server_options);
  if (!server.ok()) return server.status();
  parts->server = *std::move(server);
  for (Service* service : services) {
    if (absl::Status status = parts->server->Register(service, registering); !status.ok()) {
      return status;
    }
  }
  if (auto port = parts->server->Listen(kAddress); !port.ok()) return port.status();
  return std::unique_ptr<InProcess>(new InProcess(std::move(parts)));
}

absl::StatusOr<std::shared_ptr<Channel>> InProcess::NewChannel(const ChannelOptions& options) {
  local::LocalNetwork::Options local;
  local.credits = static_cast<int>(options.limits.credits_per_peer);
  return Channel::ConnectOn(std::make_unique<LocalStack>(parts_->network, local), kAddress,
                            options);
}

Server& InProcess::server() { return *parts_->server; }
void InProcess::KillServer() { parts_->server_end->Kill(); }

}  // namespace sluice
