// SPDX-License-Identifier: Apache-2.0
//
// Mkey: an indirect memory key of this context (mlx5dv_create_mkey(3)), and MkeyTable, all of them.
//
//   create -> free --configuration WR runs--> usable --IBV_WR_LOCAL_INV--> free
//
// The configuration is in the arena (mkey_area.h); this class has the rest: how
// many signatures the newest configuration has, and the mismatch that mlx5dv_mkey_check(3) has not read
// yet.
//
// Threads       Any call from any thread, but a key is destroyed by one while no other uses it.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_H_

#include <infiniband/mlx5dv.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/softdc/model/mkey_area.h"
#include "transport/softdc/model/mkey_layout.h"
#include "transport/softdc/signature/block_signature.h"

namespace sluice::softdc {

class Context;
class Mkey;

// What one configuration WR changes; the rest of the key stays as it is.
struct MkeyConfiguration {
  Mkey* mkey = nullptr;  // while it is built; it runs by its key
  uint32_t key = 0;
  std::optional<uint32_t> access;
  struct Layout {
    uint32_t repeat_count = 0;
    std::vector<MkeyEntry> entries;
  };
  std::optional<Layout> layout;
  std::optional<signature::BlockSignature> signature;
  bool resets_signature = false;
  bool rearms = false;  // tells the device that the last mismatch was seen
};

class Mkey {
 public:
  // `base` is what the user holds; it must stay first.
  mlx5dv_mkey base{};
  static Mkey* From(mlx5dv_mkey* mkey) { return reinterpret_cast<Mkey*>(mkey); }

  // Null with errno set. Rewrites attr.max_entries.
  static Mkey* Create(mlx5dv_mkey_init_attr* attr);
  ~Mkey();

  // mlx5dv_mkey_check(3).
  int Check(mlx5dv_mkey_err* error);

  uint32_t max_entries() const { return max_entries_; }
  bool has_signatures() const { return has_signatures_; }

  // Completes a configuration as the library does when its WR is built, and says how many slots it takes
  // beside its own.
  uint32_t Build(MkeyConfiguration* configuration);
  // The device runs it. False: the key is of another protection domain.
  bool Apply(const MkeyConfiguration& configuration, uint32_t pd);
  bool Invalidate(uint32_t pd);
  // The CQ that a mismatch was found on was polled.
  void Collect(uint32_t cq_id);

 private:
  Mkey(Context& context, ibv_pd* pd, uint32_t index, const mlx5dv_mkey_init_attr& attr);

  Context& context_;
  ibv_pd* const pd_;
  MkeyArea& area_;
  const uint32_t max_entries_;
  const bool has_signatures_;

  std::mutex mutex_;
  MkeyConfig config_;              // what stands in the arena
  uint32_t built_signatures_ = 0;  // of the newest configuration WR
  bool rearm_ = false;             // the next configuration has to say that a mismatch was seen
  std::optional<signature::Mismatch> unread_;
};

class MkeyTable {
 public:
  explicit MkeyTable(Context& context);
  ~MkeyTable();
  MkeyTable(const MkeyTable&) = delete;
  MkeyTable& operator=(const MkeyTable&) = delete;

  // False: the arena had no room for the table.
  bool good() const { return area_ != nullptr; }
  MkeyTableArea& area() { return *area_; }

  // A free index; nothing when all are taken.
  std::optional<uint32_t> Take();
  void Add(uint32_t index, Mkey* mkey);
  void Remove(uint32_t index);
  // What WRs do to keys. False: no such key of that protection domain.
  bool Apply(const MkeyConfiguration& configuration, uint32_t pd);
  bool Invalidate(uint32_t key, uint32_t pd);

  // Called for each poll of a CQ, after its completions were taken.
  void Polled(uint32_t cq_id) {
    if (area_->recorded.load(std::memory_order_acquire) !=
        collected_.load(std::memory_order_relaxed)) {
      Collect(cq_id);
    }
  }

 private:
  friend class Mkey;
  void Collect(uint32_t cq_id);
  Mkey* Find(uint32_t key);  // under mutex_

  Context& context_;
  uint64_t offset_ = 0;
  MkeyTableArea* area_ = nullptr;
  std::atomic<uint32_t> collected_{0};

  std::mutex mutex_;
  std::unordered_map<uint32_t, Mkey*> mkeys_;  // by index
  std::vector<uint32_t> free_;
  uint32_t next_ = 0;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_H_
