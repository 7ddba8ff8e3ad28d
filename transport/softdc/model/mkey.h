// SPDX-License-Identifier: Apache-2.0
//
// Mkey: an indirect memory key of this context (mlx5dv_create_mkey(3)). MkeyTable: all these keys of the context.
//
//   create -> free --configuration WR runs--> usable --IBV_WR_LOCAL_INV--> free
//
// The configuration is in the arena (mkey_area.h). This class holds the rest: the number of signatures in the newest configuration, and the
// mismatch that mlx5dv_mkey_check(3) has not read yet.
//
// Threads       Any call from any thread. One thread destroys a key while no other thread uses it.
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

// Changes that one configuration WR makes. The rest of the key stays as it is.
struct MkeyConfiguration {
  Mkey* mkey = nullptr;  // only to build the WR; the execution uses `key`
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
  // `base` is the user's handle; it must stay first.
  mlx5dv_mkey base{};
  static Mkey* From(mlx5dv_mkey* mkey) { return reinterpret_cast<Mkey*>(mkey); }

  // Returns null with errno on failure. Sets attr.max_entries to the real maximum.
  static Mkey* Create(mlx5dv_mkey_init_attr* attr);
  ~Mkey();

  // mlx5dv_mkey_check(3).
  int Check(mlx5dv_mkey_err* error);

  uint32_t max_entries() const { return max_entries_; }
  bool has_signatures() const { return has_signatures_; }

  // Completes a configuration, as the library does when it builds the WR. Returns the number of further slots that the WR takes.
  uint32_t Build(MkeyConfiguration* configuration);
  // Executes a configuration WR. Returns false if the key belongs to another protection domain.
  bool Apply(const MkeyConfiguration& configuration, uint32_t pd);
  bool Invalidate(uint32_t pd);
  // Takes the recorded mismatch if it belongs to this CQ. Called after the CQ was polled.
  void Collect(uint32_t cq_id);

 private:
  Mkey(Context& context, ibv_pd* pd, uint32_t index, const mlx5dv_mkey_init_attr& attr);

  Context& context_;
  ibv_pd* const pd_;
  MkeyArea& area_;
  const uint32_t max_entries_;
  const bool has_signatures_;

  std::mutex mutex_;
  MkeyConfig config_;              // copy of the configuration in the arena
  uint32_t built_signatures_ = 0;  // signatures in the newest configuration WR
  bool rearm_ = false;             // the next configuration must set `rearms`
  std::optional<signature::Mismatch> unread_;
};

class MkeyTable {
 public:
  explicit MkeyTable(Context& context);
  ~MkeyTable();
  MkeyTable(const MkeyTable&) = delete;
  MkeyTable& operator=(const MkeyTable&) = delete;

  // Returns false if the arena had no room for the table.
  bool good() const { return area_ != nullptr; }
  MkeyTableArea& area() { return *area_; }

  // Takes a free index. Returns nullopt if all are in use.
  std::optional<uint32_t> Take();
  void Add(uint32_t index, Mkey* mkey);
  void Remove(uint32_t index);
  // Execute WRs on keys. Return false if the protection domain has no such key.
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
