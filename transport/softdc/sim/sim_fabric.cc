// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/sim/sim_fabric.h"

#include <arpa/inet.h>
#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/softdc/model/context.h"
#include "transport/softdc/sim/sim_requester.h"

namespace sluice::softdc::sim {
namespace {

constexpr char kName[] = "softdc0";  // the only device of each host
constexpr uint32_t kNetwork = 10u << 24;
constexpr uint64_t kGuidBase = 0x0200005344000000;

}  // namespace

uint32_t AddressOf(uint32_t index) { return kNetwork | (index + 1); }

ibv_gid GidOf(uint32_t index) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  const uint32_t address = htonl(AddressOf(index));
  std::memcpy(&gid.raw[12], &address, sizeof(address));
  return gid;
}

__be64 GuidOf(uint32_t index) { return htobe64(kGuidBase + index); }

SimFabric::SimFabric(const Options& options) : world_(options), arrivals_(world_) {
  for (uint32_t index = 0; index < options.nodes; ++index) {
    const auto own = options.dials_by_node.find(index);
    Dials dials = own == options.dials_by_node.end() ? options.dials : own->second;
    dials.port.lid = static_cast<uint16_t>(index + 1);
    Node& node = world_.nodes.emplace_back(&world_.clock);
    node.index = index;
    if (options.reissue_freed_numbers) node.numbers.ReissueFreed();
    node.gids.push_back(GidOf(index));
    node.device = std::make_unique<SoftDevice>(kName, *this, dials, GuidOf(index));
  }
}

SimFabric::~SimFabric() = default;

Node& SimFabric::NodeOf(const SoftDevice& device) {
  return world_.nodes[be64toh(device.node_guid()) - kGuidBase];
}

uint64_t SimFabric::After(int64_t delay_ns, std::function<void()> task) {
  return world_.clock.ScheduleAt(world_.now_ns() + std::max<int64_t>(0, delay_ns), std::move(task));
}

std::unique_ptr<FabricPort> SimFabric::Attach(Context& context) {
  Node& node = NodeOf(context.device());
  if (!node.up || !node.plugged) {
    errno = ENODEV;
    return nullptr;
  }
  return std::make_unique<SimPort>(shared_from_this(), node, context);
}

std::vector<ibv_gid> SimFabric::Gids(const SoftDevice& device) { return NodeOf(device).gids; }

NodeId SimFabric::NodeOf(const SoftDevice&, const ibv_ah_attr& address) {
  if (address.is_global == 0) {
    return address.dlid != 0 && address.dlid <= world_.nodes.size() ? address.dlid : kNoNode;
  }
  // Usually it is the initial GID of the node, so try that first.
  uint32_t low = 0;
  std::memcpy(&low, &address.grh.dgid.raw[12], sizeof(low));
  const auto holds = [&](const Node& node) {
    return std::any_of(node.gids.begin(), node.gids.end(), [&](const ibv_gid& gid) {
      return std::memcmp(&gid, &address.grh.dgid, sizeof(gid)) == 0;
    });
  };
  const uint32_t guess = (ntohl(low) & ~kNetwork) - 1;
  if (guess < world_.nodes.size() && holds(world_.nodes[guess])) return NodeIdOf(guess);
  for (const Node& node : world_.nodes) {
    if (holds(node)) return NodeIdOf(node.index);
  }
  return kNoNode;
}

NodeId SimFabric::SelfNode(const SoftDevice& device) { return NodeIdOf(NodeOf(device).index); }

SimPort::SimPort(std::shared_ptr<SimFabric> fabric, Node& node, Context& context)
    : fabric_(std::move(fabric)), node_(node), context_(context) {
  node_.ports.push_back(this);
}

SimPort::~SimPort() { std::erase(node_.ports, this); }

uint32_t SimPort::AllocateNumber() { return dead_ ? kNoNumber : node_.numbers.Allocate(this); }

bool SimPort::FreeNumber(uint32_t number) { return node_.numbers.Free(number, this); }

uint32_t SimPort::AllocateReservedNumber() {
  if (dead_) return kNoNumber;
  const uint32_t number = node_.numbers.AllocateReserved();
  if (number != kNoNumber) reserved_.push_back(number);
  return number;
}

bool SimPort::FreeReservedNumber(uint32_t number) { return std::erase(reserved_, number) != 0; }

std::unique_ptr<Requester> SimPort::NewRequester(SendQueue& queue) {
  return std::make_unique<SimRequester>(fabric_->world(), *this, queue);
}

SimRequester* SimPort::FindRequester(uint32_t number) {
  for (SimRequester* requester : requesters_) {
    if (requester->queue().number() == number) return requester;
  }
  return nullptr;
}

}  // namespace sluice::softdc::sim
