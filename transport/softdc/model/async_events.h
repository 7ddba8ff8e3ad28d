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

  // -1: it could not be had.
  int fd() const { return fd_.get(); }

  void Post(const ibv_async_event& event);
  // Waits, unless the descriptor is non-blocking. 0, or -1 with errno.
  int Get(ibv_async_event* event);
  void Acknowledge(const ibv_async_event& event);

  // The object (ibv_cq, ibv_qp, ibv_srq) goes: its events that nobody has asked for are dropped, and
  // the call returns when those that somebody has are acknowledged.
  void Retire(const void* object);

 private:
  static const void* ObjectOf(const ibv_async_event& event);
  void TakeToken();  // under mutex_, an event having left the queue

  UniqueFd fd_;  // counts as many as queue_ holds
  std::mutex mutex_;
  std::condition_variable acknowledged_;
  std::deque<ibv_async_event> queue_;
  std::unordered_map<const void*, uint32_t> unacknowledged_;  // by object; none of them is 0
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_ASYNC_EVENTS_H_
