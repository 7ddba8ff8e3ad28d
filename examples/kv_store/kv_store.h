// SPDX-License-Identifier: Apache-2.0
//
// KvStore: the server's half: the table in memory that clients may read, and the calls that change it.
#ifndef SLUICE_EXAMPLES_KV_STORE_KV_STORE_H_
#define SLUICE_EXAMPLES_KV_STORE_KV_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/kv_store/kv.sluice.h"
#include "examples/kv_store/slot.h"
#include "middleware/api/bulk.h"

namespace sluice::examples::kv_store {

class KvStore final : public KvServiceBase {
 public:
  static constexpr uint32_t kMaxSlots = 1u << 20;  // half a GiB, and as much again with signatures
  // INVALID_ARGUMENT: too few slots, or too many.
  static absl::StatusOr<std::unique_ptr<KvStore>> Create(uint32_t slots,
                                                         const BulkOptions& options = {});

  absl::Status Join(ServerContext&, const JoinRequest& request, JoinReply* reply) override;
  // INVALID_ARGUMENT: no key, or too long. RESOURCE_EXHAUSTED: the slots in which it may be are taken.
  absl::Status Put(ServerContext&, const PutRequest& request, PutReply*) override;

 private:
  KvStore(uint32_t slots, std::unique_ptr<Bulk> bulk);
  void Store(uint32_t slot, const Slot& what);

  std::vector<Slot> slots_;           // what the table says, for the server itself
  std::vector<std::byte> memory_;     // the same with signatures, for those who read it
  const std::unique_ptr<Bulk> bulk_;  // goes first: it reaches the memory
  std::string capability_;
};

}  // namespace sluice::examples::kv_store

#endif  // SLUICE_EXAMPLES_KV_STORE_KV_STORE_H_
