// SPDX-License-Identifier: Apache-2.0
//
// The state that librdmacm keeps outside the kernel: the objects behind rdma_event_channel, rdma_cm_id and
// rdma_cm_event. Each derives from the public struct, so the pointer that an application holds is the object.
//
// Threads       As in librdmacm: one thread at a time uses an id or an event. Exception: `mutex` guards the
//               count of acknowledgements.
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
  // Kernel side of `channel`. Kept if the application closes `channel` first.
  std::shared_ptr<Channel> kernel;
  uint32_t number = 0;  // number of the id in the kernel
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  // The queue pair could not change state: later REJECTED and DISCONNECTED are not reported.
  bool connect_error = false;
  ibv_ece local_ece{};
  ibv_ece remote_ece{};
  ibv_sa_path_rec path{};  // target of route.path_rec

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
  CmId* owner = nullptr;  // the destruction of this id waits for the acknowledgement
  uint8_t private_data[kRepPrivateDataBytes] = {};
};

// Returns 0, or -1 with errno set to `error`.
inline int Result(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

// Creates an id for the application.
CmId* NewCmId(CmChannel* channel, uint32_t number, void* context, rdma_port_space ps);

// Copies the addresses, device and path of the id from the kernel side. Returns 0 or an errno value.
int Refresh(CmId* id);

// cm_events.cc: translates an event of the kernel to the event of librdmacm. Returns false if the application
// must not get the event. The event then counts as acknowledged.
bool Translate(CmChannel* channel, const Event& from, CmEvent* to);

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_CM_OBJECTS_H_
