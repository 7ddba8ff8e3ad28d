// SPDX-License-Identifier: Apache-2.0
//
// Context: one opening of a device, and the registries of what was made in it. The ibv_context
// handed out is embedded, so the inlines of verbs.h find their pointers where a provider would put
// them.
//
// Threads       As libibverbs: any call from any thread, but an object is destroyed by one thread while no other uses it. Lock order:
//               the context's own mutex, or a QpLife's; then send queue, link, CQ, SRQ; then the mutex of async events.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_CONTEXT_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_CONTEXT_H_

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/softdc/loop/unique_fd.h"
#include "transport/softdc/model/async_events.h"
#include "transport/softdc/model/fabric.h"
#include "transport/softdc/model/mkey.h"
#include "transport/softdc/model/soft_device.h"
#include "transport/softdc/shm/arena.h"
#include "transport/softdc/shm/ring_budget.h"

namespace sluice::softdc {

class Cq;
class Srq;
class Responder;

inline constexpr uint32_t kMaxCqs = 4096;
// Receive queues of queue pairs among them.
inline constexpr uint32_t kMaxSrqs = 1 << 18;
inline constexpr uint32_t kMaxSegments = 4096;
inline constexpr uint32_t kRestingRegions = 256;  // places of regions that wait to be used again

struct Pd {
  ibv_pd base{};
  uint32_t number = 0;
  std::atomic<int> users{0};  // MRs, AHs, SRQs, QPs: dealloc_pd says EBUSY while there are any
  Pd* parent = nullptr;       // of a parent domain: the PD it stands on, whose number it has
  ibv_td* td = nullptr;       // of a parent domain, or null

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
  static Context* Open(SoftDevice& device);
  ~Context();

  static Context* From(ibv_context* context);
  ibv_context* base() { return &shell_.verbs.context; }

  shm::Arena& arena() { return *arena_; }
  shm::RingBudget& ring_budget() { return ring_budget_; }
  MkeyTable& mkeys() { return *mkeys_; }
  shm::MemoryRegionEntry* memory_regions() { return memory_regions_; }
  std::span<const shm::MemoryRegionEntry> regions() const {
    return {memory_regions_, shm::kMaxMemoryRegions};
  }
  SoftDevice& device() const { return device_; }
  const Dials& dials() const { return device_.dials(); }
  FabricPort& port() { return *port_; }
  uint64_t id() const { return id_; }

  // Ids are small and reused. Registration fails with 0 when the table is full.
  uint32_t AddCq(Cq* cq);
  void RemoveCq(uint32_t id);
  // An SRQ is found once it is added, under an id that was taken for it, and until it is removed.
  uint32_t TakeSrqId();
  void AddSrq(uint32_t id, Srq* srq);
  void RemoveSrq(uint32_t id);
  // Lock-free: the poller asks for each completion. Null when there is none.
  Srq* FindSrq(uint32_t id) const {
    if (id >= kMaxSrqs) return nullptr;
    const SrqPage* page = srq_pages_[id / kSrqsPerPage].load(std::memory_order_acquire);
    return page == nullptr ? nullptr : (*page)[id % kSrqsPerPage].load(std::memory_order_acquire);
  }

  // A responder that is open is found by its number.
  void AddResponder(uint32_t number, Responder* responder);
  void RemoveResponder(uint32_t number);

  // Calls visit(Responder* or null) under the lock that RemoveResponder needs. What it calls must
  // take no send queue's lock.
  template <typename Visit>
  void WithResponder(uint32_t number, Visit visit) {
    std::lock_guard lock(mutex_);
    const auto it = responders_.find(number);
    visit(it == responders_.end() ? nullptr : it->second);
  }
  // Calls visit(vector of CQs, null where there is none) under the lock that removing a CQ or an
  // SRQ needs.
  template <typename Visit>
  void WithCqs(Visit visit) {
    std::lock_guard lock(mutex_);
    visit(cqs_);
  }

