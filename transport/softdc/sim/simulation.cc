// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/sim/simulation.h"

#include <arpa/inet.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/sim/cm_process.h"
#include "transport/softdc/sim/current_node.h"
#include "transport/softdc/sim/sim_fabric.h"
#include "transport/softdc/sim/sim_requester.h"

namespace sluice::softdc::sim {
namespace {

constexpr uint8_t kPort = 1;

void PostToAll(World& world, Node& node, ibv_event_type type) {
  world.Tell(node.index, Activity::kEvent);
  for (SimPort* port : node.ports) {
    if (port->dead()) continue;
    ibv_async_event event{};
    event.event_type = type;
    event.element.port_num = kPort;
    port->context().PostAsyncEvent(event);
  }
}

}  // namespace

CurrentNode& CurrentNode::OfThread() {
  static thread_local CurrentNode current;
  return current;
}

absl::StatusOr<std::unique_ptr<Simulation>> Simulation::Create(const Options& options) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  return std::unique_ptr<Simulation>(new Simulation(options));
}

Simulation::Simulation(const Options& options)
    : fabric_(std::make_shared<SimFabric>(options)),
      cm_network_(std::make_unique<CmNetwork>(fabric_->world())),
      cm_(options.nodes) {
  for (const TimedFault& fault : options.faults.timed) {
    After(fault.at_ns, [this, fault] { Do(fault.what, fault.node, fault.peer); });
  }
}

Simulation::~Simulation() {
  cm_.clear();
  cm_of_dead_.clear();
  for (Node& node : fabric_->world().nodes) {
    for (SimPort* port : node.ports) port->Die();
    node.up = false;
  }
}

cm::Engine& Simulation::CmEngine(uint32_t node) {
  std::unique_ptr<CmProcess>& process = cm_.at(node);
  if (process == nullptr) {
    process = std::make_unique<CmProcess>(*cm_network_, fabric_->world(),
                                          fabric_->world().nodes.at(node));
  }
  return process->engine();
}

// Makes all objects on the device dead.
void Simulation::KillDevice(uint32_t index) {
  World& world = fabric_->world();
  Node& node = world.nodes[index];
  for (SimPort* port : node.ports) port->Die();
  node.numbers.BeginLife(node.device->dials().features.reissue_dead_numbers);
  for (const Node::Held& held : node.held) Release(world, held.message);
  node.held.clear();
}

// Ends the present process of the node, together with its device objects.
void Simulation::EndLife(uint32_t index) {
  KillDevice(index);
  ++fabric_->world().nodes[index].life;
  if (cm_[index] == nullptr) return;
  cm_[index]->Die();
  cm_of_dead_.push_back(std::move(cm_[index]));
}

Simulation::As::As(Simulation& simulation, uint32_t node)
    : before_(CurrentNode::OfThread().simulation), node_before_(CurrentNode::OfThread().node) {
  CurrentNode::OfThread() = {.simulation = &simulation, .node = node};
}

Simulation::As::~As() { CurrentNode::OfThread() = {.simulation = before_, .node = node_before_}; }

uint32_t Simulation::nodes() const { return fabric_->world().options.nodes; }
ibv_device* Simulation::Device(uint32_t node) {
  return &fabric_->world().nodes.at(node).device->base;
}
ibv_gid Simulation::Gid(uint32_t node) { return GidOf(node); }
in_addr Simulation::Address(uint32_t node) { return {.s_addr = htonl(AddressOf(node))}; }

int64_t Simulation::NowNs() const { return fabric_->world().now_ns(); }
bool Simulation::Step() { return fabric_->world().clock.Step(); }

void Simulation::RunFor(int64_t ns) {
  EventQueue& clock = fabric_->world().clock;
  const int64_t end_ns = clock.now_ns() + ns;
  while (clock.StepUntil(end_ns)) {
  }
  clock.AdvanceTo(end_ns);
}

bool Simulation::RunUntil(const std::function<bool()>& done, int64_t limit_ns) {
  EventQueue& clock = fabric_->world().clock;
  const int64_t end_ns = clock.now_ns() + limit_ns;
  while (!done()) {
    if (!clock.StepUntil(end_ns)) return false;
  }
  return true;
}

uint64_t Simulation::After(int64_t delay_ns, std::function<void()> task) {
  return fabric_->After(delay_ns, std::move(task));
}

bool Simulation::Cancel(uint64_t timer) { return fabric_->Cancel(timer); }

void Simulation::Do(Happening what, uint32_t node, uint32_t peer) {
  switch (what) {
    case Happening::kKill:
      return Kill(node);
    case Happening::kRevive:
      return Revive(node);
    case Happening::kPause:
      return Pause(node);
    case Happening::kResume:
      return Resume(node);
    case Happening::kCutLink:
      return CutLink(node, peer);
    case Happening::kHealLink:
      return HealLink(node, peer);
    case Happening::kPortDown:
      return PortDown(node);
    case Happening::kPortUp:
      return PortUp(node);
    case Happening::kDeviceFatal:
      return DeviceFatal(node);
    case Happening::kUnplug:
      return Unplug(node);
    case Happening::kPlug:
      return Plug(node);
    case Happening::kAddressChange:
      return ChangeAddress(node);
  }
}

void Simulation::Kill(uint32_t index) {
  World& world = fabric_->world();
  Node& node = world.nodes.at(index);
  if (!node.up) return;
  world.Log(LogKind::kKill, index);
  node.up = false;
  EndLife(index);
}

void Simulation::Revive(uint32_t index) {
  World& world = fabric_->world();
  Node& node = world.nodes.at(index);
  if (node.up) return;
  node.up = true;
  node.paused = false;
  world.Log(LogKind::kRevive, index, node.life);
}

