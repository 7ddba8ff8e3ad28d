// SPDX-License-Identifier: Apache-2.0
//
// AsyncEvents: the events of a context for ibv_get_async_event(3), and the state of their acknowledgement. The descriptor
// (ibv_context.async_fd) is readable exactly while an event waits.
//
// Threads       Any.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_ASYNC_EVENTS_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_ASYNC_EVENTS_H_

#include <infiniband/verbs.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "transport/softdc/loop/unique_fd.h"

namespace sluice::softdc {

class AsyncEvents {
 public:
  AsyncEvents();

  // -1 if the eventfd could not be created.
  int fd() const { return fd_.get(); }

  void Post(const ibv_async_event& event);
  // Takes the oldest event. Blocks until there is one, unless the descriptor is non-blocking. Returns 0, or -1 with errno.
  int Get(ibv_async_event* event);
  void Acknowledge(const ibv_async_event& event);

  // Call before `object` (ibv_cq, ibv_qp, ibv_srq) is destroyed. Drops its queued events. Blocks until the program has acknowledged all
  // events of the object that it fetched.
  void Retire(const void* object);

 private:
  static const void* ObjectOf(const ibv_async_event& event);
  void TakeToken();  // under mutex_, after an event left the queue

  UniqueFd fd_;  // eventfd; its count is the size of queue_
  std::mutex mutex_;
  std::condition_variable acknowledged_;
  std::deque<ibv_async_event> queue_;
  std::unordered_map<const void*, uint32_t> unacknowledged_;  // by object; no count is 0
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_ASYNC_EVENTS_H_
