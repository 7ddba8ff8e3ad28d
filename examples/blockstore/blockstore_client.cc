// SPDX-License-Identifier: Apache-2.0
//
// blockstore_client: writes blocks to a store and reads them back. With --corrupt it then damages a block, once in its own
// memory before a write and once in the store before a read, and shows what a user sees. Exit code 0: all went as it must.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "examples/blockstore/block_store.h"
#include "middleware/api/bulk.h"
#include "middleware/api/channel.h"

ABSL_FLAG(std::string, server, "127.0.0.1:7472", "host:port of a blockstore_server");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");
ABSL_FLAG(uint32_t, blocks, 16, "how many blocks to write and read");
ABSL_FLAG(bool, corrupt, false, "damage a block, and show what becomes of it");

namespace sluice::examples::blockstore {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(30);

class Client {
 public:
  Client(std::shared_ptr<Channel> channel, std::unique_ptr<Bulk> bulk, uint32_t blocks)
      : channel_(std::move(channel)),
        store_(channel_),
        bulk_(std::move(bulk)),
        buffer_(size_t{blocks} * kStoredBytes),
        blocks_(blocks) {}

  absl::Status Join() {
    JoinRequest request;
    JoinReply reply;
    auto peer = bulk_->Offer(request.mutable_ticket());
    if (!peer.ok()) return peer.status();
    CallContext context(kTimeout);
    absl::Status status = store_.Join(context, request, &reply);
    if (!status.ok()) return status;
    peer_ = *peer;
    client_ = reply.client();
    return bulk_->Complete(peer_, reply.ticket());
  }

  // The buffer to blocks from 0 on, or back; the verdict is that of both sides.
  absl::Status Write() { return Move(bulk::kMayRead); }
  absl::Status Read() { return Move(bulk::kMayWrite); }

  absl::Status Damage(uint64_t block, uint32_t bit) {
    DamageRequest request;
    request.set_block(block);
    request.set_bit(bit);
    DamageReply reply;
    CallContext context(kTimeout);
    return store_.Damage(context, request, &reply);
  }

  // Blocks that say which they are, with their signatures.
  void Fill(char what) {
    std::vector<std::byte> data(size_t{blocks_} * kBlockBytes, static_cast<std::byte>(what));
    for (uint32_t i = 0; i < blocks_; ++i)
      data[size_t{i} * kBlockBytes] = static_cast<std::byte>(i);
    Protect(ProtectionOf(0), data, buffer_);
  }
  std::vector<std::byte>& buffer() { return buffer_; }

 private:
  absl::Status Move(uint8_t right) {
    auto lent = bulk_->Lend(buffer_, right);
    if (!lent.ok()) return lent.status();
    BlocksRequest request;
    request.set_client(client_);
    request.set_blocks(blocks_);
    request.set_capability(lent->capability);
    request.set_tag(++tag_);
    BlocksReply reply;
    CallContext context(kTimeout);
    absl::Status status = right == bulk::kMayRead ? store_.Write(context, request, &reply)
                                                  : store_.Read(context, request, &reply);
    if (status.ok()) {
      auto arrival = bulk_->Await(peer_, tag_, kTimeout);
      status = arrival.ok() ? arrival->status : arrival.status();
    }
    // The buffer is this program's again, whatever has happened.
    const absl::Status returned = bulk_->Return(lent->id);
    return status.ok() ? returned : status;
  }

  const std::shared_ptr<Channel> channel_;
  const BlockStoreClient store_;
  const std::unique_ptr<Bulk> bulk_;
  std::vector<std::byte> buffer_;
  const uint32_t blocks_;
  bulk::PeerId peer_;
  uint32_t client_ = 0;
  uint64_t tag_ = 0;
};

int Fail(const char* doing, const absl::Status& status) {
  std::fprintf(stderr, "blockstore_client: %s: %s\n", doing,
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return 1;
}

// What a user of the store sees of a damaged block.
bool Show(const char* doing, const absl::Status& status) {
  const auto mismatch = integrity::MismatchOf(status);
  if (!mismatch) {
    std::printf("%s: %s, though a block was damaged\n", doing,
                std::string(status.message()).c_str());
    return false;
  }
  std::printf("%s: %s: %s\n", doing, absl::StatusCodeToString(status.code()).c_str(),
              std::string(status.message()).c_str());
  std::printf("  block %u, %s: expected 0x%x, actual 0x%x, found by the %s\n", mismatch->block,
              std::string(Name(mismatch->field)).c_str(), mismatch->expected, mismatch->actual,
              std::string(Name(mismatch->end)).c_str());
  return true;
}

int Run(const std::string& address, const std::string& device, uint32_t blocks, bool corrupt) {
  if (blocks == 0 || blocks > kMaxBlocks) {
    return Fail("nothing to do", absl::InvalidArgumentError(absl::StrCat(
                                     "--blocks is ", blocks, ", allowed are 1 to ", kMaxBlocks)));
  }
  ChannelOptions options;
  options.device = device;
  auto channel = Channel::Connect(address, options);
  if (!channel.ok()) return Fail("no connection", channel.status());
  auto bulk = Bulk::Create({.device = device});
  if (!bulk.ok()) return Fail("no bulk port", bulk.status());
  Client client(*std::move(channel), *std::move(bulk), blocks);
  if (absl::Status status = client.Join(); !status.ok()) return Fail("can't join", status);

  client.Fill('a');
  const std::vector<std::byte> written = client.buffer();
  if (absl::Status status = client.Write(); !status.ok()) return Fail("write", status);
  std::printf("wrote %u blocks\n", blocks);
  client.Fill('?');
  if (absl::Status status = client.Read(); !status.ok()) return Fail("read", status);
  if (client.buffer() != written) {
    return Fail("read", absl::DataLossError("these are not the blocks that were written"));
  }
  std::printf("read %u blocks, all as they were written\n", blocks);
  if (!corrupt) return 0;

  const uint32_t victim = blocks / 2;
  if (absl::Status status = client.Damage(victim, 12345); !status.ok())
    return Fail("damage", status);
  const bool read = Show("read of a block that the store has damaged", client.Read());
  client.Fill('b');
  client.buffer()[size_t{victim} * kStoredBytes + 17] ^= std::byte{1};
  const bool write = Show("write of a block that was damaged here", client.Write());
  client.Fill('c');
  if (absl::Status status = client.Write(); !status.ok()) return Fail("write afterwards", status);
  if (absl::Status status = client.Read(); !status.ok()) return Fail("read afterwards", status);
  std::printf("and the next write and read are good\n");
  return read && write ? 0 : 1;
}

}  // namespace
}  // namespace sluice::examples::blockstore

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("writes blocks with T10-DIF to a blockstore_server and reads them");
  absl::ParseCommandLine(argc, argv);
  return sluice::examples::blockstore::Run(absl::GetFlag(FLAGS_server), absl::GetFlag(FLAGS_device),
                                           absl::GetFlag(FLAGS_blocks),
                                           absl::GetFlag(FLAGS_corrupt));
}
