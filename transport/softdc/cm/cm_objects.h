// SPDX-License-Identifier: Apache-2.0
//
// What librdmacm keeps beyond the kernel: the objects behind rdma_event_channel, rdma_cm_id and
// rdma_cm_event. Each derives from the public struct, so that the pointer an application holds is
// the object.
//
// Threads       As librdmacm's: an id and an event are used by one thread at a time, but for the count of acknowledgements, which
//               `mutex` guards.
#ifndef SLUICE_TRANSPORT_SOFTDC_CM_CM_OBJECTS_H_
#define SLUICE_TRANSPORT_SOFTDC_CM_CM_OBJECTS_H_

#include <rdma/rdma_cma.h>

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "transport/softdc/cm/engine.h"

namespace sluice::softdc::cm {

struct CmChannel : rdma_event_channel {
  std::shared_ptr<Channel> kernel;

  static CmChannel* Of(rdma_event_channel* channel) { return static_cast<CmChannel*>(channel); }
};

struct CmId : rdma_cm_id {
  std::shared_ptr<Channel> kernel;  // that of `channel`; stays when the application closes it first
  uint32_t number = 0;              // the kernel's name for it
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  bool connect_error = false;  // its queue pair could not follow: what comes next is not told
  ibv_ece local_ece{};
  ibv_ece remote_ece{};
  ibv_sa_path_rec path{};  // what route.path_rec points to

  std::mutex mutex;
  std::condition_variable acked;
  uint32_t events_acked = 0;

  Engine& engine() const { return *kernel->engine(); }
  void AwaitAcks(uint32_t events_reported) {
    std::unique_lock<std::mutex> lock(mutex);
    acked.wait(lock, [&] { return events_acked >= events_reported; });
  }

  static CmId* Of(rdma_cm_id* id) { return static_cast<CmId*>(id); }
};

struct CmEvent : rdma_cm_event {
  CmId* owner = nullptr;  // whose destruction waits for the acknowledgement
  uint8_t private_data[kRepPrivateDataBytes] = {};
};

// 0, or -1 with errno.
inline int Result(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

// An id of the application's; nullptr and errno when it has no device to be on.
CmId* NewCmId(CmChannel* channel, uint32_t number, void* context, rdma_port_space ps);

// Takes over what the kernel knows about the id: addresses, device, path. 0 or an errno value.
int Refresh(CmId* id);

// cm_events.cc: makes what librdmacm makes of a kernel's event. False: the application is not told,
// and the event counts as acknowledged.
bool Translate(CmChannel* channel, const Event& from, CmEvent* to);

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_CM_OBJECTS_H_
