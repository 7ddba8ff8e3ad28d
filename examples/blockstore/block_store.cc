// SPDX-License-Identifier: Apache-2.0
#include "examples/blockstore/block_store.h"

#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::examples::blockstore {

absl::StatusOr<std::unique_ptr<BlockStore>> BlockStore::Create(uint64_t blocks,
                                                               const BulkOptions& options) {
  if (blocks == 0 || blocks > kMaxBlocks) {
    return absl::InvalidArgumentError(
        absl::StrCat(blocks, " blocks: allowed are 1 to ", kMaxBlocks));
  }
  auto bulk = Bulk::Create(options);
  if (!bulk.ok()) return bulk.status();
  std::unique_ptr<BlockStore> store(new BlockStore(blocks, *std::move(bulk)));
  // No rights: nobody reaches the blocks but by the store's own transfers.
  auto lent = store->bulk_->Lend(store->memory_, 0);
  if (!lent.ok()) return lent.status();
  store->lease_ = lent->id;
  return store;
}

// Empty blocks are blocks: they have their signatures.
BlockStore::BlockStore(uint64_t blocks, std::unique_ptr<Bulk> bulk)
    : blocks_(blocks), memory_(blocks * kStoredBytes), bulk_(std::move(bulk)) {
  Protect(ProtectionOf(0), std::vector<std::byte>(blocks * kBlockBytes), memory_);
}

absl::Status BlockStore::Join(ServerContext&, const JoinRequest& request, JoinReply* reply) {
  auto peer = bulk_->Accept(request.ticket(), reply->mutable_ticket());
  if (!peer.ok()) return peer.status();
  reply->set_client(static_cast<uint32_t>(clients_.size()));
  clients_.push_back(*peer);
  return absl::OkStatus();
}

absl::Status BlockStore::Write(ServerContext&, const BlocksRequest& request, BlocksReply*) {
  return Begin(integrity::TransferKind::kRead, request);  // the store reads the client's memory
}

absl::Status BlockStore::Read(ServerContext&, const BlocksRequest& request, BlocksReply*) {
  return Begin(integrity::TransferKind::kWrite, request);
}

absl::Status BlockStore::Begin(integrity::TransferKind kind, const BlocksRequest& request) {
  if (request.client() >= clients_.size()) {
    return absl::InvalidArgumentError("no such client: call Join first");
  }
  if (request.blocks() == 0 || request.first_block() >= blocks_ ||
      request.blocks() > blocks_ - request.first_block()) {
    return absl::OutOfRangeError("the store has blocks 0 to " + std::to_string(blocks_ - 1));
  }
  auto capability = bulk::LoadCapability(request.capability());
  if (!capability.ok()) return capability.status();
  bulk::TransferRequest transfer;
  transfer.kind = kind;
  transfer.local = lease_;
  transfer.local_offset = request.first_block() * kStoredBytes;
  transfer.remote = *capability;
  transfer.data_bytes = uint64_t{request.blocks()} * kBlockBytes;
  transfer.protection = ProtectionOf(request.first_block());
  transfer.tag = request.tag();
  return bulk_
      ->Start(clients_[request.client()], transfer,
              [](const absl::Status& status) {
                if (status.ok()) return;
                std::fprintf(stderr, "store: %s\n", std::string(status.message()).c_str());
              })
      .status();
}

absl::Status BlockStore::Damage(ServerContext&, const DamageRequest& request, DamageReply*) {
  if (request.block() >= blocks_ || request.bit() >= kStoredBytes * 8) {
    return absl::OutOfRangeError("the store has no such bit");
  }
  memory_[request.block() * kStoredBytes + request.bit() / 8] ^=
      static_cast<std::byte>(1 << request.bit() % 8);
  return absl::OkStatus();
}

}  // namespace sluice::examples::blockstore
