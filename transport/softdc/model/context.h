// SPDX-License-Identifier: Apache-2.0
//
// Context: one opening of a device, and the registries of its objects. The user's ibv_context is embedded. The inlines of verbs.h therefore
// find their function pointers where a provider would put them.
//
// Threads       As libibverbs: any call from any thread. One thread destroys an object while no other thread uses it. Lock order: first the
//               mutex of the context or of a QpLife; then send queue, link, CQ, SRQ; then the mutex of async events.
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
// Includes the receive queues of queue pairs.
inline constexpr uint32_t kMaxSrqs = 1 << 18;
inline constexpr uint32_t kMaxSegments = 4096;
inline constexpr size_t kFewTargets = 4;
inline constexpr uint32_t kRestingRegions = 256;  // freed places that wait before reuse

struct Pd {
  ibv_pd base{};
  uint32_t number = 0;
  std::atomic<int> users{0};  // MRs, AHs, SRQs, QPs …; if not 0, dealloc_pd returns EBUSY
  Pd* parent = nullptr;       // of a parent domain: its PD, whose number it uses
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

  // Returns a small id, which is reused after RemoveCq, or 0 if the table is full.
  uint32_t AddCq(Cq* cq);
  void RemoveCq(uint32_t id);
  // FindSrq finds an SRQ from AddSrq until RemoveSrq. TakeSrqId returns the id to use, or 0 if all ids are in use.
  uint32_t TakeSrqId();
  void AddSrq(uint32_t id, Srq* srq);
  void RemoveSrq(uint32_t id);
  // Returns the SRQ, or null. Takes no lock, because polling calls it often.
  Srq* FindSrq(uint32_t id) const {
    if (id >= kMaxSrqs) return nullptr;
    const SrqPage* page = srq_pages_[id / kSrqsPerPage].load(std::memory_order_acquire);
    return page == nullptr ? nullptr : (*page)[id % kSrqsPerPage].load(std::memory_order_acquire);
  }

  // WithResponder finds a responder by its number between these two calls.
  void AddResponder(uint32_t number, Responder* responder);
  void RemoveResponder(uint32_t number);

  // Calls visit(responder, or null) under the mutex that RemoveResponder also takes. `visit` must not take the lock of a send queue.
  template <typename Visit>
  void WithResponder(uint32_t number, Visit visit) {
    std::lock_guard lock(mutex_);
    const auto it = responders_.find(number);
    visit(it == responders_.end() ? nullptr : it->second);
  }
  // Calls visit(CQs by id; null for a free id) under the mutex that RemoveCq and RemoveSrq also take.
  template <typename Visit>
  void WithCqs(Visit visit) {
    std::lock_guard lock(mutex_);
    visit(cqs_);
  }

  // Returns up to kFewTargets - 1 DCTs on the same CQ whose numbers are close, then `number`: a sender that needs one target of an endpoint
  // soon needs the others. Returns nothing if no responder has that number.
  std::vector<uint32_t> FewTargetsWith(uint32_t number);

  uint32_t NextPdNumber() { return next_pd_.fetch_add(1) + 1; }
  std::atomic<int>& objects() { return objects_; }  // PDs, CQs, channels: they outlive close_device

  // Table of segments, for registration and for answers to peers. AddSegmentUse returns kPrivateSegment if all ids are used.
  uint32_t AddSegmentUse(UniqueFd fd, uint64_t size_bytes, dev_t device, ino_t inode);
  void DropSegmentUse(uint32_t segment);
  // Returns a duplicate of the descriptor, or an empty one if there is no such segment.
  UniqueFd SegmentFd(uint32_t segment, uint64_t* size_bytes);
  struct SegmentCopy {
    uint32_t segment = 0;
    UniqueFd fd;
    uint64_t size_bytes = 0;
  };
  // Appends duplicates of the first `most` segments, in the order of their ids. Returns false if there are more, or if no descriptor is
  // free.
  bool CopySegments(size_t most, std::vector<SegmentCopy>* copies);

  // Returns a free place in the table of memory regions and its new key, or -1 if the table is full. The oldest freed place is reused if
  // more than kRestingRegions places are free, or if no unused place is left. Keys of a place differ until its 256 tags have been used.
  int TakeMemoryRegion(uint32_t* key);
  void ReturnMemoryRegion(int index);
  // Add and remove the memory window at a place of the table.
  void AddWindow(uint32_t index, uint32_t pd);
  void RemoveWindow(uint32_t index);
  bool IsWindow(uint32_t index, uint32_t pd);  // of that PD
  // Records a key that the program selected for a bind. The next owner of the place gets a key that the window never had, if one is left.
  void UseWindowKey(uint32_t index, uint32_t key);
  // Returns false while a copy through the invalidated window of `key` may still be in progress.
  bool SettleWindow(uint32_t key);
  // Returns whether a copy through the window of `key` may still be in progress. Does not take the mutex of the context, so it may be
  // called under the lock of a CQ.
  bool WindowInUse(uint32_t key) { return port_->WindowInUse(key >> kTagBits); }
  template <typename Predicate>
  bool AnyWindow(Predicate predicate) {
    std::lock_guard lock(mutex_);
    return std::any_of(windows_.begin(), windows_.end(),
                       [&](const auto& window) { return predicate(window.first); });
  }
  // Blocks until no copy of a peer can use a revoked key. Call after the key was revoked.
  void WaitForCopies();

  AsyncEvents& async_events() { return async_events_; }
  void PostAsyncEvent(const ibv_async_event& event) { async_events_.Post(event); }
  // Posts the events of CQs that senders have overrun, and of SRQs that have reached their limit. Called on the firmware thread.
  void CollectNotices();

 private:
  // The low bits of a key are a tag, which differs between successive owners of the place.
  static constexpr uint32_t kTagBits = 8;
  static constexpr uint32_t kTags = 1 << kTagBits;
  static constexpr uint32_t kTagMask = kTags - 1;
  struct Window {
    uint32_t pd = 0;
    std::bitset<kTags> tags;  // of its keys
    bool settled = true;      // no copy through it can be in progress
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
  shm::MemoryRegionEntry* memory_regions_ = nullptr;  // in the arena; read for each message
  std::unique_ptr<FabricPort> port_;
  std::atomic<uint32_t> next_pd_{0};
  std::atomic<int> objects_{0};
  // A page is allocated with its first id, and stays until the context is destroyed.
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
  uint32_t next_srq_ = 1;  // id 0 means none
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_CONTEXT_H_