void Simulation::Pause(uint32_t index) {
  fabric_->world().Log(LogKind::kPause, index);
  fabric_->world().nodes.at(index).paused = true;
}

void Simulation::Resume(uint32_t index) {
  World& world = fabric_->world();
  Node& node = world.nodes.at(index);
  if (!node.paused) return;
  world.Log(LogKind::kResume, index);
  node.paused = false;
  fabric_->arrivals().Resume(node);
}

void Simulation::CutLink(uint32_t a, uint32_t b) {
  fabric_->world().Log(LogKind::kLink, a, b, 0);
  fabric_->world().faults.SetLink(a, b, /*up=*/false);
}

void Simulation::HealLink(uint32_t a, uint32_t b) {
  fabric_->world().Log(LogKind::kLink, a, b, 1);
  fabric_->world().faults.SetLink(a, b, /*up=*/true);
}

void Simulation::PortDown(uint32_t index) {
  Node& node = fabric_->world().nodes.at(index);
  if (!node.port_up) return;
  fabric_->world().Log(LogKind::kPort, index, 0);
  node.port_up = false;
  PostToAll(fabric_->world(), node, IBV_EVENT_PORT_ERR);
}

void Simulation::PortUp(uint32_t index) {
  Node& node = fabric_->world().nodes.at(index);
  if (node.port_up) return;
  fabric_->world().Log(LogKind::kPort, index, 1);
  node.port_up = true;
  PostToAll(fabric_->world(), node, IBV_EVENT_PORT_ACTIVE);
}

void Simulation::DeviceFatal(uint32_t index) {
  World& world = fabric_->world();
  Node& node = world.nodes.at(index);
  world.Log(LogKind::kFatal, index);
  PostToAll(fabric_->world(), node, IBV_EVENT_DEVICE_FATAL);
  EndLife(index);
}

void Simulation::Unplug(uint32_t index) {
  World& world = fabric_->world();
  Node& node = world.nodes.at(index);
  if (!node.plugged) return;
  world.Log(LogKind::kPlug, index, 0);
  PostToAll(fabric_->world(), node, IBV_EVENT_DEVICE_FATAL);
  node.plugged = node.port_up = false;
  KillDevice(index);
  if (cm_[index] != nullptr) cm_[index]->RemoveDevice();
}

void Simulation::Plug(uint32_t index) {
  Node& node = fabric_->world().nodes.at(index);
  if (node.plugged) return;
  fabric_->world().Log(LogKind::kPlug, index, 1);
  node.plugged = node.port_up = true;
}

bool Simulation::IsPlugged(uint32_t node) const { return fabric_->world().nodes.at(node).plugged; }

void Simulation::ChangeAddress(uint32_t index) {
  Node& node = fabric_->world().nodes.at(index);
  fabric_->world().Log(LogKind::kAddress, index);
  PostToAll(fabric_->world(), node, IBV_EVENT_GID_CHANGE);
  if (cm_[index] != nullptr) cm_[index]->engine().ChangeAddress();
}

void Simulation::SetGid(uint32_t index, uint32_t gid_index, const ibv_gid& gid) {
  Node& node = fabric_->world().nodes.at(index);
  if (gid_index >= node.gids.size()) node.gids.resize(gid_index + 1);
  node.gids[gid_index] = gid;
  fabric_->world().Log(LogKind::kGid, index, gid_index, gid.global.subnet_prefix,
                       gid.global.interface_id);
  PostToAll(fabric_->world(), node, IBV_EVENT_GID_CHANGE);
}

void Simulation::MakeDciDeadInRts(const ibv_qp* qp) {
  for (Node& node : fabric_->world().nodes) {
    for (SimPort* port : node.ports) {
      if (port->context().base() != qp->context) continue;
      SimRequester* requester = port->FindRequester(qp->qp_num);
      if (requester == nullptr) continue;
      fabric_->world().Log(LogKind::kStuck, node.index, qp->qp_num);
      requester->Stick();
    }
  }
}

bool Simulation::MakeDciDeadInRts(uint32_t index, uint32_t which) {
  for (SimPort* port : fabric_->world().nodes.at(index).ports) {
    for (SimRequester* requester : port->requesters()) {
      SendQueue& queue = requester->queue();
      const shm::TargetType target = queue.traits().target;
      const bool sends = target == shm::TargetType::kDct || target == shm::TargetType::kRc;
      if (!sends || queue.state() != IBV_QPS_RTS) continue;
      if (which-- != 0) continue;
      fabric_->world().Log(LogKind::kStuck, index, queue.number());
      requester->Stick();
      return true;
    }
  }
  return false;
}

void Simulation::FailNext(const RequestRule& rule) {
  FaultPlan plan;
  plan.requests = {rule};
  if (const absl::Status status = plan.Validate(nodes()); !status.ok()) {
    std::fprintf(stderr, "softdc sim: FailNext: %s\n", status.ToString().c_str());
    std::abort();
  }
  fabric_->world().faults.AddRule(rule);
}

MessageFaults& Simulation::message_faults() { return fabric_->world().faults.messages(); }
CmFaults& Simulation::cm_faults() { return fabric_->world().faults.cm(); }
void Simulation::SetObserver(Observer* observer) { fabric_->world().observer = observer; }
bool Simulation::HasRule(uint32_t node, uint32_t peer) const {
  return fabric_->world().faults.HasRule(node, peer, NowNs());
}
const EventLog& Simulation::log() const { return fabric_->world().log; }
const Counters& Simulation::counters() const { return fabric_->world().counters; }
uint64_t Simulation::events() const { return fabric_->world().clock.executed(); }

}  // namespace sluice::softdc::sim
