// SPDX-License-Identifier: Apache-2.0
//
// Cq: a completion queue: one private ring for this process's own send completions, and one ring in
// shared memory per sender (InboundLink), each with one producer. poll_cq sweeps them. Within a
// ring the order is that of the producer; between rings there is none, as between senders on a NIC.
//
// Thread-safety: lock() covers the rings on the consuming side.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_CQ_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_CQ_H_

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "transport/softdc/shm/armed_word.h"
#include "transport/softdc/shm/cqe_ring.h"
#include "transport/softdc/shm/spin_lock.h"

namespace sluice::softdc {

class Context;
class Dci;
struct Wqe;

inline constexpr int kMaxCqe = 1 << 16;

// man ibv_create_comp_channel. The descriptor is an eventfd that counts events.
struct CompletionChannel {
  ibv_comp_channel base{};
  std::mutex mutex;
  std::vector<class Cq*> cqs;
  size_t next = 0;  // where the search for the CQ of an event begins

  static CompletionChannel* From(ibv_comp_channel* channel) {
    return reinterpret_cast<CompletionChannel*>(channel);
  }
};

class Cq {
 public:
  // `base` is what the user holds; it must stay first.
  ibv_cq base{};
  static Cq* From(ibv_cq* cq) { return reinterpret_cast<Cq*>(cq); }

  // Null with errno set.
  static std::unique_ptr<Cq> Create(Context& context, int cqe, CompletionChannel* channel,
                                    void* cq_context);
  ~Cq();

  int Poll(int max, ibv_wc* wc);
  int RequestNotify(bool solicited_only);
  // One completion event of this CQ was asked for by ibv_get_cq_event: true if there was one.
  bool TakeEvent();

  // A send completion of our own. Called under the DCI's lock.
  void PushSendCompletion(Dci& dci, const Wqe& wqe, uint64_t sequence);
  // Forgets the completions of a DCI that is reset or destroyed.
  void Purge(const Dci* dci);

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

  uint32_t id() const { return id_; }
  uint64_t armed_offset() const { return armed_offset_; }
  int event_fd() const { return base.channel == nullptr ? -1 : base.channel->fd; }
  std::atomic<int>& users() { return users_; }

  SpinLock& lock() { return lock_; }
  // Under lock(): the consumers of all rings, for repair.
  void AppendConsumers(std::vector<const shm::CqeConsumer*>* consumers) const;

 private:
  struct SendCompletion {
    ibv_wc wc;
    Dci* dci;
    uint64_t sequence;
  };
  struct Ring {
    uint32_t link_id;
    RingPlace place;
    shm::CqeConsumer consumer;
    bool dead = false;
  };
  Cq(Context& context, int cqe);
  static SendCompletion SendCompletionOf(Dci& dci, const Wqe& wqe, uint64_t sequence);
  int PollSends(int max, ibv_wc* wc) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  int PollRing(Ring& ring, int max, ibv_wc* wc) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  bool Translate(const shm::Cqe& cqe, ibv_wc* wc);
  void RemoveEmptyDeadRings() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void Fire();

  Context& context_;
  const uint32_t ring_capacity_;
  uint32_t id_ = 0;
  uint64_t armed_offset_ = 0;
  std::unique_ptr<shm::ArmedWord> armed_;
  std::atomic<int> users_{0};
  std::atomic<int> unfetched_events_{0};  // fired before the CQ was armed again, not yet asked for

  SpinLock lock_;
  std::vector<SendCompletion> sends_ ABSL_GUARDED_BY(lock_);  // ring buffer of cqe entries
  uint64_t send_head_ ABSL_GUARDED_BY(lock_) = 0;
  uint64_t send_tail_ ABSL_GUARDED_BY(lock_) = 0;
  bool overrun_ ABSL_GUARDED_BY(lock_) = false;
  std::vector<std::unique_ptr<Ring>> rings_ ABSL_GUARDED_BY(lock_);
  size_t next_ring_ ABSL_GUARDED_BY(lock_) = 0;  // fairness: where the next sweep begins
  size_t dead_rings_ ABSL_GUARDED_BY(lock_) = 0;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_CQ_H_
