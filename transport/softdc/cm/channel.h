// SPDX-License-Identifier: Apache-2.0
//
// Channel: an open /dev/infiniband/rdma_cm as the kernel has it: a queue of events, with a descriptor that polls readable while it is not
// empty. It owns ids.
//
// Ownership     A face (cm.h, ucma/) has a shared_ptr, so that a waiting thread survives a close.
// Threads       Await() and fd(): any. All else belongs to the engine and is guarded by its lock.
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

// As the kernel reports it: ids are numbers, `uid` is what the owner of the id gave along.
struct Event {
  uint64_t uid = 0;
  uint32_t id = 0;  // CONNECT_REQUEST: of the new id, with the listener's uid
  rdma_cm_event_type type{};
  int status = 0;
  bool is_ud = false;      // which member of `param` counts
  rdma_conn_param conn{};  // private_data is null: the bytes stand below
  rdma_ud_param ud{};
  uint8_t private_data_bytes = 0;
  uint8_t private_data[kRepPrivateDataBytes] = {};
  ibv_ece ece{};

  // The engine's.
  Id* owner = nullptr;    // counts it as reported
  Id* request = nullptr;  // CONNECT_REQUEST: the new id, which goes away with an unread event
};

// A bounded-by-construction queue: at most a few events per id, and a listener's backlog of
// requests.
class Channel {
 public:
  explicit Channel(Engine* engine) : engine_(engine) {}

  // 0 or errno.
  int Open();

  Engine* engine() const { return engine_; }
  int fd() const { return event_fd_.get(); }

  // Sleeps until an event may be there. 0, or errno: EAGAIN when the descriptor is O_NONBLOCK,
  // EINTR.
  int Await() const;

  void Push(std::unique_ptr<Event> event);
  const Event* Front() const { return queue_.empty() ? nullptr : queue_.front().get(); }
  std::unique_ptr<Event> Pop();  // nullptr: empty

  // Takes out all events that `id` owns or that announce it, in order.
  std::deque<std::unique_ptr<Event>> Extract(const Id* id);

 private:
  void SetReadable(bool readable);

  Engine* const engine_;
  UniqueFd event_fd_;  // non-zero, hence readable, exactly while `queue_` is not empty
  std::deque<std::unique_ptr<Event>> queue_;
};

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_CHANNEL_H_
