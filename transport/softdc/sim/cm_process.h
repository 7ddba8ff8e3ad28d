// SPDX-License-Identifier: Apache-2.0
//
// CmProcess: RDMA_CM of one life of a node: an engine, its fabric, its timers, and the device that its ids
// share. The device is opened at the first use.
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
  // All arguments must outlive the object.
  CmProcess(CmNetwork& network, World& world, Node& node);
  // All ids and channels must be destroyed, or must not be used again.
  ~CmProcess();
  CmProcess(const CmProcess&) = delete;
  CmProcess& operator=(const CmProcess&) = delete;

  cm::Engine& engine() { return *engine_; }
  // Called when the process is killed: ends its wires for its peers. The process receives no further events.
  void Die() { fabric_->Die(); }
  // Removes the device. The process continues.
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
  SimCmFabric* fabric_ = nullptr;  // owned by the engine
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_CM_PROCESS_H_