  uint32_t NextPdNumber() { return next_pd_.fetch_add(1) + 1; }
  std::atomic<int>& objects() { return objects_; }  // PDs, CQs, channels: they outlive close_device

  // Segment table, for registration and for answering peers.
  uint32_t AddSegmentUse(UniqueFd fd, uint64_t size_bytes, dev_t device, ino_t inode);
  void DropSegmentUse(uint32_t segment);
  // Duplicate of the descriptor; empty when there is no such segment.
  UniqueFd SegmentFd(uint32_t segment, uint64_t* size_bytes);

  // A free place in the table of memory regions, or -1. Of those given back the oldest, once it has
  // rested for kRestingRegions others. Keys of a place differ until its 256 tags have been used.
  int TakeMemoryRegion(uint32_t* key);
  void ReturnMemoryRegion(int index);
  // The places in it that belong to memory windows.
  void AddWindow(uint32_t index, uint32_t pd);
  void RemoveWindow(uint32_t index);
  bool IsWindow(uint32_t index, uint32_t pd);  // of that PD
  // A window is bound with a key that the program has chosen; whoever has its place next gets another.
  void UseWindowKey(uint32_t index, uint32_t key);
  // False: the window that this key names, bound no more, is still in somebody's copy.
  bool SettleWindow(uint32_t key);
  // The same at the fabric, under any lock but the context's own.
  bool WindowInUse(uint32_t key) { return port_->WindowInUse(key >> kTagBits); }
  template <typename Predicate>
  bool AnyWindow(Predicate predicate) {
    std::lock_guard lock(mutex_);
    return std::any_of(windows_.begin(), windows_.end(),
                       [&](const auto& window) { return predicate(window.first); });
  }
  // A key was just taken back: returns when no peer is at a copy any more that may still use it.
  void WaitForCopies();

  AsyncEvents& async_events() { return async_events_; }
  void PostAsyncEvent(const ibv_async_event& event) { async_events_.Post(event); }
  // Firmware thread: some sender says that it has overrun a CQ or reached the limit of an SRQ.
  void CollectNotices();

 private:
  // The low bits of a key, which differ between those that had its place in turn.
  static constexpr uint32_t kTagBits = 8;
  static constexpr uint32_t kTags = 1 << kTagBits;
  static constexpr uint32_t kTagMask = kTags - 1;
  struct Window {
    uint32_t pd = 0;
    std::bitset<kTags> tags;  // of its keys
    bool settled = true;      // no copy through it can be under way
  };
  struct Shell {
    verbs_context verbs{};
    Context* self = nullptr;
  };
  Context(SoftDevice& device, uint64_t id) : device_(device), id_(id) {}
  void FillOps();

  Shell shell_;
  AsyncEvents async_events_;
  SoftDevice& device_;
  const uint64_t id_;
  std::unique_ptr<shm::Arena> arena_;
  shm::RingBudget ring_budget_;
  std::unique_ptr<MkeyTable> mkeys_;
  shm::MemoryRegionEntry* memory_regions_ = nullptr;  // in the arena; looked at for each message
  std::unique_ptr<FabricPort> port_;
  std::atomic<uint32_t> next_pd_{0};
  std::atomic<int> objects_{0};
  // A page is made when its first id is given out, and stays.
  static constexpr uint32_t kSrqsPerPage = 512;
  using SrqPage = std::array<std::atomic<Srq*>, kSrqsPerPage>;
  std::array<std::atomic<SrqPage*>, kMaxSrqs / kSrqsPerPage> srq_pages_{};

  std::mutex mutex_;
  std::vector<Cq*> cqs_;
  std::unordered_map<uint32_t, Responder*> responders_;
  std::vector<Segment> segments_;
  std::deque<int> free_regions_;  // oldest first
  int next_region_ = 0;
  std::vector<uint8_t> region_tags_;
  std::unordered_map<uint32_t, Window> windows_;  // by index
  std::vector<uint32_t> free_srqs_;
  uint32_t next_srq_ = 1;  // id 0 names none
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_CONTEXT_H_
