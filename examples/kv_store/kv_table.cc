// SPDX-License-Identifier: Apache-2.0
#include "examples/kv_store/kv_table.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "transport/integrity/mismatch.h"

namespace sluice::examples::kv_store {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(30);

}  // namespace

absl::StatusOr<std::unique_ptr<KvTable>> KvTable::Connect(const std::string& address,
                                                          const std::string& device) {
  ChannelOptions options;
  options.device = device;
  auto channel = Channel::Connect(address, options);
  if (!channel.ok()) return channel.status();
  auto bulk = Bulk::Create({.device = device});
  if (!bulk.ok()) return bulk.status();
  std::unique_ptr<KvTable> table(new KvTable(*std::move(channel), *std::move(bulk)));
  auto lent = table->bulk_->Lend(table->buffer_, 0);  // for our own transfers only
  if (!lent.ok()) return lent.status();
  table->lease_ = lent->id;
  if (absl::Status status = table->Join(); !status.ok()) return status;
  return table;
}

KvTable::KvTable(std::shared_ptr<Channel> channel, std::unique_ptr<Bulk> bulk)
    : channel_(std::move(channel)),
      stub_(channel_),
      buffer_(kStoredBytes),
      bulk_(std::move(bulk)) {}

absl::Status KvTable::Join() {
  JoinRequest request;
  JoinReply reply;
  auto peer = bulk_->Offer(request.mutable_ticket());
  if (!peer.ok()) return peer.status();
  CallContext context(kTimeout);
  absl::Status status = stub_.Join(context, request, &reply);
  if (!status.ok()) return status;
  auto table = bulk::LoadCapability(reply.capability());
  if (!table.ok()) return table.status();
  if (reply.slots() < kProbes) return absl::InternalError("the server's table has too few slots");
  peer_ = *peer;
  table_ = *table;
  slots_ = reply.slots();
  return bulk_->Complete(peer_, reply.ticket());
}

absl::Status KvTable::Put(const std::string& key, const std::string& value) {
  PutRequest request;
  request.set_key(key);
  request.set_value(value);
  PutReply reply;
  CallContext context(kTimeout);
  return stub_.Put(context, request, &reply);
}

absl::Status KvTable::ReadSlot(uint64_t slot) {
  bulk::TransferRequest transfer;
  transfer.kind = integrity::TransferKind::kRead;
  transfer.local = lease_;
  transfer.remote_offset = slot * kStoredBytes;
  transfer.data_bytes = kSlotBytes;
  transfer.protection = SlotProtection();
  // A server that is interrupted while it writes leaves the slot as it is until it goes on.
  const absl::Time end = absl::Now() + kTimeout;
  absl::Status status;
  do {
    transfer.remote = table_;
    status = bulk_->Move(peer_, transfer);
    if (integrity::MismatchOf(status).has_value()) {
      ++torn_;
      continue;
    }
    if (!absl::IsUnavailable(status)) return status;
    // The way to it is lost: it was too slow to hear of each read (that costs its CPU something after all), or is gone,
    // which Join() then says.
    if (absl::Status joined = Join(); !joined.ok()) return joined;
  } while (absl::Now() < end);
  return status;
}

absl::StatusOr<std::string> KvTable::Get(const std::string& key) {
  const uint64_t hash = HashOf(key);
  for (uint32_t probe = 0; probe < kProbes; ++probe) {
    if (absl::Status status = ReadSlot((hash + probe) % slots_); !status.ok()) return status;
    Slot slot;
    std::memcpy(&slot, buffer_.data(), sizeof(slot));
    if (slot.key_bytes == 0) break;
    if (slot.key_bytes + size_t{slot.value_bytes} > Slot::kMaxBytes) {
      return absl::DataLossError("the server's table holds a slot that can't be");
    }
    if (slot.key() == key) return std::string(slot.value());
  }
  return absl::NotFoundError(absl::StrCat("there is no \"", key, "\""));
}

}  // namespace sluice::examples::kv_store
