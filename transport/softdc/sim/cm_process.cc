// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/sim/cm_process.h"

#include <utility>

#include "transport/softdc/model/mtu.h"
#include "transport/softdc/sim/sim_fabric.h"
#include "transport/softdc/sim/simulation.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc::sim {

CmProcess::CmProcess(CmNetwork& network, World& world, Node& node)
    : node_(node), timers_(world, node) {
  cm::DeviceHooks hooks;
  hooks.context = [this] { return DeviceContext(); };
  hooks.pd = [this] { return pd_; };
  hooks.node_guid = node.device->node_guid();
  hooks.verbs = &Simulation::Verbs();
  hooks.path_mtu = MtuOf(node.device->dials().port.active_mtu);
  engine_ = std::make_unique<cm::Engine>(std::move(hooks), &timers_, node.device->dials().cm);
  engine_->SetSeed(world.random.Next());
  auto fabric = std::make_unique<SimCmFabric>(network, node, *engine_);
  fabric_ = fabric.get();
  engine_->SetFabric(std::move(fabric));
}

CmProcess::~CmProcess() {
  engine_.reset();
  Close(context_, pd_);
  for (const auto& [context, pd] : removed_) Close(context, pd);
}

// Existing ids keep their old device. A device that is plugged in later is a new device.
void CmProcess::RemoveDevice() {
  engine_->RemoveDevice();
  if (context_ != nullptr) removed_.emplace_back(context_, pd_);
  context_ = nullptr;
  pd_ = nullptr;
}

void CmProcess::Close(ibv_context* context, ibv_pd* pd) {
  if (context == nullptr) return;
  // If the application still has objects on the device, DeallocPd fails, and the objects keep the device.
  if (pd != nullptr && DeallocPd(pd) != 0) return;
  CloseDevice(context);
}

ibv_context* CmProcess::DeviceContext() {
  if (context_ != nullptr) return context_;
  context_ = OpenDevice(&node_.device->base);
  if (context_ != nullptr) pd_ = AllocPd(context_);
  return context_;
}

}  // namespace sluice::softdc::sim
