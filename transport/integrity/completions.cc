// SPDX-License-Identifier: Apache-2.0
//
// The receiving half of a signed queue: completions of its requests, and replies of the peer.
#include <algorithm>
#include <string>

#include "transport/base/error.h"
#include "transport/integrity/signed_queue.h"
#include "transport/queue/completion_error.h"

namespace sluice::integrity {
namespace {

constexpr uint32_t kBatch = 32;

}  // namespace

int SignedQueue::Poll() {
  const int commands = commands_.Drain();
  if (state_ == QueueState::kEnding || state_ == QueueState::kDown) return commands;
  const int sends = commands + PollSends();
  if (!landed_.empty()) {
    PollUntilEmpty();
    Look();
  }
  Flush();
  return sends + PollReplies();
}

void SignedQueue::Arm() {
  if (state_ == QueueState::kEnding || state_ == QueueState::kDown) return;
  ibv_req_notify_cq(send_cq_.get(), 0);
  ibv_req_notify_cq(receive_cq_.get(), 0);
}

int SignedQueue::PollSends() {
  ibv_wc completions[kBatch];
  int all = 0;
  for (;;) {
    const int count = ibv_poll_cq(send_cq_.get(), kBatch, completions);
    for (int i = 0; i < count; ++i) OnCompletion(completions[i]);
    if (count < 0) [[unlikely]]
      Fail(queue::PollError("integrity", "send"));
    if (count <= 0) return all;
    all += count;
  }
}

// A poll that meets the report of a wrong signature may return 0 although more completions follow. So this function
// polls until more polls in a row than open transfers return 0.
int SignedQueue::PollUntilEmpty() {
  int all = 0;
  for (uint32_t empty = 0; empty <= open_;) {
    const int count = PollSends();
    all += count;
    empty = count == 0 ? empty + 1 : 0;
  }
  return all;
}

void SignedQueue::OnCompletion(const ibv_wc& completion) {
  ++completions_;
  const auto index = static_cast<uint32_t>(completion.wr_id >> 2 & (kMaxOpen - 1));
  const auto role = static_cast<Role>(completion.wr_id & 3);
  if (completion.status != IBV_WC_SUCCESS) {
    const bool denied = completion.status == IBV_WC_REM_ACCESS_ERR;
    return Fail(base::Error(
        denied ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kUnavailable,
        "a request of a signed queue failed with " +
            std::string(queue::StatusName(completion.status)),
        {.layer = "integrity",
         .peer = options_.peer,
         .operation = role == Role::kConfigure ? "configure key" : "protected transfer",
         .cause = denied ? "the peer deregistered its memory, or did not grant these rights"
                         : "the peer disconnected, or has no receive buffer for the reply",
         .remedy = "connect again",
         .syndrome = static_cast<uint32_t>(completion.status),
         .vendor_code = completion.vendor_err}));
  }
  if (index >= slots_.size() || slots_[index].number != completion.wr_id >> 16) return;
  Slot& slot = slots_[index];
  switch (role) {
    case Role::kConfigure:
      return;
    case Role::kData:
      if (slot.stage != Stage::kUnderWay || mode_ == Mode::kPipelined) return;
      slot.stage = Stage::kLanded;
      landed_.push_back(index);
      return;
    case Role::kOk:
      // A cancelled OK completes as well.
      if (slot.stage == Stage::kMismatched) return;
      ++counters_.good;
      return End(index, absl::OkStatus(), true);
    case Role::kError:
      return End(index, MismatchError(*slot.mismatch, options_.peer), true);
  }
}

void SignedQueue::Look() {
  if (state_ != QueueState::kRunning && state_ != QueueState::kAsking) return;
  for (const uint32_t index : landed_) {
    Slot& slot = slots_[index];
    if (!keys_) {
      if (slot.transfer.kind == Transfer::Kind::kRead) Convert(index);
    } else if (UsesKey(slot)) {
      auto found = keys_->Check(index, slot.transfer.protection, From(slot));
      if (!found.ok()) return Fail(found.status());
      slot.mismatch = *found;
    }
    if (slot.mismatch) Mismatched(index);
  }
  Begin();
  for (const uint32_t index : landed_) {
    const bool wrong = slots_[index].stage == Stage::kMismatched;
    if (!wrong) slots_[index].stage = Stage::kAnswered;
    PostReply(index, wrong ? Role::kError : Role::kOk);
  }
  landed_.clear();
  Complete();
}

void SignedQueue::End(uint32_t index, const absl::Status& status, bool replied) {
  Slot& slot = slots_[index];
  const uint64_t cookie = slot.transfer.cookie;
  slot.stage = Stage::kFree;
  slot.number = 0;
  free_.push_back(index);
  --open_;
  user_.OnEnd(cookie, status, replied);
}

int SignedQueue::PollReplies() {
  ibv_wc completions[kBatch];
  const int count = ibv_poll_cq(receive_cq_.get(), kBatch, completions);
  if (count < 0) [[unlikely]] {
    Fail(queue::PollError("integrity", "receive reply"));
    return 0;
  }
  for (int i = 0; i < count; ++i) {
    const ibv_wc& completion = completions[i];
    if (completion.status != IBV_WC_SUCCESS) {
      // If requests of this side are in flight, one of their completions gives the reason: in ERR all of them complete.
      if (completion.status == IBV_WC_WR_FLUSH_ERR && open_ > waiting_.size()) continue;
      Fail(base::Error(absl::StatusCode::kUnavailable,
                       "the receive queue of a signed queue failed with " +
                           std::string(queue::StatusName(completion.status)),
                       {.layer = "integrity",
                        .peer = options_.peer,
                        .operation = "receive reply",
                        .remedy = "connect again",
                        .syndrome = static_cast<uint32_t>(completion.status),
                        .vendor_code = completion.vendor_err}));
      return i;
    }
    const auto index = static_cast<uint32_t>(completion.wr_id);
    ++counters_.replies;
    user_.OnReply({ReplyMemory(options_.max_open + index), completion.byte_len});
    PostReceive(index);
  }
  return std::max(count, 0);
}

}  // namespace sluice::integrity
