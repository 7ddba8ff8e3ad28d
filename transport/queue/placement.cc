// SPDX-License-Identifier: Apache-2.0
//
// Selects the DCI and stream of each request, and the order of waiting targets (docs/decisions/0017).
#include <algorithm>
#include <cassert>

#include "transport/queue/dci_pool.h"

namespace sluice::queue {

// Selects another DCI for a target that has no stream or may not stay on its DCI.
Dci* DciPool::PlaceElsewhere(Target* target) {
  Dci* current = nullptr;
  if (target->stream != kNoStream) {
    current = dcis_[target->dci].get();
    // Order: requests in flight and later requests use the same stream of the same DCI.
    if (!MayLeave(*target)) return nullptr;
  }
  Dci* dci = Choose(*target, current);
  if (dci == nullptr) return nullptr;
  if (current != nullptr) Leave(target);
  Bind(target, *dci);
  return dci;
}

// Without streams, requests on DCIs that the target has left do not count. They may stay there, without a requested completion, until
// another request uses that DCI.
bool DciPool::AtCapOf(const Target& target, const Dci& dci) const {
  const uint32_t cap = CapOf(target);
  if (target.posted < cap) return false;
  uint32_t here = 0;
  for (uint32_t at = dci.head; at != dci.tail; ++at) {
    here += slots_[dci.fifo[at & Mask()]].target == &target ? 1 : 0;
  }
  return here >= cap;
}

// Returns whether all posted data of the target is acknowledged, and no control request with `notify` is posted. Such a request must stay
// ahead of later requests, for example the answer that ends a handshake.
bool DciPool::MayLeave(const Target& target) {
  if (target.data.CountData(slots_, target.unacknowledged) < target.unacknowledged) return false;
  const Dci& dci = *dcis_[target.dci];
  for (uint32_t at = dci.head; at != dci.tail; ++at) {
    const Slot& slot = slots_[dci.fifo[at & Mask()]];
    if (slot.target == &target && slot.control && slot.notify) return false;
  }
  return true;
}

// Returns the first suitable DCI: few busy queues make long batches and leave the other queues in reserve. Without streams, returns the
// suitable DCI with the fewest posted requests, because a DCI serves its targets one after the other.
Dci* DciPool::Choose(const Target& target, const Dci* except) {
  // If no DCI of its class is alive, the target uses any DCI.
  const bool any = living_[target.probation] == 0;
  Dci* first = nullptr;
  Dci* second = nullptr;
  for (const auto& dci : dcis_) {
    if (!any && dci->probation != target.probation) continue;
    if (except != nullptr && (dci.get() == except || dci->late)) continue;
    if (!CanTake(*dci) || (exclusive_ && dci->free_streams.empty())) continue;
    // Second choice: a DCI that other targets have left, or that the next errored stream would stop. If each error stops a DCI: instead a
    // DCI with requests of a closed target, because these may fail soon.
    const bool risky = error_limit_ > 1 ? dci->errored + 1 >= error_limit_ : dci->HoldsDisowned();
    if (dci->needs_signal) return dci.get();
    Dci*& choice = dci->late || risky ? second : first;
    if (choice == nullptr || (!exclusive_ && Posted(*dci) < Posted(*choice))) choice = dci.get();
    if (exclusive_ && first != nullptr && !some_need_signal_) break;
  }
  some_need_signal_ = false;  // Watch() sets it again if necessary
  return first != nullptr ? first : second;
}

void DciPool::Bind(Target* target, Dci& dci) {
  target->dci = dci.index;
  target->stream = 0;
  if (dci.needs_signal) dci.needs_signal = some_need_signal_ = false;
  if (!exclusive_) return;
  target->stream = dci.free_streams.back();
  dci.free_streams.pop_back();
  Stream& stream = dci.streams[target->stream];
  const bool bound = Next(stream.state, StreamEvent::kBind, &stream.state);
  assert(bound);
  (void)bound;
}

// Leaves a stream whose data is acknowledged but whose completions are late. The stream becomes free when they have arrived.
void DciPool::Leave(Target* target) {
  Dci& dci = *dcis_[target->dci];
  if (exclusive_) {
    Stream& stream = dci.streams[target->stream];
    Next(stream.state, StreamEvent::kLeave, &stream.state);
  }
  target->stream = kNoStream;
  dci.unsignalled = moderation_;  // its last requests may be unsignalled: signal the next request
  dci.late = true;
  ++counters_.leaves;
}

// Deficit round robin. While other targets wait for a stream, a target has its stream for one turn. Otherwise it keeps its stream as long
// as it uses it.
void DciPool::Pump() {
  WaitingList::Line& bound = waiting_.bound();
  for (size_t left = bound.size(); left > 0; --left) {
    const WaitingList::Entry entry = bound.front();
    bound.pop_front();
    waiting_.Add(
        {entry.target, entry.deficit_bytes});  // to the other list if it has lost its stream
  }
  for (const bool probation : {false, true}) {
    WaitingList::Line& line = waiting_.unbound(probation);
    while (!line.empty() && Place(line.front().target) != nullptr) {
      WaitingList::Entry entry = line.front();
      line.pop_front();
      Refill(entry);
      Serve(entry);
    }
  }
  // In turn, as long as a target can post.
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t turns = bound.size(); turns > 0 && !bound.empty(); --turns) {
      WaitingList::Entry entry = bound.front();
      bound.pop_front();
      if (!waiting_.crowded(*entry.target)) Refill(entry);
      moves |= Serve(entry);
    }
  }
  Flush();
}

void DciPool::Refill(WaitingList::Entry& entry) const {
  entry.deficit_bytes = std::min(entry.deficit_bytes, quantum_bytes_) + quantum_bytes_;
}

// Serves a turn: posts the requests that the deficit allows. A target with more requests waits again. Returns whether a request was posted.
bool DciPool::Serve(WaitingList::Entry entry) {
  Target* target = entry.target;
  bool posted = false;
  while (target->has_pending()) {
    SlotList& list = target->control.empty() ? target->data : target->control;
    // A piece of a large message may be larger than the quantum: it costs a whole turn.
    const Slot& front = slots_[list.Front(slots_)];
    const uint32_t bytes = front.messages > 1 ? front.write.length_bytes : front.length_bytes;
    const uint32_t cost_bytes = std::min(bytes + kRequestBytes, quantum_bytes_);
    if (cost_bytes > entry.deficit_bytes) break;
    Dci* dci = Place(target);
    if (dci == nullptr) break;
    entry.deficit_bytes -= cost_bytes;
    Append(*dci, target, list.PopFront(slots_));
    posted = true;
  }
  target->waiting = false;
  if (target->has_pending()) waiting_.Add(entry);
  return posted;
}

}  // namespace sluice::queue
