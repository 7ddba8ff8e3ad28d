// SPDX-License-Identifier: Apache-2.0
//
// The sending half of a signed queue: from Post() to the send queue. The receiving half is in completions.cc.
#include "transport/integrity/signed_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/base/error.h"
#include "transport/integrity/convert.h"

namespace sluice::integrity {
namespace {

// Send queue entries of a transfer: a configuration, the data, the OK and, if the OK was cancelled, the error reply.
constexpr uint32_t kSlotsOfATransfer = kConfigureSlots + 3;

absl::Status Refused(absl::StatusCode code, const std::string& what, std::string_view peer,
                     std::string_view remedy) {
  return base::Error(
      code, what,
      {.layer = "integrity", .peer = peer, .operation = "protected transfer", .remedy = remedy});
}

}  // namespace

std::string_view Name(Mode mode) {
  switch (mode) {
    case Mode::kPipelined:
      return "pipelined";
    case Mode::kSerial:
      return "serial";
    case Mode::kSoftware:
      return "software";
  }
  return "";
}

absl::StatusOr<std::unique_ptr<SignedQueue>> SignedQueue::Create(
    device::Device& device, poller::Commands& commands, SignedQueueUser& user,
    const SignedQueueOptions& options) {
  if (options.max_open == 0 || options.max_open > kMaxOpen || options.max_replies == 0) {
    return Refused(absl::StatusCode::kInvalidArgument,
                   std::to_string(options.max_open) + " open transfers and " +
                       std::to_string(options.max_replies) + " replies can't be",
                   options.peer, "take 1 to 16384 of each");
  }
  std::unique_ptr<SignedQueue> queue(new SignedQueue(device, commands, user, options));
  absl::Status status = queue->Init();
  if (!status.ok()) return status;
  return queue;
}

absl::Status SignedQueue::Init() {
  const verbs::VerbsApi& api = device_.api();
  const verbs::CapabilityReport& can = device_.capabilities();
  ibv_pd* const domain = options_.domain == nullptr ? device_.pd() : options_.domain;
  if (options_.offload && can.Has(verbs::Feature::kSignature)) {
    const bool stops = options_.pipelining && can.Has(verbs::Feature::kSigPipelining);
    mode_ = stops ? Mode::kPipelined : Mode::kSerial;
    auto keys = SignatureKeys::Create(device_, options_.max_open, domain);
    if (!keys.ok()) return keys.status();
    keys_.emplace(std::move(*keys));
  } else {
    // Maximum size of a transfer on the wire.
    staging_bytes_ = DomainBytes(Guard::kT10DifCrc, 512, options_.max_transfer_bytes);
    auto staging = memory::Slab::Create(api, domain, staging_bytes_ * options_.max_open,
                                        IBV_ACCESS_LOCAL_WRITE);
    if (!staging.ok()) return staging.status();
    staging_ = std::move(*staging);
  }
  auto replies = memory::Slab::Create(
      api, domain, size_t{options_.max_open + options_.max_replies} * kMaxReplyBytes,
      IBV_ACCESS_LOCAL_WRITE);
  if (!replies.ok()) return replies.status();
  replies_ = std::move(*replies);

  const uint32_t send_depth = options_.max_open * kSlotsOfATransfer + 1;
  auto send_cq = verbs::CreateCq(api, device_.context(), send_depth, options_.channel);
  if (!send_cq.ok()) return send_cq.status();
  send_cq_ = std::move(*send_cq);
  auto receive_cq = verbs::CreateCq(api, device_.context(), options_.max_replies, options_.channel);
  if (!receive_cq.ok()) return receive_cq.status();
  receive_cq_ = std::move(*receive_cq);
  auto qp = verbs::CreateRc(api, device_.context(), domain, send_cq_.get(), receive_cq_.get(),
                            {.send_depth = send_depth,
                             .receive_depth = options_.max_replies,
                             .max_inline_bytes = keys_ ? kConfigureInlineBytes : 0,
                             .mkeys = keys_.has_value(),
                             .pipelining = mode_ == Mode::kPipelined});
  if (!qp.ok()) return qp.status();
  qp_ = std::move(*qp);
  address_.number = qp_.number();
  address_.reads = device_.path().max_rd_atomic;
  address_.lid = device_.lid();
  ibv_gid gid = {};
  const int error_number =
      api.query_gid(device_.context(), device_.path().port, device_.path().sgid_index, &gid);
  if (error_number != 0) {
    return Refused(absl::StatusCode::kUnavailable, "the port has no GID", options_.peer,
                   "bring the port up");
  }
  std::memcpy(address_.gid.data(), gid.raw, address_.gid.size());
  slots_.resize(options_.max_open);
  for (uint32_t i = options_.max_open; i-- > 0;) free_.push_back(i);
  waiting_.reserve(options_.max_open);
  landed_.reserve(options_.max_open);
  return absl::OkStatus();
}

SignedQueue::~SignedQueue() = default;

absl::Status SignedQueue::Connect(const QueueAddress& peer) {
  verbs::RcPeer address{.number = peer.number, .lid = peer.lid};
  std::memcpy(address.gid.raw, peer.gid.data(), peer.gid.size());
  // Retries without limit after RNR: a peer that gets no CPU time posts its reply buffers late, but is alive. A dead peer does not
  // answer at all. For a peer that hangs, the deadline of the user applies.
  verbs::PathOptions path = device_.path();
  path.rnr_retry = 7;
  // 0.04 ms: a peer that checks written data is often a few replies late, but not for long.
  path.min_rnr_timer = 4;
  // The same value for both directions, so that each side has no more READs outstanding than the other side answers.
  path.max_rd_atomic = std::clamp<uint8_t>(peer.reads, 1, path.max_rd_atomic);
  absl::Status status = verbs::ActivateRc(device_.api(), qp_.get(), path, address,
                                          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
  if (!status.ok()) return status;
  for (uint32_t i = 0; i < options_.max_replies; ++i) PostReceive(i);
  connected_ = true;
  return absl::OkStatus();
}

void SignedQueue::PostReceive(uint32_t index) {
  ibv_sge piece = {.addr = reinterpret_cast<uint64_t>(ReplyMemory(options_.max_open + index)),
                   .length = kMaxReplyBytes,
                   .lkey = replies_.lkey()};
  ibv_recv_wr work = {.wr_id = index, .next = nullptr, .sg_list = &piece, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  const int error_number = ibv_post_recv(qp_.get(), &work, &bad);
  if (error_number != 0) {
    Fail(base::ErrnoError(error_number, "ibv_post_recv", {.layer = "integrity"}));
  }
}

Guard SignedQueue::From(const Slot& slot) const {
  const bool write = slot.transfer.kind == Transfer::Kind::kWrite;
  return write ? slot.transfer.protection.memory : slot.transfer.protection.wire;
}

bool SignedQueue::UsesKey(const Slot& slot) const {
  const Protection& protection = slot.transfer.protection;
  return keys_ && (protection.memory != Guard::kNone || protection.wire != Guard::kNone);
}

// A write without a signature needs no fence: it cannot have a mismatch, and a queue pair executes its WRITEs and SENDs in order.
bool SignedQueue::Fences(const Slot& slot) const {
  return mode_ == Mode::kPipelined &&
         (UsesKey(slot) || slot.transfer.kind == Transfer::Kind::kRead);
}

// Data with the same format in memory and on the wire needs no staging buffer.
bool SignedQueue::Stages(const Slot& slot) const {
  return !keys_ && slot.transfer.protection.memory != slot.transfer.protection.wire;
}

absl::Status SignedQueue::Supports(const Protection& protection) const {
  return keys_ ? keys_->support().Supports(protection) : absl::OkStatus();
}

absl::Status SignedQueue::Post(const Transfer& transfer) {
  absl::Status status = Validate(transfer.protection, transfer.data_bytes);
  if (status.ok()) status = Supports(transfer.protection);
  if (!status.ok()) return status;
  if (transfer.data_bytes > options_.max_transfer_bytes) {
    return Refused(absl::StatusCode::kInvalidArgument,
                   std::to_string(transfer.data_bytes) + " bytes of data are more than " +
                       std::to_string(options_.max_transfer_bytes),
                   options_.peer, "split the transfer, or raise max_transfer_bytes");
  }
  return Take(transfer);
}

absl::Status SignedQueue::Tell(std::span<const std::byte> reply, uint64_t cookie) {
  Transfer nothing;
  nothing.reply = reply;
  nothing.cookie = cookie;
  return Take(nothing);
}

// Reserves a slot for the transfer until its end.
absl::Status SignedQueue::Take(const Transfer& transfer) {
  if (transfer.reply.size() > kMaxReplyBytes) {
    return Refused(absl::StatusCode::kInvalidArgument,
                   "a reply of " + std::to_string(transfer.reply.size()) + " bytes is too long",
                   options_.peer, std::to_string(kMaxReplyBytes) + " bytes are the limit");
  }
  if (!connected_ || state_ == QueueState::kFailing || state_ == QueueState::kEnding ||
      state_ == QueueState::kDown) {
    return Refused(absl::StatusCode::kUnavailable,
                   connected_ ? "the signed queue has failed" : "the signed queue is not connected",
                   options_.peer, "make another");
  }
  if (free_.empty()) {
    return Refused(absl::StatusCode::kResourceExhausted,
                   std::to_string(options_.max_open) + " protected transfers are open",
                   options_.peer, "wait until one has ended, or raise max_open");
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot = {.stage = Stage::kWaiting,
          .number = next_number_++,
          .transfer = transfer,
          .reply_bytes = static_cast<uint32_t>(transfer.reply.size())};
  slot.transfer.reply = {};
  if (!transfer.reply.empty()) {
    std::memcpy(ReplyMemory(index), transfer.reply.data(), transfer.reply.size());
  }
  const bool has_data = transfer.data_bytes != 0;
  if (!keys_ && has_data && transfer.kind == Transfer::Kind::kWrite) Convert(index);
  waiting_.push_back(index);
  ++open_;
  ++counters_.posted;
  return absl::OkStatus();
}

// Checks and converts the data of a transfer with the CPU.
void SignedQueue::Convert(uint32_t index) {
  Slot& slot = slots_[index];
  const Transfer& transfer = slot.transfer;
  const bool write = transfer.kind == Transfer::Kind::kWrite;
  const Direction direction = write ? Direction::kToWire : Direction::kFromWire;
  const std::span memory(transfer.memory, MemoryBytes(transfer.protection, transfer.data_bytes));
  if (!Stages(slot)) {
    slot.mismatch = Check(transfer.protection, direction, memory);
    return;
  }
  const std::span wire(Staging(index), WireBytes(transfer.protection, transfer.data_bytes));
  slot.mismatch = write ? integrity::Convert(transfer.protection, direction, memory, wire)
                        : integrity::Convert(transfer.protection, direction, wire, memory);
}

void SignedQueue::PostData(uint32_t index) {
  const Slot& slot = slots_[index];
  const Transfer& transfer = slot.transfer;
  uint64_t address = reinterpret_cast<uint64_t>(transfer.memory);
  uint32_t lkey = transfer.lkey;
  if (UsesKey(slot)) {
    keys_->Configure(qp_.ex, qp_.dv, WrId(index, Role::kConfigure), index, transfer.protection,
                     From(slot), transfer.memory, transfer.lkey, transfer.data_bytes);
    address = 0;
    lkey = keys_->lkey(index);
  } else if (Stages(slot)) {
    address = reinterpret_cast<uint64_t>(Staging(index));
    lkey = staging_.lkey();
  }
  qp_.ex->wr_id = WrId(index, Role::kData);
  qp_.ex->wr_flags = mode_ == Mode::kPipelined ? 0 : IBV_SEND_SIGNALED;
  if (transfer.kind == Transfer::Kind::kWrite) {
    ibv_wr_rdma_write(qp_.ex, transfer.rkey, transfer.remote_address);
  } else {
    ibv_wr_rdma_read(qp_.ex, transfer.rkey, transfer.remote_address);
  }
  const auto length = static_cast<uint32_t>(WireBytes(transfer.protection, transfer.data_bytes));
  ibv_wr_set_sge(qp_.ex, lkey, address, length);
}

void SignedQueue::PostReply(uint32_t index, Role role, bool fence) {
  qp_.ex->wr_id = WrId(index, role);
  qp_.ex->wr_flags = IBV_SEND_SIGNALED | (fence ? IBV_SEND_FENCE : 0);
  ibv_wr_send(qp_.ex);
  ibv_wr_set_sge(qp_.ex, replies_.lkey(), reinterpret_cast<uint64_t>(ReplyMemory(index)),
                 slots_[index].reply_bytes);
}

void SignedQueue::Complete() {
  const int error_number = ibv_wr_complete(qp_.ex);
  if (error_number == 0) return;
  Fail(base::ErrnoError(error_number, "ibv_wr_complete",
                        {.layer = "integrity", .peer = options_.peer, .operation = "post"}));
}

// Puts the error reply into the buffer of the OK, which was not sent or was cancelled.
void SignedQueue::Mismatched(uint32_t index) {
  Slot& slot = slots_[index];
  ++counters_.mismatches;
  const uint32_t length =
      user_.OnMismatch(slot.transfer.cookie, *slot.mismatch, {ReplyMemory(index), kMaxReplyBytes});
  slot.reply_bytes = std::min(length, kMaxReplyBytes);
  slot.stage = Stage::kMismatched;
}

void SignedQueue::Flush() {
  if (waiting_.empty() || state_ != QueueState::kRunning) return;
  // Before Begin(): Mismatched() calls the user for the error reply.
  for (const uint32_t index : waiting_) {
    if (slots_[index].mismatch) Mismatched(index);
  }
  Begin();
  for (const uint32_t index : waiting_) {
    Slot& slot = slots_[index];
    if (slot.stage == Stage::kMismatched) continue;
    slot.stage = slot.transfer.data_bytes == 0 ? Stage::kAnswered : Stage::kUnderWay;
    if (slot.stage == Stage::kUnderWay) PostData(index);
  }
  // One fence is enough for all replies behind it, because the data of all transfers is posted before it. A fence for each reply
  // would also wait for the previous OK.
  bool fenced = false;
  for (const uint32_t index : waiting_) {
    const Slot& slot = slots_[index];
    if (slot.stage == Stage::kMismatched) {
      PostReply(index, Role::kError);
    } else if (mode_ == Mode::kPipelined || slot.stage == Stage::kAnswered) {
      const bool fence = !fenced && Fences(slot);
      PostReply(index, Role::kOk, fence);
      fenced = fenced || fence;
    }
  }
  waiting_.clear();
  Complete();
}

}  // namespace sluice::integrity
