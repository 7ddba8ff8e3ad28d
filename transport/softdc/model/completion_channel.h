// SPDX-License-Identifier: Apache-2.0
//
// Completion channels and the events of completion queues: ibv_create_comp_channel(3),
// ibv_req_notify_cq(3), ibv_get_cq_event(3), ibv_ack_cq_events(3).
//
// The channel's descriptor is an eventfd that counts events. Any process can write to it. The ArmedWord of each queue shows whether the
// event is from that queue.
//
// Threads       All functions may be called from any thread. A queue is destroyed only once.
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
  size_t next = 0;  // index at which the search for the CQ of an event begins

  static CompletionChannel* From(ibv_comp_channel* channel) {
    return reinterpret_cast<CompletionChannel*>(channel);
  }

  // Null with errno set.
  static CompletionChannel* Create(ibv_context* context);
  // Destroys the channel. Returns 0, or EBUSY while a CQ is attached to the channel.
  int Destroy();
  // Blocks until a CQ has an event, unless the descriptor is non-blocking. Returns that CQ and counts the event as fetched. Returns null
  // with errno on failure.
  Cq* NextEvent();
};

// The completion events of one CQ.
class CqEvents {
 public:
  explicit CqEvents(Cq& cq) : cq_(cq) {}

  void Attach(CompletionChannel* channel);
  // Removes the CQ from its channel. Blocks until all fetched events are acknowledged.
  void Detach();

  // Takes one event of the CQ and counts it as fetched. Returns false if there is none.
  bool Take();
  void Acknowledge(unsigned count);
  // Called by RequestNotify: keeps an event that fired and was not fetched.
  void KeepUnfetched() { unfetched_.fetch_add(1); }
  // Writes one event to the channel. The CQ must have a channel.
  void Fire();

 private:
  Cq& cq_;
  std::atomic<int> unfetched_{0};  // fired before the queue was armed again, not fetched yet

  std::mutex mutex_;
  std::condition_variable acknowledged_;
  uint32_t got_ = 0;  // events that ibv_get_cq_event returned; wraps, as acked_ does
  uint32_t acked_ = 0;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_COMPLETION_CHANNEL_H_
