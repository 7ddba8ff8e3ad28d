// SPDX-License-Identifier: Apache-2.0
//
// Context: one opening of softdc0, and the registries of what was made in it. The ibv_context
// handed out is embedded, so the inlines of verbs.h find their pointers where a provider would put
// them.
//
// Thread-safety: as libibverbs: any call from any thread, but an object is destroyed by one thread
// while no other uses it. Lock order: send queue, then link, then CQ, then SRQ; `mutex` of the
// context before none of them.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_CONTEXT_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_CONTEXT_H_

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "transport/softdc/loop/unique_fd.h"
#include "transport/softdc/shm/arena.h"
#include "transport/softdc/shm/number_space.h"

namespace sluice::softdc {

class Cq;
class Srq;
class Dci;
class Dct;
class InboundLinks;
class OutboundLinks;

inline constexpr uint32_t kMaxCqs = 4096;
inline constexpr uint32_t kMaxSrqs = 4096;
inline constexpr uint32_t kMaxSegments = 4096;

// Lets timers and tasks on the Loop thread find a DCI with waiting work, or learn that it is gone.
struct Continuation {
  std::mutex mutex;
  Dci* dci = nullptr;
};

struct Pd {
  ibv_pd base{};
  uint32_t number = 0;
  std::atomic<int> users{0};  // MRs, AHs, SRQs, QPs: dealloc_pd says EBUSY while there are any

  static Pd* From(ibv_pd* pd) { return reinterpret_cast<Pd*>(pd); }
};

// A memory file that peers may map. Entry 0 stands for private memory and is never filled.
struct Segment {
  UniqueFd fd;
  uint64_t size_bytes = 0;
  dev_t device = 0;
  ino_t inode = 0;
  uint32_t users = 0;  // regions registered in it
};

class Context {
 public:
  // Null with errno set.
  static Context* Open(ibv_device* device);
  ~Context();

  static Context* From(ibv_context* context);
  ibv_context* base() { return &shell_.verbs.context; }

  shm::Arena& arena() { return *arena_; }
  shm::MemoryRegionEntry* memory_regions() { return memory_regions_; }
  NumberSpace& numbers() { return *numbers_; }
  NumberSpace& reserved_numbers() { return *reserved_numbers_; }
  OutboundLinks& outbound() { return *outbound_; }
  InboundLinks& inbound() { return *inbound_; }
  uint64_t id() const { return id_; }

  // Ids are small and reused. Registration fails with 0 when the table is full.
  uint32_t AddCq(Cq* cq);
  void RemoveCq(uint32_t id);
  uint32_t AddSrq(Srq* srq);
  void RemoveSrq(uint32_t id);
  // Lock-free: the poller asks for each completion. Null when there is none.
  Srq* FindSrq(uint32_t id) const {
    return id < kMaxSrqs ? srqs_[id].load(std::memory_order_acquire) : nullptr;
  }

  void AddDct(uint32_t qp_number, Dct* dct);
  void RemoveDct(uint32_t qp_number);

  // Calls visit(dct or null) under the lock that RemoveDct needs.
  template <typename Visit>
  void WithDct(uint32_t qp_number, Visit visit) {
    std::lock_guard lock(mutex_);
    const auto it = dcts_.find(qp_number);
    visit(it == dcts_.end() ? nullptr : it->second);
  }
  // Calls visit(vector of CQs, null where there is none) under the lock that removing a CQ or an
  // SRQ needs.
  template <typename Visit>
  void WithCqs(Visit visit) {
    std::lock_guard lock(mutex_);
    visit(cqs_);
  }

  uint32_t NextPdNumber() { return next_pd_.fetch_add(1) + 1; }
  std::atomic<int>& objects() { return objects_; }  // PDs, CQs, channels: close_device says EBUSY

  // Segment table, for registration and for answering peers.
  uint32_t AddSegmentUse(UniqueFd fd, uint64_t size_bytes, dev_t device, ino_t inode);
  void DropSegmentUse(uint32_t segment);
  // Duplicate of the descriptor; empty when there is no such segment.
  UniqueFd SegmentFd(uint32_t segment, uint64_t* size_bytes);

  // A free place in the table of memory regions, or -1.
  int TakeMemoryRegion(uint32_t* key);
  void ReturnMemoryRegion(int index);

  // A DCI that waits for an answer about a target; KickWaiting, on the Loop thread, continues each
  // once.
  void AddWaiting(const std::shared_ptr<Continuation>& continuation);
  void KickWaiting();

  // Async events: the descriptor of ibv_context.async_fd counts them.
  void PostAsyncEvent(const ibv_async_event& event);
  int GetAsyncEvent(ibv_async_event* event);

 private:
  struct Shell {
    verbs_context verbs{};
    Context* self = nullptr;
  };
  explicit Context(uint64_t id);
  void FillOps(ibv_device* device);

  Shell shell_;
  const uint64_t id_;
  std::unique_ptr<shm::Arena> arena_;
  shm::MemoryRegionEntry* memory_regions_ = nullptr;  // in the arena; looked at for each message
  std::unique_ptr<OutboundLinks> outbound_;
  std::unique_ptr<InboundLinks> inbound_;
  std::unique_ptr<NumberSpace> numbers_;
  std::unique_ptr<NumberSpace> reserved_numbers_;
  UniqueFd async_fd_;
  std::atomic<uint32_t> next_pd_{0};
  std::atomic<int> objects_{0};
  std::array<std::atomic<Srq*>, kMaxSrqs> srqs_{};

  std::mutex waiting_mutex_;
  std::vector<std::shared_ptr<Continuation>> waiting_;

  std::mutex mutex_;
  std::vector<Cq*> cqs_;
  std::unordered_map<uint32_t, Dct*> dcts_;
  std::vector<Segment> segments_;
  std::vector<int> free_regions_;
  int next_region_ = 0;
  std::vector<uint8_t> region_tags_;
  std::deque<ibv_async_event> async_events_;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_CONTEXT_H_
