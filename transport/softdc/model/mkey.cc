// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/mkey.h"

#include <algorithm>
#include <cerrno>
#include <memory>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/signature_attr.h"

namespace sluice::softdc {
namespace {

constexpr uint32_t kEntriesGrain = 4;

Mkey* Refuse(int error) {
  errno = error;
  return nullptr;
}

}  // namespace

Mkey* Mkey::Create(mlx5dv_mkey_init_attr* attr) {
  Context& context = *Context::From(attr->pd->context);
  uint32_t known = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT;
  if (context.dials().features.signature) known |= MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE;
  if (attr->create_flags == 0 || (attr->create_flags & ~known) != 0) return Refuse(EOPNOTSUPP);
  if (attr->max_entries == 0) return Refuse(EINVAL);
  const std::optional<uint32_t> index = context.mkeys().Take();
  if (!index) return Refuse(ENOMEM);
  // The result must fit: 65533 and more become 65532.
  attr->max_entries = static_cast<uint16_t>(
      std::min<uint32_t>((attr->max_entries + kEntriesGrain - 1u) / kEntriesGrain * kEntriesGrain,
                         UINT16_MAX / kEntriesGrain * kEntriesGrain));
  auto mkey = std::unique_ptr<Mkey>(new Mkey(context, attr->pd, *index, *attr));
  Pd::From(attr->pd)->users.fetch_add(1);
  context.mkeys().Add(*index, mkey.get());
  return mkey.release();
}

Mkey::Mkey(Context& context, ibv_pd* pd, uint32_t index, const mlx5dv_mkey_init_attr& attr)
    : base{.lkey = MkeyAt(index), .rkey = MkeyAt(index)},
      context_(context),
      pd_(pd),
      area_(context.mkeys().area().areas[index]),
      max_entries_(attr.max_entries),
      has_signatures_((attr.create_flags & MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE) != 0) {
  config_.pd = Pd::From(pd)->number;
  area_.config.Store(config_);
  area_.record_state.store(MkeyArea::kArmed, std::memory_order_relaxed);
  area_.key.store(base.lkey, std::memory_order_release);
}

Mkey::~Mkey() {
  area_.key.store(0, std::memory_order_seq_cst);
  context_.mkeys().Remove(MkeyIndex(base.lkey));
  Pd::From(pd_)->users.fetch_sub(1);
}

int Mkey::Check(mlx5dv_mkey_err* error) {
  if (!has_signatures_) return EINVAL;
  std::lock_guard lock(mutex_);
  *error = unread_ ? ToMkeyError(*unread_) : mlx5dv_mkey_err{.err_type = MLX5DV_MKEY_NO_ERR};
  unread_.reset();
  return 0;
}

uint32_t Mkey::Build(MkeyConfiguration* configuration) {
  std::lock_guard lock(mutex_);
  configuration->rearms = rearm_;
  bool sets_up = rearm_;
  rearm_ = false;
  if (configuration->signature) {
    built_signatures_ = DomainCount(*configuration->signature);
    sets_up = true;
  } else if (configuration->resets_signature) {
    built_signatures_ = 0;
  }
  return sets_up ? built_signatures_ : 0;
}

bool Mkey::Apply(const MkeyConfiguration& configuration, uint32_t pd) {
  std::lock_guard lock(mutex_);
  if (config_.pd != pd) return false;
  if (configuration.access) config_.access = *configuration.access;
  if (configuration.layout) {
    config_.entry_count = static_cast<uint32_t>(configuration.layout->entries.size());
    config_.repeat_count = configuration.layout->repeat_count;
    std::copy(configuration.layout->entries.begin(), configuration.layout->entries.end(),
              config_.entries.begin());
  }
  if (configuration.resets_signature) config_.signature = {};
  if (configuration.signature) config_.signature = *configuration.signature;
  area_.config.Store(config_);
  if (configuration.rearms) {
    uint32_t state = MkeyArea::kCollected;
    area_.record_state.compare_exchange_strong(state, MkeyArea::kArmed, std::memory_order_release,
                                               std::memory_order_relaxed);
  }
  return true;
}

bool Mkey::Invalidate(uint32_t pd) {
  std::lock_guard lock(mutex_);
  if (config_.pd != pd) return false;
  config_ = {.pd = config_.pd};
  area_.config.Store(config_);
  return true;
}

void Mkey::Collect(uint32_t cq_id) {
  if (area_.record_state.load(std::memory_order_acquire) != MkeyArea::kPending ||
      area_.record_cq.load(std::memory_order_relaxed) != cq_id) {
    return;
  }
  std::lock_guard lock(mutex_);
  uint32_t state = MkeyArea::kPending;
  if (!area_.record_state.compare_exchange_strong(state, MkeyArea::kCollected)) return;
  unread_ = {.fault = static_cast<signature::Fault>(area_.fault.load(std::memory_order_relaxed)),
             .actual = area_.actual.load(std::memory_order_relaxed),
             .expected = area_.expected.load(std::memory_order_relaxed),
             .offset_bytes = area_.offset_bytes.load(std::memory_order_relaxed)};
  rearm_ = true;
  context_.mkeys().collected_.fetch_add(1, std::memory_order_relaxed);
}

MkeyTable::MkeyTable(Context& context) : context_(context) {
  offset_ = context.arena().Allocate(sizeof(MkeyTableArea));
  if (offset_ == 0) return;
  area_ = context.arena().At<MkeyTableArea>(offset_);
  context.arena().header().mkeys_offset = offset_;
}

MkeyTable::~MkeyTable() { context_.arena().Retire(offset_, sizeof(MkeyTableArea)); }

std::optional<uint32_t> MkeyTable::Take() {
  std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    const uint32_t index = free_.back();
    free_.pop_back();
    return index;
  }
  if (next_ == kMaxMkeys) return std::nullopt;
  return next_++;
}

void MkeyTable::Add(uint32_t index, Mkey* mkey) {
  std::lock_guard lock(mutex_);
  mkeys_[index] = mkey;
}

void MkeyTable::Remove(uint32_t index) {
  std::lock_guard lock(mutex_);
  // A pending mismatch of this key cannot be collected later.
  const uint32_t state = area_->areas[index].record_state.load(std::memory_order_acquire);
  if (state == MkeyArea::kPending) collected_.fetch_add(1, std::memory_order_relaxed);
  mkeys_.erase(index);
  free_.push_back(index);
}

Mkey* MkeyTable::Find(uint32_t key) {
  if (!IsMkey(key)) return nullptr;
  const auto it = mkeys_.find(MkeyIndex(key));
  return it == mkeys_.end() ? nullptr : it->second;
}

bool MkeyTable::Apply(const MkeyConfiguration& configuration, uint32_t pd) {
  std::lock_guard lock(mutex_);
  Mkey* mkey = Find(configuration.key);
  return mkey != nullptr && mkey->Apply(configuration, pd);
}

bool MkeyTable::Invalidate(uint32_t key, uint32_t pd) {
  std::lock_guard lock(mutex_);
  Mkey* mkey = Find(key);
  return mkey != nullptr && mkey->Invalidate(pd);
}

void MkeyTable::Collect(uint32_t cq_id) {
  std::lock_guard lock(mutex_);
  for (const auto& [index, mkey] : mkeys_) mkey->Collect(cq_id);
}

}  // namespace sluice::softdc
