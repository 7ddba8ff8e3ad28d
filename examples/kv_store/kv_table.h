// SPDX-License-Identifier: Apache-2.0
//
// KvTable: puts values by calls, and gets them out of the server's memory: its CPU finds and copies nothing.
//
// Ownership     Its creator. One thread at a time.
#ifndef SLUICE_EXAMPLES_KV_STORE_KV_TABLE_H_
#define SLUICE_EXAMPLES_KV_STORE_KV_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/kv_store/kv.sluice.h"
#include "examples/kv_store/slot.h"
#include "middleware/api/bulk.h"
#include "middleware/api/channel.h"

namespace sluice::examples::kv_store {

class KvTable {
 public:
  static absl::StatusOr<std::unique_ptr<KvTable>> Connect(const std::string& address,
                                                          const std::string& device);

  absl::Status Put(const std::string& key, const std::string& value);
  // NOT_FOUND: there is none. DATA_LOSS: what is there does not match its signature, for half a minute.
  absl::StatusOr<std::string> Get(const std::string& key);
  // Slots that were read while they were written, and read again.
  uint64_t torn() const { return torn_; }

 private:
  KvTable(std::shared_ptr<Channel> channel, std::unique_ptr<Bulk> bulk);
  absl::Status Join();
  absl::Status ReadSlot(uint64_t slot);

  const std::shared_ptr<Channel> channel_;
  const KvClient stub_;
  std::vector<std::byte> buffer_;     // one slot, with its signature
  const std::unique_ptr<Bulk> bulk_;  // goes first: it reaches the buffer
  bulk::PeerId peer_;
  bulk::LeaseId lease_;
  bulk::Capability table_;
  uint32_t slots_ = 0;
  uint64_t torn_ = 0;
};

}  // namespace sluice::examples::kv_store

#endif  // SLUICE_EXAMPLES_KV_STORE_KV_TABLE_H_
