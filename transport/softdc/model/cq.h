// SPDX-License-Identifier: Apache-2.0
//
// Cq: a completion queue: one private ring for what this process completes itself (its own sends,
// and receives that a fabric delivers inside the process), and one ring in shared memory per sender
// (InboundLink), each with one producer. Polling sweeps them. Within a ring the order is that of the
// producer; between rings there is none, as between senders on a NIC.
//
// A full queue (docs/softdc.md, "Full completion queues"): the private ring has exactly `cqe`
// entries, a sender's ring room for at least as many. A completion that finds no room overruns the
// queue: IBV_EVENT_CQ_ERR once, and this and all later completions are lost. The dial
// full_receive_cq lets senders wait instead; IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN loses completions
// without an end.
//
// Polling is in cq_poll.cc, extended polling (ibv_create_cq_ex(3)) in cq_ex.cc, the rest in cq.cc.
//
// Threads       Lock() covers the rings on the consuming side; extended polling has a lock of its own from start_poll to end_poll, so
//               that the poller may post in between.
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

// What ibv_create_cq_ex may ask for; the others are for packets that softdc does not have.
inline constexpr uint64_t kCqWcFlags = uint64_t{IBV_WC_STANDARD_FLAGS} |
                                       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

class Cq {
 public:
  // What the user holds; must stay first. ibv_cq is the beginning of ibv_cq_ex.
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

  // A completion of a send queue of this process. When it is polled, *released becomes sequence + 1:
  // the slots up to it are free. Null `released`: nothing to free. Called under the send queue's
  // lock.
  void PushSend(const ibv_wc& wc, bool solicited, std::atomic<uint64_t>* released,
                uint64_t sequence);
  // A receive completion that this process delivers itself, of a WQE that Srq::Take gave (or a
  // kCqeUnused one, which goes back).
  void PushReceive(const shm::Cqe& cqe);
  // Takes what is flushed of a receive queue (Srq::FlushTo). It leaves after everything that senders have
  // completed before.
  void FlushReceives(Srq& receives);

  // Forgets the completions of a send queue that is reset or destroyed.
  void PurgeSends(const std::atomic<uint64_t>* released);
  // The same for what a queue pair has received. `shared`: it has no receive queue of its own, and receives that came back unused
  // are posted again.
  void PurgeReceives(uint32_t qp_number, bool shared);
  // An SRQ goes, and its id may be given out again: forgets the completions that name it, and returns
  // when no poll of this queue uses it any more.
  void ForgetSrq(uint32_t srq_id);

  // ibv_resize_cq(3). 0 or errno.
  int Resize(int cqe);

  // The ring for a sender, made when it is first asked for. 0: no memory.
  struct RingPlace {
    uint64_t offset = 0;
    uint64_t size_bytes = 0;
    uint32_t capacity = 0;
  };
  RingPlace RingFor(uint32_t link_id);
  // Nothing more will come from that sender: the ring goes once it is polled empty. Wakes a sleeper
  // that the sender had promised to wake.
  void LinkDied(uint32_t link_id);

  // Firmware thread: a sender may have found the queue full. Posts the event if so.
  void CollectOverrun();

  uint32_t id() const { return id_; }
  uint64_t armed_offset() const { return armed_offset_; }
  int event_fd() const { return base.channel == nullptr ? -1 : base.channel->fd; }
  std::atomic<int>& users() { return users_; }
  CqEvents& events() { return events_; }

  SpinLock& lock() { return lock_; }
  // Under lock(): the consumers of all rings, for repair.
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
  // What extended polling stands at; under ex_lock_.
  struct Current {
    ibv_wc wc{};
    int64_t timestamp_ns = 0;
  };

  Cq(Context& context, const Shape& shape);
  void FillExOps(uint64_t wc_flags);
  // When a completion happens, if somebody wants to know.
  int64_t TimestampNs() const;
  // With the times at which completions happened.
  int PollStamped(int max, ibv_wc* wc, int64_t* timestamps_ns);
  // Nothing to poll: what a program that waits finds nearly each time.
  bool Quiet() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Poll with something to poll.
  [[gnu::noinline]] int PollBusy(int max, ibv_wc* wc) ABSL_UNLOCK_FUNCTION(lock_);
  // `timestamps_ns` may be null, here and below.
  int PollLocked(int max, ibv_wc* wc, int64_t* timestamps_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  int PollLocal(int max, ibv_wc* wc, int64_t* timestamps_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  int PollFlushed(int max, ibv_wc* wc, int64_t* timestamps_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  int PollRing(Ring& ring, int max, ibv_wc* wc, int64_t* timestamps_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  bool IsHeldBack(uint32_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Whether what stands first in some ring takes a window's key back.
  bool HasInvalidation() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void Wake();  // whoever sleeps, solicited or not
  void AppendFlushed(const FlushedReceive& flushed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void Push(const Local& local, bool solicited);
  // `size`: a power of two, no less than what stands in the private ring.
  void MoveLocalTo(size_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Drops the completions of the private ring that drop(const Local&) is true for.
  template <typename Predicate>
  void DropLocal(Predicate drop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Nobody will poll: gives the receive WQEs of what is unread back to their SRQs.
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

  // What a poll of a quiet queue looks at, in one line.
  alignas(64) SpinLock lock_;
  bool aside_ ABSL_GUARDED_BY(lock_) = false;  // flushed_ may hold something
  size_t dead_rings_ ABSL_GUARDED_BY(lock_) = 0;
  uint64_t local_head_ ABSL_GUARDED_BY(lock_) = 0;
  uint64_t local_tail_ ABSL_GUARDED_BY(lock_) = 0;
  std::vector<std::unique_ptr<Ring>> rings_ ABSL_GUARDED_BY(lock_);

  size_t next_ring_ ABSL_GUARDED_BY(lock_) = 0;       // fairness: where the next sweep begins
  std::vector<Local> local_ ABSL_GUARDED_BY(lock_);   // ring buffer; a power of two
  std::deque<Local> flushed_ ABSL_GUARDED_BY(lock_);  // no more than were posted
  std::atomic<bool> held_back_{false};                // some poll has left a completion where it is

  friend class CqEvents;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_CQ_H_
