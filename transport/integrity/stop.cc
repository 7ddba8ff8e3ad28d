// SPDX-License-Identifier: Apache-2.0
//
// Stops of a signed queue: at a wrong signature, after which it resumes, or at its end (states.h). Each command is one
// step, and its result selects the next step.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/error.h"
#include "transport/integrity/signed_queue.h"

namespace sluice::integrity {

void SignedQueue::OnDeviceEvent(const device::DeviceEvent& event) {
  if (state_ == QueueState::kEnding || state_ == QueueState::kDown) return;
  if (event.object == nullptr || event.object != qp_.get()) return;
  told_ = true;
  AskIfTold();
}

// An event that arrives while a stop is handled may belong to the next stop.
void SignedQueue::AskIfTold() {
  if (!told_ || state_ != QueueState::kRunning) return;
  told_ = false;
  Ask(QueueEvent::kDrained);
}

void SignedQueue::Watch() {
  const bool quiet = open_ > waiting_.size() && watched_completions_ == completions_;
  watched_completions_ = completions_;
  if (quiet) Ask(QueueEvent::kQuiet);
}

// Queries the state, because an event may be late and belong to an earlier stop.
void SignedQueue::Ask(QueueEvent event) {
  if (!Next(state_, event, &state_)) return;
  ++counters_.state_queries;
  auto answer = std::make_shared<absl::StatusOr<ibv_qp_state>>(IBV_QPS_ERR);
  commands_.Submit(
      [api = &device_.api(), qp = qp_.get(), answer] { *answer = verbs::QueryState(*api, qp); },
      [this, answer] { OnState(*answer); });
}

void SignedQueue::OnState(const absl::StatusOr<ibv_qp_state>& state) {
  if (state_ != QueueState::kAsking) return;
  if (!state.ok()) return Fail(state.status());
  switch (*state) {
    case IBV_QPS_RTS:
      Next(state_, QueueEvent::kIsRts, &state_);
      return AskIfTold();
    case IBV_QPS_SQD:
      Next(state_, QueueEvent::kIsSqd, &state_);
      return OnStop();
    default:
      // If requests are in flight, the completion of the failed request gives the reason: in ERR all requests complete.
      if (open_ > waiting_.size() && !err_seen_) {
        err_seen_ = true;
        Next(state_, QueueEvent::kIsErr, &state_);
        return;
      }
      return Fail(Unexplained("it is in the error state"));
  }
}

// In the order of man mlx5dv_qp_cancel_posted_send_wrs: poll, check all open transfers, cancel, resume.
void SignedQueue::OnStop() {
  ++counters_.stops;
  PollUntilEmpty();
  if (state_ != QueueState::kCancelling) return;  // a completion changed the state
  std::vector<uint32_t> wrong;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.stage != Stage::kUnderWay || !UsesKey(slot)) continue;
    auto found = keys_->Check(i, slot.transfer.protection, From(slot));
    if (!found.ok()) return Fail(found.status());
    if (!*found) continue;
    slot.mismatch = *found;
    wrong.push_back(i);
  }
  if (wrong.empty()) return Fail(Unexplained("it stopped, and no open transfer is wrong"));
  std::vector<uint64_t> ids;
  for (const uint32_t index : wrong) ids.push_back(WrId(index, Role::kOk));
  auto taken = std::make_shared<std::vector<int>>();
  commands_.Submit(
      [api = &device_.api(), dv = qp_.dv, ids = std::move(ids), taken] {
        for (const uint64_t id : ids) taken->push_back(api->dv_qp_cancel_posted_send_wrs(dv, id));
      },
      [this, wrong = std::move(wrong), taken] { OnCancelled(wrong, *taken); });
}

void SignedQueue::OnCancelled(const std::vector<uint32_t>& wrong, const std::vector<int>& taken) {
  if (state_ != QueueState::kCancelling) return;
  for (size_t i = 0; i < wrong.size(); ++i) {
    if (taken[i] == 1) continue;
    // The OK may have been sent: the queue must not send another reply.
    return Fail(Unexplained(taken[i] < 0
                                ? "the reply of a wrong transfer can't be cancelled (errno " +
                                      std::to_string(-taken[i]) + ")"
                                : "of the reply of a wrong transfer " + std::to_string(taken[i]) +
                                      " were cancelled"));
  }
  counters_.cancelled += wrong.size();
  for (const uint32_t index : wrong) Mismatched(index);
  Begin();
  for (const uint32_t index : wrong) PostReply(index, Role::kError);
  Complete();
  if (!Next(state_, QueueEvent::kCancelled, &state_)) return;
  auto status = std::make_shared<absl::Status>();
  commands_.Submit(
      [api = &device_.api(), qp = qp_.get(), status] { *status = verbs::ResumeRc(*api, qp); },
      [this, status] {
        if (state_ != QueueState::kResuming) return;
        if (!status->ok()) return Fail(*status);
        Next(state_, QueueEvent::kResumed, &state_);
      });
}

absl::Status SignedQueue::Unexplained(const std::string& what) const {
  return base::Error(
      absl::StatusCode::kUnavailable, "a signed queue has failed: " + what,
      {.layer = "integrity",
       .peer = options_.peer,
       .operation = "protected transfer",
       .cause = "an error of the device, or a request that failed without a completion",
       .remedy = "connect again"});
}

void SignedQueue::Fail(const absl::Status& why) {
  if (!Next(state_, QueueEvent::kFailed, &state_)) return;
  why_ = why;
  // The result does not matter: the queue pair is destroyed in any case.
  commands_.Submit([api = &device_.api(), qp = qp_.get()] { (void)verbs::StopRc(*api, qp); },
                   [this] { OnErr(); });
}

// Reads the last results: transfers that have completed, and mismatches that the device has found.
void SignedQueue::OnErr() {
  PollUntilEmpty();
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const bool moved = slot.stage == Stage::kUnderWay || slot.stage == Stage::kLanded;
    if (!moved || !UsesKey(slot)) continue;
    auto found = keys_->Check(i, slot.transfer.protection, From(slot));
    if (found.ok() && *found) slot.mismatch = *found;
  }
  Next(state_, QueueEvent::kStopped, &state_);
  // No other code uses the queue pair from here on.
  commands_.Submit([qp = &qp_.qp] { qp->reset(); }, [this] { OnGone(); });
}

void SignedQueue::OnGone() {
  Next(state_, QueueEvent::kGone, &state_);
  waiting_.clear();
  landed_.clear();
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.stage == Stage::kFree) continue;
    End(i, slot.mismatch ? MismatchError(*slot.mismatch, options_.peer) : why_, false);
  }
  user_.OnDown(why_);
}

}  // namespace sluice::integrity
