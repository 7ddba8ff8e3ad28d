// SPDX-License-Identifier: Apache-2.0
//
// Recovery of a whole DCI: drain, RESET and destruction. Also the watchdog, which finds a DCI that completes nothing.
#include <algorithm>
#include <cassert>
#include <memory>
#include <utility>

#include "transport/base/error.h"
#include "transport/queue/completion_error.h"
#include "transport/queue/dci_pool.h"
#include "transport/queue/sentinel.h"

namespace sluice::queue {

void DciPool::StartDrain(Dci& dci) {
  if (!Next(dci.state, DciEvent::kFatal, &dci.state)) return;
  expecting_ = true;
  ++dci.drains;
  if (dci.rung != dci.tail) Ring(dci);  // they will be flushed, in order
  dci.watched_head = dci.head - 1;      // the watchdog starts again
  auto status = std::make_shared<absl::Status>();
  commands_.Submit(
      [this, qp = dci.qp.get(), status] {
        const auto state = verbs::QueryState(api_, qp);
        if (!state.ok()) {
          *status = state.status();
        } else if (*state != IBV_QPS_ERR) {
          // Otherwise healthy streams would continue or hang, and would never be flushed.
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
        if (dci->state != DciState::kDraining) return;  // the command took too long
        if (status->ok()) return PostSentinel(*dci);
        Bury(*dci, *status);
      });
}

// Unsignalled requests that succeeded have no completion when the DCI stops. One more request, which is signalled and flushed last, marks
// the end of the queue.
void DciPool::PostSentinel(Dci& dci) {
  ibv_qp_ex* ex = dci.qp.ex;
  ibv_wr_start(ex);
  ex->wr_id = SentinelId(dci.index, dci.drains);
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(ex);
  ibv_wr_set_sge(ex, lkey_, reinterpret_cast<uint64_t>(slots_.data_area()), 0);
  mlx5dv_wr_set_dc_addr(dci.qp.dv, self_.get(), 0, 0);
  const int error_number = ibv_wr_complete(ex);
  if (error_number != 0) {
    Bury(dci, base::ErrnoError(error_number, "ibv_wr_complete (drain)",
                               {.layer = "queue", .operation = "recover"}));
  }
}

void DciPool::OnSentinel(Dci& dci) {
  if (!Next(dci.state, DciEvent::kDrained, &dci.state)) return;
  BreakSilent(dci, dci.rung);
  while (dci.head != dci.rung) Finish(dci, dci.fifo[dci.head++ & Mask()], true);
  Recover(dci);
}

// Breaks the targets of requests before `end` that have no completion while the DCI stops. These requests have succeeded, or they were
// flushed and this device reports only signalled requests (fact 204). The owners of the targets post again what is not acknowledged.
void DciPool::BreakSilent(Dci& dci, uint32_t end) {
  for (uint32_t at = dci.head; at != end; ++at) {
    const Slot& slot = slots_[dci.fifo[at & Mask()]];
    TellIfLost(slot);
    if (IsCurrent(slot) && !slot.target->closed && !slot.target->broken) Break(slot.target);
  }
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
  FailRest(dci);
  dci.head = dci.rung = dci.tail = 0;
  dci.last_signalled = 0xffffffff;
  dci.unsignalled = 0;
  dci.errored = 0;
  dci.late = dci.needs_signal = dci.disowned = false;
  dci.watched_head = dci.oldest = 0xffffffff;
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
  ResetTargets(dci, kNoStream);
}

// Destroys the queue pair first, because its posted requests could still run later.
void DciPool::Bury(Dci& dci, const absl::Status& why) {
  if (!Next(dci.state, DciEvent::kRefused, &dci.state)) return;
  --living_[dci.probation];
  commands_.Submit([qp = &dci.qp] { *qp = {}; }, [this, dci = &dci, why] { OnBuried(*dci, why); });
}

void DciPool::Abandon(const absl::Status& why) {
  expecting_ = true;
  for (const auto& dci : dcis_) {
    // No doorbell may be rung while a command uses the queue pair, so it is rung before.
    if (Next(dci->state, DciEvent::kFatal, &dci->state) && dci->rung != dci->tail) Ring(*dci);
    Bury(*dci, why);
  }
}

void DciPool::OnBuried(Dci& dci, const absl::Status& why) {
  FailRest(dci);
  pump_ = true;
  if (living_[0] + living_[1] == 0) {
    return user_.OnQueueDead(base::Prefix(why, "no send queue is left"));
  }
  ResetTargets(dci, kNoStream);
}

// Fails the requests that have no completion and will never get one.
void DciPool::FailRest(Dci& dci) {
  if (dci.head == dci.tail) return;
  const uint32_t end = dci.tail;
  dci.rung = dci.head;
  dci.head = dci.tail = dci.rung;
  FailUnposted(dci, end);
}

// Finds a DCI that owes a completion, requested or due at the end of a drain, for longer than any request takes. The DCI goes to RESET
// directly, because a DCI that does nothing flushes nothing.
bool DciPool::Watch(int64_t now_ns) {
  for (const auto& dci : dcis_) {
    if (dci->disowned && dci->disowned_ns == 0) dci->disowned_ns = now_ns;
    if (dci->disowned && now_ns - dci->disowned_ns >= WatchLimitNs()) dci->disowned = false;
    bool due = dci->state == DciState::kDraining;
    if (dci->state == DciState::kReady) {
      if (dci->head != dci->oldest && dci->head != dci->rung) {
        dci->oldest = dci->head;
        dci->oldest_ns = now_ns;
      }
      due = dci->OwesCompletion();
      if (!due) SignalNext(*dci);
    }
    if (!due) continue;  // the clock starts when a completion is due
    if (dci->head != dci->watched_head) {
      dci->watched_head = dci->head;
      dci->watched_ns = now_ns;
    } else if (now_ns - dci->watched_ns >= WatchLimitNs()) {
      // If the polling thread has not run for so long, the completions are in the queue.
      while (TakeCompletions() == kMaxPollBatch) {
      }
      const bool watched = dci->state == DciState::kReady || dci->state == DciState::kDraining;
      if (!watched || dci->head != dci->watched_head) continue;
      ++counters_.stuck_dcis;
      const bool draining = dci->state == DciState::kDraining;
      Next(dci->state, DciEvent::kStuck, &dci->state);
      if (dci->rung != dci->tail) Ring(*dci);  // no doorbell may be rung during the reset
      if (!draining) BlameSuspects(*dci, now_ns - dci->watched_ns);
      Recover(*dci);
    }
  }
  // Set after the loop: the completions taken above arrived at any time since the last check, which may be long ago.
  last_watch_ns_ = now_ns;
  return completions_due();
}

int64_t DciPool::WatchLimitNs() const {
  return std::max(kWatchAttempts * attempt_ns_, 2 * counters_.longest_attempt_ns);
}

// Counts a failure for each target that may have stopped the DCI. The DCI may be dead, or it waits for a peer for longer than configured.
// Completions arrive in posting order, so such a peer has the first signalled request or an earlier request. These targets continue on
// probation, where every request is signalled, so only one target is blamed there. A later success clears the failure.
void DciPool::BlameSuspects(Dci& dci, int64_t silent_ns) {
  for (uint32_t at = dci.head; at != dci.rung; ++at) {
    const Slot& slot = slots_[dci.fifo[at & Mask()]];
    const bool last = slot.signalled;
    Target* target = slot.target;
    if (IsCurrent(slot) && !target->closed && !target->broken) {
      Break(target);
      Blame(target, StuckError(target->name, silent_ns, kMaxFailures * silent_ns));
    }
    if (last) return;
  }
}

// Notes how long the device has tried a failed request, for as long as Watch() saw it as the oldest request.
void DciPool::Measure(const Dci& dci, uint32_t index) {
  if (dci.head != dci.oldest || dci.head == dci.rung) return;
  if (dci.fifo[dci.head & Mask()] != index) return;
  counters_.longest_attempt_ns =
      std::max(counters_.longest_attempt_ns, last_watch_ns_ - dci.oldest_ns);
}

// Returns the target of the first request that reports its end, if that is a bulk slot. Returns null otherwise.
Target* DciPool::BulkInFront(const Dci& dci) const {
  for (uint32_t at = dci.head; at != dci.rung; ++at) {
    const Slot& slot = slots_[dci.fifo[at & Mask()]];
    if (slot.bulk) return slot.target;
    if (slot.notify || slot.signal) return nullptr;
  }
  return nullptr;
}

bool DciPool::IsInFront(const Target& target) const {
  return std::any_of(dcis_.begin(), dcis_.end(),
                     [&](const auto& dci) { return BulkInFront(*dci) == &target; });
}

// Returns the target of the last request on the device whose target is not closed, or null if there is none.
Target* DciPool::LastToAsk(const Dci& dci) const {
  for (uint32_t at = dci.rung; at != dci.head;) {
    Target* target = slots_[dci.fifo[--at & Mask()]].target;
    if (!target->closed) return target;
  }
  return nullptr;
}

// Handles requests without a requested completion: it is unknown whether they ran, and whether the DCI works. The next request asks for a
// completion. If there is no request within a period, the user is asked to send one.
void DciPool::SignalNext(Dci& dci) {
  dci.unsignalled = moderation_;
  Target* last = LastToAsk(dci);
  if (last == nullptr) return;
  if (dci.head == dci.unsignalled_head) {
    // The requests were flushed silently after an error of their stream. No later request on it will report this.
    if (last->broken) return StartDrain(dci);
    dci.needs_signal = some_need_signal_ = true;  // the target itself may use another DCI by now
    user_.OnUnanswered(last);
  }
  dci.unsignalled_head = dci.head;
}

}  // namespace sluice::queue
