// SPDX-License-Identifier: Apache-2.0
//
// The contents of the arena of a context: the shared segment through which other processes reach the
// context's objects. Offsets count from the first byte of the arena; the arena holds no pointers. Senders
// write only the parts that srq_area.h, cqe_ring.h, claim_journal.h and armed_word.h give to them, and the
// state of an RC target. The owner writes everything else.
//
// If you change anything here: raise kLayoutVersion, keep the static_asserts true, and check shm/control.h.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_LAYOUT_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace sluice::softdc::shm {

inline constexpr uint64_t kArenaMagic = 0x31616e6572616473;  // "sdarena1"
inline constexpr uint32_t kLayoutVersion = 7;
inline constexpr uint64_t kArenaBytes = uint64_t{1} << 30;  // sparse: only touched pages use memory
inline constexpr uint32_t kMaxMemoryRegions = 1 << 14;
inline constexpr uint32_t kPrivateSegment = 0;  // no segment: reached through the kernel

struct ArenaHeader {
  uint64_t magic;
  uint32_t layout_version;
  int32_t pid;
  uint64_t context_id;  // random; identifies this open device
  uint64_t size_bytes;
  uint64_t memory_regions_offset;
  uint64_t mkeys_offset;  // MkeyTableArea; 0: none
  uint32_t memory_region_count;
  std::atomic<uint32_t>
      segment_count;  // shared segments have the ids 1 to this; an id is never reused
};
static_assert(sizeof(ArenaHeader) == 56);

// A registered region. `key` is written last when the region becomes valid, and first (to 0) when it ends.
// Bytes [shared_begin, shared_end) of the region are in the segment. The bytes before and after are private
// memory of the owner, reached through the kernel. If both are 0, all bytes are private.
struct alignas(64) MemoryRegionEntry {
  std::atomic<uint32_t> key;  // lkey and rkey; 0: free
  uint32_t access;            // IBV_ACCESS_*
  uint32_t pd;
  uint32_t segment;  // kPrivateSegment, or a shared segment of the owner
  uint64_t address;  // in the owner's address space
  uint64_t length_bytes;
  uint64_t segment_offset;  // of byte shared_begin in the segment
  uint64_t shared_begin;    // from the start of the region
  uint64_t shared_end;
  uint32_t bound_qp;  // of a window: the only QP that may use it; 0: any QP of the PD
  uint32_t parent;    // of a window: the index of its region; 0: not a window

  bool IsWindow() const { return parent != 0; }
};
static_assert(sizeof(MemoryRegionEntry) == 64);

// Copy of an entry at the time of a check. As long as the entry is unchanged, the result of the check is
// valid.
class MemoryRegionSnapshot {
 public:
  // Reads each field once, so that the check and the later comparison use the same values.
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

  uint32_t key_ = 0;  // 0: empty snapshot
  uint32_t access_ = 0;
  uint64_t words_[7] = {};  // from `pd` on
};
static_assert(offsetof(MemoryRegionEntry, access) == 4 && offsetof(MemoryRegionEntry, pd) == 8 &&
              sizeof(MemoryRegionEntry) == 8 + 7 * sizeof(uint64_t));

enum class TargetState : uint32_t { kGone = 0, kReadyToReceive = 1 };
enum class TargetType : uint32_t { kDct = 1, kRc = 2, kUc = 3, kUd = 4 };

// A QP to which other processes send. If a request of a sender fails an RC queue pair, that sender itself
// stores kGone before it tells the owner. The place of the descriptor is reused only after all senders have
// dropped it (kForget in control.h).
struct alignas(64) TargetDescriptor {
  std::atomic<uint32_t> state;  // TargetState
  uint32_t qp_num;
  std::atomic<uint64_t> key;     // DC key, Q_Key, or identity of the connected peer
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
