// SPDX-License-Identifier: Apache-2.0
//
// Error isolation: handles a stream, its target and its requests after a completion with an error.
#include <algorithm>
#include <cassert>
#include <cerrno>
#include <memory>
#include <string_view>

#include "transport/queue/completion_error.h"
#include "transport/queue/dci_pool.h"

namespace sluice::queue {
namespace {

std::string_view OperationName(const Slot& slot) {
  if (slot.control) return "control message";
  if (slot.bulk) return slot.operation == Operation::kRead ? "one-sided read" : "one-sided write";
  return slot.operation == Operation::kSend ? "send" : "write into a lane";
}

// Returns whether the request was invalid, or its memory is not accessible. The peer is alive, and a retry would fail too.
bool IsRefusal(ibv_wc_status status) {
  return status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_LOC_PROT_ERR;
}

}  // namespace

// The request may have run, may not have run, or may run late. The owner of the target sends again what the peer does not acknowledge.
void DciPool::Fail(Dci& dci, uint32_t index, const ibv_wc& wc) {
  Slot& slot = slots_[index];
  Target* target = slot.target;
  slot.refused = slot.bulk && IsRefusal(wc.status);
  const bool flushed = wc.status == IBV_WC_WR_FLUSH_ERR;
  ++(flushed ? counters_.flushed : counters_.failed);
  // If a request was flushed and its stream had no error, the DCI has stopped.
  bool fatal = true;
  if (exclusive_) {
    Stream& stream = dci.streams[slot.stream];
    if (!flushed && Next(stream.state, StreamEvent::kError, &stream.state)) ++dci.errored;
    fatal = !can_reset_ || dci.errored >= error_limit_ || stream.state != StreamState::kErrored;
  }
  if (fatal) StartDrain(dci);
  TellIfLost(slot);
  if (IsCurrent(slot) && !target->closed && !target->broken) {
    Break(target);
    if (!flushed && !target->closed) {
      const absl::Status why = CompletionError(wc, {.operation = OperationName(slot),
                                                    .peer = target->name,
                                                    .dctn = target->dctn[slot.control],
                                                    .stream = slot.stream,
                                                    .length_bytes = slot.length_bytes});
      // The peer has too many unread control messages. Its device answers. Keepalive finds out whether its program is alive.
      target->crowded = slot.control && wc.status == IBV_WC_RNR_RETRY_EXC_ERR;
      if (slot.refused || target->crowded) {
        broken_.back().why = why;
        target->probation = target->probation || target->crowded;
      } else {
        Blame(target, why);
      }
    }
  }
  Finish(dci, index, false);
}

// Fails the requests in the places [rung, end) of the fifo, which the device has refused.
void DciPool::FailUnposted(Dci& dci, uint32_t end) {
  for (uint32_t at = dci.rung; at != end; ++at) {
    const uint32_t index = dci.fifo[at & Mask()];
    Target* target = slots_[index].target;
    TellIfLost(slots_[index]);
    if (IsCurrent(slots_[index]) && !target->closed && !target->broken) Break(target);
    Finish(dci, index, false);
  }
}

// Stops posting to the target until its stream is reset or its DCI is recovered, and the owner calls Resume().
void DciPool::Break(Target* target) {
  target->broken = true;
  broken_.push_back({target, absl::OkStatus()});
  ReleasePending(target);
}

// Counts a failure of the target. Called after Break().
void DciPool::Blame(Target* target, const absl::Status& why) {
  broken_.back().why = why;
  target->probation = true;
  if (++target->failures < kMaxFailures) return;
  Close(target);
  user_.OnTargetFailed(target, why);
}

// Reports the reset to the targets that waited for this stream, or, with kNoStream, for this DCI.
void DciPool::ResetTargets(Dci& dci, uint16_t stream) {
  // The requests that the targets post may break the DCI and the targets again.
  while (dci.state == DciState::kReady || dci.state == DciState::kDead) {
    const auto it = std::find_if(broken_.begin(), broken_.end(), [&](const Broken& broken) {
      const Target* target = broken.target;
      return target->dci == dci.index && (stream == kNoStream || target->stream == stream);
    });
    if (it == broken_.end()) return;
    const Broken broken = *it;
    broken_.erase(it);
    broken.target->stream = kNoStream;
    user_.OnTargetReset(broken.target, broken.why);
  }
}

// Resets a stream after all its requests were flushed, and only while the DCI is in RTS. The queried state can be out of date, so the whole
// DCI is recovered if the reset fails.
void DciPool::ResetStream(Dci& dci, uint16_t id) {
  Stream& stream = dci.streams[id];
  const bool known = Next(stream.state, StreamEvent::kFlushed, &stream.state);
  assert(known);
  (void)known;
  auto error_number = std::make_shared<int>(0);
  commands_.Submit(
      [this, qp = dci.qp.get(), id, error_number] {
        const auto state = verbs::QueryState(api_, qp);
        *error_number =
            state.ok() && *state == IBV_QPS_RTS ? api_.dv_dci_stream_id_reset(qp, id) : EINVAL;
      },
      [this, dci = &dci, id, error_number] {
        if (dci->state != DciState::kReady) return;  // the recovery clears it
        if (*error_number != 0) return StartDrain(*dci);
        Stream& stream = dci->streams[id];
        if (!Next(stream.state, StreamEvent::kReset, &stream.state)) return;
        dci->free_streams.push_back(id);
        --dci->errored;
        ++counters_.stream_resets;
        pump_ = true;
        ResetTargets(*dci, id);
      });
}

}  // namespace sluice::queue
