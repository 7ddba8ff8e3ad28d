// SPDX-License-Identifier: Apache-2.0
//
// CmProcess: RDMA_CM of one life of a node: an engine, its way into the network, its timers, and
// the device that its ids share, opened when it is first asked for.
//
// Threads       One thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_CM_PROCESS_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_CM_PROCESS_H_

#include <infiniband/verbs.h>

#include <memory>
#include <utility>
#include <vector>

#include "transport/softdc/cm/engine.h"
#include "transport/softdc/sim/cm_network.h"

namespace sluice::softdc::sim {

class CmProcess {
 public:
  // All outlive it.
  CmProcess(CmNetwork& network, World& world, Node& node);
  // Its ids and channels are gone, or are never used again.
  ~CmProcess();
  CmProcess(const CmProcess&) = delete;
  CmProcess& operator=(const CmProcess&) = delete;

  cm::Engine& engine() { return *engine_; }
  // The process is killed: its peers are told, and it hears nothing any more.
  void Die() { fabric_->Die(); }
  // The device is gone, the process lives on.
  void RemoveDevice();

 private:
  ibv_context* DeviceContext();
  static void Close(ibv_context* context, ibv_pd* pd);

  Node& node_;
  SimTimers timers_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  std::vector<std::pair<ibv_context*, ibv_pd*>> removed_;
  std::unique_ptr<cm::Engine> engine_;
  SimCmFabric* fabric_ = nullptr;  // the engine's
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_CM_PROCESS_H_
