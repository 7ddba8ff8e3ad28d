// SPDX-License-Identifier: Apache-2.0
//
// Error isolation: what becomes of a stream, a DCI and the requests on it after a completion with
// an error.
#include <cassert>
#include <cerrno>
#include <memory>
#include <utility>

#include "transport/base/error.h"
#include "transport/queue/completion_error.h"
#include "transport/queue/dci_pool.h"
#include "transport/queue/sentinel.h"

namespace sluice::queue {

void DciPool::Fail(Dci& dci, uint32_t index, const ibv_wc& wc) {
  Slot& slot = slots_[index];
  Target* target = slot.target;
  if (wc.status == IBV_WC_WR_FLUSH_ERR) {
    ++counters_.flushed;
    if (target->closed) return Finish(dci, index, false);
    // Nothing was wrong with it, so it is the DCI that has stopped.
    Keep(dci, index);
    return StartDrain(dci);
  }
  ++counters_.failed;
  const absl::Status why =
      CompletionError(wc, {.operation = slot.control ? "control message" : "send",
                           .peer = target->name,
                           .dctn = target->dctn[slot.control],
                           .stream = slot.stream,
                           .length_bytes = slot.length_bytes});
  if (exclusive_) {
    Stream& stream = dci.streams[slot.stream];
    if (Next(stream.state, StreamEvent::kError, &stream.state)) ++dci.errored;
  }
  if (!can_reset_ || dci.errored >= error_limit_) StartDrain(dci);
  const bool was_open = !target->closed;
  Close(target);
  if (was_open) user_.OnTargetFailed(target, why);
  Finish(dci, index, false);
}

// Back in line, before anything newer; completions come in posting order, so the order is kept.
void DciPool::Keep(Dci& dci, uint32_t index) {
  Target* target = slots_[index].target;
  Unpost(dci, index);
  slots_[index].use = SlotUse::kPending;
  target->repost.PushBack(slots_, index);
  Wait(target);
}

void DciPool::CheckStream(Dci& dci, uint16_t id) {
  Stream& stream = dci.streams[id];
  if (stream.posted != 0) return;
  if (Next(stream.state, StreamEvent::kIdle, &stream.state)) {
    dci.free_streams.push_back(id);
  } else if (stream.state == StreamState::kErrored && dci.state == DciState::kReady) {
    ResetStream(dci, id);
  }
}

// Only when flushed, and only while the DCI is in RTS; that it says so can be out of date, so a
// reset that fails means that the whole DCI has to be recovered.
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
      });
}

void DciPool::StartDrain(Dci& dci) {
  if (!Next(dci.state, DciEvent::kFatal, &dci.state)) return;
  if (dci.rung != dci.tail) Ring(dci);  // they will be flushed, in order
  auto status = std::make_shared<absl::Status>();
  commands_.Submit(
      [this, qp = dci.qp.get(), status] {
        const auto state = verbs::QueryState(api_, qp);
        if (!state.ok()) {
          *status = state.status();
        } else if (*state != IBV_QPS_ERR) {
          // Otherwise healthy streams would go on, or hang, and never be flushed.
          ibv_qp_attr attr = {};
          attr.qp_state = IBV_QPS_ERR;
          const int error_number = api_.modify_qp(qp, &attr, IBV_QP_STATE);
          if (error_number != 0) {
            *status = base::ErrnoError(error_number, "ibv_modify_qp (DCI, ERR)",
                                       {.layer = "queue", .operation = "recover"});
          }
        }
      },
      [this, dci = &dci, status] {
        if (status->ok()) return PostSentinel(*dci);
        Bury(*dci, *status);
      });
}

// Requests that succeeded unsignalled say nothing when the DCI stops. One more, signalled and sure
// to be flushed last, marks the end of the queue.
void DciPool::PostSentinel(Dci& dci) {
  ibv_qp_ex* ex = dci.qp.ex;
  ibv_wr_start(ex);
  ex->wr_id = SentinelId(dci.index);
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(ex);
  ibv_wr_set_sge(ex, lkey_, reinterpret_cast<uint64_t>(slots_[0].data), 0);
  mlx5dv_wr_set_dc_addr(dci.qp.dv, self_.get(), 0, 0);
  const int error_number = ibv_wr_complete(ex);
  if (error_number != 0) {
    Bury(dci, base::ErrnoError(error_number, "ibv_wr_complete (drain)",
                               {.layer = "queue", .operation = "recover"}));
  }
}

void DciPool::OnSentinel(Dci& dci) {
  while (dci.head != dci.rung) Finish(dci, dci.fifo[dci.head++ & Mask()], true);
  if (Next(dci.state, DciEvent::kDrained, &dci.state)) Recover(dci);
}

void DciPool::Recover(Dci& dci) {
  auto status = std::make_shared<absl::Status>();
  commands_.Submit(
      [this, qp = dci.qp.get(), status] {
        *status = verbs::ResetDci(api_, qp);
        if (status->ok()) *status = verbs::ActivateDci(api_, qp, path_);
      },
      [this, dci = &dci, status] { OnRecovered(*dci, *status); });
}

void DciPool::OnRecovered(Dci& dci, const absl::Status& status) {
  if (!status.ok()) return Bury(dci, status);
  dci.head = dci.rung = dci.tail = 0;
  dci.last_signalled = 0xffffffff;
  dci.unsignalled = 0;
  dci.errored = 0;
  dci.free_streams.clear();
  for (size_t id = dci.streams.size(); id-- > 0;) {
    Stream& stream = dci.streams[id];
    Next(stream.state, StreamEvent::kReset, &stream.state);
    assert(stream.state == StreamState::kFree && stream.posted == 0);
    dci.free_streams.push_back(static_cast<uint16_t>(id));
  }
  Next(dci.state, DciEvent::kRecovered, &dci.state);
  ++counters_.dci_recoveries;
  pump_ = true;
}

// Whatever was posted may or may not have been executed: its peers are told that it failed.
void DciPool::Bury(Dci& dci, const absl::Status& why) {
  if (!Next(dci.state, DciEvent::kRefused, &dci.state)) return;
  while (dci.head != dci.rung) {
    const uint32_t index = dci.fifo[dci.head++ & Mask()];
    Target* target = slots_[index].target;
    const bool was_open = !target->closed;
    Close(target);
    if (was_open) user_.OnTargetFailed(target, why);
    Finish(dci, index, false);
  }
  pump_ = true;
  for (const auto& other : dcis_) {
    if (other->state != DciState::kDead) return;
  }
  user_.OnQueueDead(base::Prefix(why, "no send queue is left"));
}

}  // namespace sluice::queue
