// SPDX-License-Identifier: Apache-2.0
#include "examples/kv_store/kv_store.h"

#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::examples::kv_store {

absl::StatusOr<std::unique_ptr<KvStore>> KvStore::Create(uint32_t slots,
                                                         const BulkOptions& options) {
  if (slots < kProbes || slots > kMaxSlots) {
    return absl::InvalidArgumentError(
        absl::StrCat(slots, " slots: allowed are ", kProbes, " to ", kMaxSlots));
  }
  auto bulk = Bulk::Create(options);
  if (!bulk.ok()) return bulk.status();
  std::unique_ptr<KvStore> store(new KvStore(slots, *std::move(bulk)));
  auto lent = store->bulk_->Lend(store->memory_, bulk::kMayRead);
  if (!lent.ok()) return lent.status();
  store->capability_ = lent->capability;
  return store;
}

// Free slots have their signatures too.
KvStore::KvStore(uint32_t slots, std::unique_ptr<Bulk> bulk)
    : slots_(slots), memory_(size_t{slots} * kStoredBytes), bulk_(std::move(bulk)) {
  for (uint32_t slot = 0; slot < slots; ++slot) Store(slot, slots_[slot]);
}

void KvStore::Store(uint32_t slot, const Slot& what) {
  slots_[slot] = what;
  Protect(SlotProtection(), std::as_bytes(std::span(&slots_[slot], 1)),
          std::span(memory_).subspan(size_t{slot} * kStoredBytes, kStoredBytes));
}

absl::Status KvStore::Join(ServerContext&, const JoinRequest& request, JoinReply* reply) {
  auto peer = bulk_->Accept(request.ticket(), reply->mutable_ticket());
  if (!peer.ok()) return peer.status();
  reply->set_capability(capability_);
  reply->set_slots(static_cast<uint32_t>(slots_.size()));
  return absl::OkStatus();
}

absl::Status KvStore::Put(ServerContext&, const PutRequest& request, PutReply*) {
  const std::string& key = request.key();
  if (key.empty() || key.size() + request.value().size() > Slot::kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a key of 1 byte or more, and its value: ", Slot::kMaxBytes, " bytes at most"));
  }
  const uint64_t hash = HashOf(key);
  for (uint32_t probe = 0; probe < kProbes; ++probe) {
    const auto slot = static_cast<uint32_t>((hash + probe) % slots_.size());
    if (slots_[slot].key_bytes != 0 && slots_[slot].key() != key) continue;
    Slot changed;
    changed.Set(key, request.value());
    Store(slot, changed);
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError("the slots in which this key may be are taken");
}

}  // namespace sluice::examples::kv_store
