// SPDX-License-Identifier: Apache-2.0
//
// Channel: an open /dev/infiniband/rdma_cm as in the kernel: a queue of events, with a descriptor that polls
// readable while the queue is not empty. It owns ids.
//
// Ownership     An interface (cm.h, ucma/) has a shared_ptr, so that a waiting thread survives a close.
// Threads       Await() and fd(): any. Everything else belongs to the engine and is guarded by its lock.
#ifndef SLUICE_TRANSPORT_SOFTDC_CM_CHANNEL_H_
#define SLUICE_TRANSPORT_SOFTDC_CM_CHANNEL_H_

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <deque>
#include <memory>

#include "transport/softdc/cm/wire_message.h"
#include "transport/softdc/loop/unique_fd.h"

namespace sluice::softdc::cm {

class Engine;
struct Id;

// An event as the kernel reports it: ids are numbers. `uid` is the value that the owner of the id passed.
struct Event {
  uint64_t uid = 0;
  uint32_t id = 0;  // CONNECT_REQUEST: number of the new id; `uid` is that of the listener
  rdma_cm_event_type type{};
  int status = 0;
  bool is_ud = false;      // true: `ud` is valid; false: `conn` is valid
  rdma_conn_param conn{};  // private_data is null: the bytes are in `private_data` below
  rdma_ud_param ud{};
  uint8_t private_data_bytes = 0;
  uint8_t private_data[kRepPrivateDataBytes] = {};
  ibv_ece ece{};

  // Used by the engine.
  Id* owner = nullptr;    // counts the event as reported
  Id* request = nullptr;  // CONNECT_REQUEST: the new id, which is destroyed with an unread event
};

// The length of the queue is limited: at most a few events per id, and the backlog of requests of a listener.
class Channel {
 public:
  explicit Channel(Engine* engine) : engine_(engine) {}

  // Returns 0 or an errno.
  int Open();

  Engine* engine() const { return engine_; }
  int fd() const { return event_fd_.get(); }

  // Blocks until an event may be available. Returns 0 or an errno: EAGAIN if the descriptor is O_NONBLOCK,
  // EINTR.
  int Await() const;

  void Push(std::unique_ptr<Event> event);
  const Event* Front() const { return queue_.empty() ? nullptr : queue_.front().get(); }
  std::unique_ptr<Event> Pop();  // nullptr: empty

  // Removes and returns all events that `id` owns or that announce `id`, in order.
  std::deque<std::unique_ptr<Event>> Extract(const Id* id);

 private:
  void SetReadable(bool readable);

  Engine* const engine_;
  UniqueFd event_fd_;  // non-zero, hence readable, while `queue_` is not empty
  std::deque<std::unique_ptr<Event>> queue_;
};

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_CHANNEL_H_
