// SPDX-License-Identifier: Apache-2.0
//
// Cq: a completion queue. A private ring holds the completions that this process makes itself: of its own sends, and of receives that a
// fabric delivers inside the process. In addition, each sender (InboundLink) has a ring in shared memory, of which it is the only producer.
// Polling visits all rings. Within a ring, completions keep the order of the producer. Between rings there is no order, as between senders
// on a NIC.
//
// A full queue (docs/softdc.md, "Full completion queues"): the private ring has exactly `cqe` entries. The ring of a sender has room for at
// least as many, unless the ring budget is short (shm/ring_budget.h). A completion without room overruns the queue: IBV_EVENT_CQ_ERR is
// posted once, and this and all later completions are lost. If the dial full_receive_cq says so, senders wait instead. With
// IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, only completions without room are lost, and the queue continues.
//
// Polling is in cq_poll.cc, extended polling (ibv_create_cq_ex(3)) in cq_ex.cc, the rest in cq.cc.
//
// Threads       lock() guards the consuming side of the rings. Extended polling has another lock, held from start_poll to end_poll, so that
//               the polling thread may post in between.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_CQ_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_CQ_H_

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "transport/softdc/model/completion_channel.h"
#include "transport/softdc/shm/armed_word.h"
#include "transport/softdc/shm/cqe_ring.h"
#include "transport/softdc/shm/spin_lock.h"

namespace sluice::softdc {

class Context;
class Srq;
struct FlushedReceive;

// Flags that ibv_create_cq_ex accepts. All other flags are for packets that softdc does not have.
inline constexpr uint64_t kCqWcFlags = uint64_t{IBV_WC_STANDARD_FLAGS} |
                                       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

class Cq {
 public:
  // The user's handle; must stay first. ibv_cq is the beginning of ibv_cq_ex.
  union {
    ibv_cq_ex ex{};
    ibv_cq base;
  };
  static Cq* From(ibv_cq* cq) { return reinterpret_cast<Cq*>(cq); }
  static Cq* From(ibv_cq_ex* cq) { return reinterpret_cast<Cq*>(cq); }

  struct Shape {
    uint32_t cqe = 0;
    CompletionChannel* channel = nullptr;  // or null
    void* cq_context = nullptr;
    bool extended = false;
    uint64_t wc_flags = 0;  // IBV_WC_EX_WITH_*, if extended
    bool single_threaded = false;
    bool ignore_overrun = false;
  };
  // Null with errno set.
  static std::unique_ptr<Cq> Create(Context& context, const Shape& shape);
  ~Cq();

  int Poll(int max, ibv_wc* wc);
  int RequestNotify(bool solicited_only);

  // Adds a completion of a send queue of this process. When it is polled, *released becomes sequence + 1: the slots up to `sequence` are
  // free. `released` null: no slot is freed. Called under the send queue's lock.
  void PushSend(const ibv_wc& wc, bool solicited, std::atomic<uint64_t>* released,
                uint64_t sequence);
  // Adds a receive completion that this process delivers itself. Its WQE is from Srq::Take. A kCqeUnused entry instead returns its WQE to
  // the SRQ.
  void PushReceive(const shm::Cqe& cqe);
  // Adds the flushed WQEs of a receive queue (Srq::FlushTo). They are polled after all completions that senders have added.
  void FlushReceives(Srq& receives);

  // Drops the completions of a send queue that is reset or destroyed.
  void PurgeSends(const std::atomic<uint64_t>* released);
  // Drops the receive completions of a queue pair. `shared`: the queue pair has no receive queue of its own. Receive WQEs that senders
  // returned unused are then posted again.
  void PurgeReceives(uint32_t qp_number, bool shared);
  // Drops the completions of an SRQ that is being destroyed, because its id may be reused. When it returns, no poll of this queue uses the
  // SRQ.
  void ForgetSrq(uint32_t srq_id);

  // ibv_resize_cq(3). 0 or errno.
  int Resize(int cqe);

  // Returns the ring of a sender; the first call allocates it. Offset 0: out of memory.
  struct RingPlace {
    uint64_t offset = 0;
    uint64_t size_bytes = 0;
    uint32_t capacity = 0;
  };
  RingPlace RingFor(uint32_t link_id);
  // Called when a sender is gone: removes its ring as soon as the ring is empty. Fires the event if the sender died before it could.
  void LinkDied(uint32_t link_id);

