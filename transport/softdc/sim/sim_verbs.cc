// SPDX-License-Identifier: Apache-2.0
//
// The table of functions for simulations: that of softdc, with two differences. Calls that name no object act
// for the node of the thread. Descriptors never block.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cerrno>

#include "transport/softdc/cm/process_engine.h"
#include "transport/softdc/sim/current_node.h"
#include "transport/softdc/sim/simulation.h"
#include "transport/softdc/verbs.h"

namespace sluice::softdc::sim {
namespace {

void NeverBlock(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

ibv_device** GetDeviceList(int* count) {
  const CurrentNode& current = CurrentNode::OfThread();
  const bool any = current.simulation != nullptr && current.simulation->IsPlugged(current.node);
  auto** list =
      new ibv_device* [2] { any ? current.simulation->Device(current.node) : nullptr, nullptr };
  if (count != nullptr) *count = any ? 1 : 0;
  return list;
}

ibv_context* OpenDevice(ibv_device* device) {
  ibv_context* context = softdc::Verbs().open_device(device);
  if (context != nullptr) NeverBlock(context->async_fd);
  return context;
}

ibv_comp_channel* CreateCompChannel(ibv_context* context) {
  ibv_comp_channel* channel = softdc::Verbs().create_comp_channel(context);
  if (channel != nullptr) NeverBlock(channel->fd);
  return channel;
}

rdma_event_channel* CreateEventChannel() {
  const CurrentNode& current = CurrentNode::OfThread();
  if (current.simulation == nullptr) {
    errno = ENODEV;
    return nullptr;
  }
  cm::UseEngine(&current.simulation->CmEngine(current.node));
  rdma_event_channel* channel = softdc::Verbs().cm_create_event_channel();
  cm::UseEngine(nullptr);
  if (channel != nullptr) NeverBlock(channel->fd);
  return channel;
}

// A synchronous id would wait for its peer, which cannot run in the meantime.
int CreateId(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space ps) {
  if (channel != nullptr) return softdc::Verbs().cm_create_id(channel, id, context, ps);
  errno = EOPNOTSUPP;
  return -1;
}

}  // namespace

const verbs::VerbsApi& Simulation::Verbs() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = softdc::Verbs();
    api.get_device_list = &GetDeviceList;
    api.open_device = &OpenDevice;
    api.create_comp_channel = &CreateCompChannel;
    api.cm_create_event_channel = &CreateEventChannel;
    api.cm_create_id = &CreateId;
    return api;
  }();
  return table;
}

}  // namespace sluice::softdc::sim
