// SPDX-License-Identifier: Apache-2.0
//
// Completion channels and the events of completion queues: ibv_create_comp_channel(3),
// ibv_req_notify_cq(3), ibv_get_cq_event(3), ibv_ack_cq_events(3).
//
// The channel's descriptor is an eventfd that counts events; any process rings it. Each queue's ArmedWord
// shows whether the event is its own.
//
// Threads       All of it from any thread, but that a queue is destroyed once.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_COMPLETION_CHANNEL_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_COMPLETION_CHANNEL_H_

#include <infiniband/verbs.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace sluice::softdc {

class Cq;

struct CompletionChannel {
  ibv_comp_channel base{};  // must stay first
  std::mutex mutex;
  std::vector<Cq*> cqs;
  size_t next = 0;  // where the search for the CQ of an event begins

  static CompletionChannel* From(ibv_comp_channel* channel) {
    return reinterpret_cast<CompletionChannel*>(channel);
  }

  // Null with errno set.
  static CompletionChannel* Create(ibv_context* context);
  // EBUSY while a queue reports here.
  int Destroy();
  // Waits, unless the descriptor is non-blocking. The queue whose event it is, counted as got; null
  // with errno.
  Cq* NextEvent();
};

// One queue's part in it.
class CqEvents {
 public:
  explicit CqEvents(Cq& cq) : cq_(cq) {}

  void Attach(CompletionChannel* channel);
  // Waits until all events that were got are acknowledged, then leaves the channel.
  void Detach();

  // One event was asked for: true if there is one.
  bool Take();
  void Acknowledge(unsigned count);
  // Under RequestNotify: an event that fired and was not asked for keeps its place.
  void KeepUnfetched() { unfetched_.fetch_add(1); }
  // Rings the channel. There must be one.
  void Fire();

 private:
  Cq& cq_;
  std::atomic<int> unfetched_{0};  // fired before the queue was armed again, not yet asked for

  std::mutex mutex_;
  std::condition_variable acknowledged_;
  uint32_t got_ = 0;  // by ibv_get_cq_event; wraps with acked_
  uint32_t acked_ = 0;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_COMPLETION_CHANNEL_H_
