// SPDX-License-Identifier: Apache-2.0
//
// BlockStore: the server's half. Its blocks lie in memory as they would on a disk with T10-DIF, 4096 bytes and eight of
// signature each, and are checked by the device, or by the CPU where it can't, each time they come or go.
//
// A write that fails leaves what came of it, which no read will give out as good.
#ifndef SLUICE_EXAMPLES_BLOCKSTORE_BLOCK_STORE_H_
#define SLUICE_EXAMPLES_BLOCKSTORE_BLOCK_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/blockstore/blockstore.sluice.h"
#include "middleware/api/bulk.h"

namespace sluice::examples::blockstore {

inline constexpr uint32_t kBlockBytes = 4096;
inline constexpr uint32_t kStoredBytes = kBlockBytes + 8;
inline constexpr uint32_t kMaxBlocks = 1u << 18;  // 1 GiB
inline constexpr uint16_t kApplicationTag = 0xb10c;

// Of blocks from that one on: the same in memory and on the wire.
inline integrity::Protection ProtectionOf(uint64_t first_block) {
  return {.memory = integrity::Guard::kT10DifCrc,
          .wire = integrity::Guard::kT10DifCrc,
          .block_bytes = kBlockBytes,
          .application_tag = kApplicationTag,
          .reference_tag = static_cast<uint32_t>(first_block)};
}

class BlockStore final : public BlockStoreServiceBase {
 public:
  // INVALID_ARGUMENT: no blocks, or too many.
  static absl::StatusOr<std::unique_ptr<BlockStore>> Create(uint64_t blocks,
                                                            const BulkOptions& options = {});

  absl::Status Join(ServerContext&, const JoinRequest& request, JoinReply* reply) override;
  absl::Status Write(ServerContext&, const BlocksRequest& request, BlocksReply* reply) override;
  absl::Status Read(ServerContext&, const BlocksRequest& request, BlocksReply* reply) override;
  absl::Status Damage(ServerContext&, const DamageRequest& request, DamageReply* reply) override;

 private:
  BlockStore(uint64_t blocks, std::unique_ptr<Bulk> bulk);
  absl::Status Begin(integrity::TransferKind kind, const BlocksRequest& request);

  const uint64_t blocks_;
  std::vector<std::byte> memory_;
  const std::unique_ptr<Bulk> bulk_;  // goes first: it reaches the memory
  bulk::LeaseId lease_;
  std::vector<bulk::PeerId> clients_;
};

}  // namespace sluice::examples::blockstore

#endif  // SLUICE_EXAMPLES_BLOCKSTORE_BLOCK_STORE_H_