  // Posts IBV_EVENT_CQ_ERR if an overrun is not reported yet. Called by Push, and by the firmware thread.
  void CollectOverrun();

  uint32_t id() const { return id_; }
  uint64_t armed_offset() const { return armed_offset_; }
  int event_fd() const { return base.channel == nullptr ? -1 : base.channel->fd; }
  std::atomic<int>& users() { return users_; }
  CqEvents& events() { return events_; }

  SpinLock& lock() { return lock_; }
  // Appends the consumers of all rings, for repair. Called under lock().
  void AppendConsumers(std::vector<const shm::CqeConsumer*>* consumers) const;

 private:
  friend struct CqExOps;
  // An entry of the private ring.
  struct Local {
    ibv_wc wc;
    int64_t timestamp_ns;
    std::atomic<uint64_t>* released;  // of a send
    uint64_t sequence;
    uint32_t srq_id;  // of a receive whose WQE is still outstanding; 0: none
    uint32_t wqe_index;
  };
  struct Ring {
    uint32_t link_id;
    RingPlace place;
    shm::CqeConsumer consumer;
    bool dead = false;
  };
  // The current completion of extended polling; guarded by ex_lock_.
  struct Current {
    ibv_wc wc{};
    int64_t timestamp_ns = 0;
  };

  Cq(Context& context, const Shape& shape);
  void FillExOps(uint64_t wc_flags);
  // Returns the present time, or 0 if the queue reports no timestamps.
  int64_t TimestampNs() const;
  // As Poll; also returns the time of each completion.
  int PollStamped(int max, ibv_wc* wc, int64_t* timestamps_ns);
  // Returns whether there is nothing to poll, the common case of a polling loop.
  bool Quiet() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Polls a queue that is not quiet.
  [[gnu::noinline]] int PollBusy(int max, ibv_wc* wc) ABSL_UNLOCK_FUNCTION(lock_);
  // `timestamps_ns` may be null, here and below.
  int PollLocked(int max, ibv_wc* wc, int64_t* timestamps_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  int PollLocal(int max, ibv_wc* wc, int64_t* timestamps_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  int PollFlushed(int max, ibv_wc* wc, int64_t* timestamps_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  int PollRing(Ring& ring, int max, ibv_wc* wc, int64_t* timestamps_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  bool IsHeldBack(uint32_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Returns whether the first entry of some ring invalidates the key of a window.
  bool HasInvalidation() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void Wake();  // fires the event if the queue is armed, solicited or not
  void AppendFlushed(const FlushedReceive& flushed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void Push(const Local& local, bool solicited);
  // `size`: a power of two, at least the number of entries in the private ring.
  void MoveLocalTo(size_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Drops the completions of the private ring for which drop(const Local&) returns true.
  template <typename Predicate>
  void DropLocal(Predicate drop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Called when the queue is destroyed: returns the receive WQEs of unread completions to their SRQs.
  void ForgetUnread();
  void RemoveEmptyDeadRings() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);

  Context& context_;
  const bool single_threaded_;
  const bool stamped_;
  uint32_t ring_capacity_;
  uint32_t id_ = 0;
  uint64_t armed_offset_ = 0;
  std::unique_ptr<shm::ArmedWord> armed_;
  std::atomic<int> users_{0};
  CqEvents events_{*this};

  SpinLock ex_lock_;
  Current current_;

  // Members that a poll of a quiet queue reads, in one cache line.
  alignas(64) SpinLock lock_;
  bool aside_ ABSL_GUARDED_BY(lock_) = false;  // flushed_ may have entries
  size_t dead_rings_ ABSL_GUARDED_BY(lock_) = 0;
  uint64_t local_head_ ABSL_GUARDED_BY(lock_) = 0;
  uint64_t local_tail_ ABSL_GUARDED_BY(lock_) = 0;
  std::vector<std::unique_ptr<Ring>> rings_ ABSL_GUARDED_BY(lock_);

  // Fairness: the ring at which the next poll begins.
  size_t next_ring_ ABSL_GUARDED_BY(lock_) = 0;
  std::vector<Local> local_ ABSL_GUARDED_BY(lock_);   // ring buffer; its size is a power of two
  std::deque<Local> flushed_ ABSL_GUARDED_BY(lock_);  // at most as many as were posted
  std::atomic<bool> held_back_{false};                // a poll has held a completion back

  friend class CqEvents;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_CQ_H_
