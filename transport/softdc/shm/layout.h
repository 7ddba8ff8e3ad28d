// SPDX-License-Identifier: Apache-2.0
//
// The contents of a context's arena, the one shared segment through which other processes reach its
// objects. Offsets count from the arena's first byte; nothing here holds a pointer. The owner
// writes everything but what srq_ring.h, cqe_ring.h, claim_journal.h and armed_word.h give to
// senders.
//
// Changing anything here: raise kLayoutVersion, keep the static_asserts true, and look at
// shm/control.h.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_LAYOUT_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace sluice::softdc::shm {

inline constexpr uint64_t kArenaMagic = 0x31616e6572616473;  // "sdarena1"
inline constexpr uint32_t kLayoutVersion = 7;
inline constexpr uint64_t kArenaBytes = uint64_t{1} << 30;  // sparse: only touched pages count
inline constexpr uint32_t kMaxMemoryRegions = 1 << 14;
inline constexpr uint32_t kPrivateSegment = 0;  // no segment: reached through the kernel

struct ArenaHeader {
  uint64_t magic;
  uint32_t layout_version;
  int32_t pid;
  uint64_t context_id;  // random; names this opening of the device
  uint64_t size_bytes;
  uint64_t memory_regions_offset;
  uint64_t mkeys_offset;  // MkeyTableArea; 0: none
  uint32_t memory_region_count;
  std::atomic<uint32_t>
      segment_count;  // shared segments have the ids 1 to this; an id is never used twice
};
static_assert(sizeof(ArenaHeader) == 56);

// One registered region. `key` is written last when it becomes valid, and first (to 0) when it
// ends. Bytes [shared_begin, shared_end) of it stand in the segment; what is before and after is
// memory of the owner's own, reached through the kernel. Both 0: all of it is.
struct alignas(64) MemoryRegionEntry {
  std::atomic<uint32_t> key;  // lkey and rkey; 0: free
  uint32_t access;            // IBV_ACCESS_*
  uint32_t pd;
  uint32_t segment;  // kPrivateSegment, or a shared segment of the owner's
  uint64_t address;  // in the owner's address space
  uint64_t length_bytes;
  uint64_t segment_offset;  // of byte shared_begin in the segment
  uint64_t shared_begin;    // from the start of the region
  uint64_t shared_end;
  uint32_t bound_qp;  // of a window: the only QP that may use it; 0: any of the PD's
  uint32_t parent;    // of a window: the index of its region; 0: it is a region itself

  bool IsWindow() const { return parent != 0; }
};
static_assert(sizeof(MemoryRegionEntry) == 64);

// What an entry said when its region was looked at. As long as it says the same, what was concluded from it holds.
class MemoryRegionSnapshot {
 public:
  // The fields are read once, so what is concluded from the copy is about what is compared.
  static MemoryRegionSnapshot Of(const MemoryRegionEntry& entry) {
    MemoryRegionSnapshot snapshot;
    snapshot.key_ = entry.key.load(std::memory_order_acquire);
    std::memcpy(&snapshot.access_, &entry.access, sizeof(snapshot.access_));
    std::memcpy(snapshot.words_, reinterpret_cast<const std::byte*>(&entry) + kWordsAt,
                sizeof(snapshot.words_));
    return snapshot;
  }
  uint32_t key() const { return key_; }
  bool Is(const MemoryRegionEntry& entry) const {
    using Vector [[gnu::vector_size(16), gnu::may_alias, gnu::aligned(8)]] = uint64_t;
    if (entry.key.load(std::memory_order_acquire) != key_) return false;
    const auto* const bytes = reinterpret_cast<const std::byte*>(&entry);
    const auto* const now = reinterpret_cast<const Vector*>(bytes + kWordsAt + sizeof(uint64_t));
    const auto* const then = reinterpret_cast<const Vector*>(&words_[1]);
    const Vector differ = (now[0] ^ then[0]) | (now[1] ^ then[1]) | (now[2] ^ then[2]);
    uint64_t first;
    std::memcpy(&first, bytes + kWordsAt, sizeof(first));
    return (differ[0] | differ[1] | (first ^ words_[0])) == 0 && entry.access == access_;
  }

 private:
  static constexpr size_t kWordsAt = 8;  // `pd`

  uint32_t key_ = 0;  // 0: of nothing
  uint32_t access_ = 0;
  uint64_t words_[7] = {};  // from `pd` on
};
static_assert(offsetof(MemoryRegionEntry, access) == 4 && offsetof(MemoryRegionEntry, pd) == 8 &&
              sizeof(MemoryRegionEntry) == 8 + 7 * sizeof(uint64_t));

enum class TargetState : uint32_t { kGone = 0, kReadyToReceive = 1 };
enum class TargetType : uint32_t { kDct = 1, kRc = 2, kUc = 3, kUd = 4 };

// A QP that others send to. A sender whose request brings an RC queue pair down stores kGone itself,
// before it tells the owner. Its place is used again only when all senders have forgotten
// it (kForget in control.h).
struct alignas(64) TargetDescriptor {
  std::atomic<uint32_t> state;  // TargetState
  uint32_t qp_num;
  std::atomic<uint64_t> key;     // DC key, Q_Key, or who the peer is
  std::atomic<uint32_t> access;  // IBV_ACCESS_REMOTE_*
  uint32_t pd;
  uint32_t srq_id;
  uint32_t cq_id;
  std::atomic<uint32_t> min_rnr_timer;  // encoding of ibv_modify_qp
  uint32_t type;                        // TargetType
  uint64_t srq_offset;
  uint64_t armed_offset;  // ArmedWord of the receive CQ
  uint32_t path_mtu;      // enum ibv_mtu; 0: none was set
  uint32_t pkey;          // partition key; 0: none was set
};
static_assert(sizeof(TargetDescriptor) == 64);

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_LAYOUT_H_
