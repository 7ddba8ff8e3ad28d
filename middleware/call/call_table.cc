// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/call_table.h"

#include <cassert>
#include <utility>
#include <vector>

namespace sluice::call {
namespace {

void Move(Call* call, CallEvent event) {
  [[maybe_unused]] const bool legal = NextCallState(call->state, event, &call->state);
  assert(legal);
}

}  // namespace

CallTable::CallTable(uint32_t capacity, base::TimerWheel* wheel, const int64_t* now_ns,
                     void (*on_deadline)(void* owner, Call* call), void* owner,
                     void (*on_thrown)(void* owner, const Method& method))
    : capacity_(capacity),
      wheel_(wheel),
      deadlines_(wheel, now_ns, &CallTable::OnDue, this),
      on_deadline_(on_deadline),
      owner_(owner),
      on_thrown_(on_thrown),
      calls_(std::make_unique<Call[]>(capacity)) {
  assert(capacity > 0 && capacity <= kMaxCapacity);
  for (uint32_t place = capacity; place-- > 0;) {
    Call& call = calls_[place];
    call.place = place;
    call.next = free_;
    call.table = this;
    free_ = place;
  }
}

CallTable::~CallTable() { assert(active_ == 0); }

void CallTable::OnDue(void* context, Deadline* due) {
  auto* const self = static_cast<CallTable*>(context);
  self->on_deadline_(self->owner_, static_cast<Call*>(due));
}

Call* CallTable::Start(const CallSpec& spec, int64_t deadline_ns) {
  Call* call = Take(spec, deadline_ns);
  if (call == nullptr) return nullptr;
  Move(call, CallEvent::kStart);
  Enqueue(call);
  return call;
}

Call* CallTable::FirstWaiting() { return first_ == kNil ? nullptr : &calls_[first_]; }

void CallTable::MarkSent(Call* call) {
  Move(call, CallEvent::kSend);
  Unqueue(call);
}

Call* CallTable::Find(uint64_t wire_id) {
  const auto place = static_cast<uint32_t>(wire_id) & ((1u << kPlaceBits) - 1);
  if (place >= capacity_) return nullptr;
  Call* call = &calls_[place];
  return call->generation == wire_id >> 32 && call->state != CallState::kFree ? call : nullptr;
}

void CallTable::End(Call* call, CallEvent event, const absl::Status& status) {
  if (call->state == CallState::kWaiting) Unqueue(call);
  Move(call, event);
  assert(call->state == CallState::kFree);
  if (call->spec.stream != nullptr) {  // what came in before may still be read
    call->spec.stream->call_id = 0;
    call->spec.stream->end.SetEnd();
  }
  Finish(call, status);
}

void CallTable::Pause(Call* call) {
  Move(call, CallEvent::kRetry);
  --std::exchange(call->connection, nullptr)->outstanding;
  ++call->attempt;
}

void CallTable::Again(Call* call) {
  Move(call, CallEvent::kAgain);
  wheel_->Cancel(&call->pause);
  Enqueue(call);
}

void CallTable::ForEachSent(absl::FunctionRef<void(Call*)> visit) {
  for (uint32_t place = 0; place < capacity_; ++place) {
    if (calls_[place].state == CallState::kSent) visit(&calls_[place]);
  }
}

uint32_t CallTable::EndAll(CallState state, CallEvent event, const absl::Status& status,
                           absl::FunctionRef<bool(const Call&)> which) {
  std::vector<std::pair<uint32_t, uint32_t>> chosen;  // place, generation
  for (uint32_t place = 0; place < capacity_; ++place) {
    const Call& call = calls_[place];
    if (call.state == state && which(call)) chosen.emplace_back(place, call.generation);
  }
  uint32_t ended = 0;
  for (const auto& [place, generation] : chosen) {
    Call* call = &calls_[place];
    // A callback may have ended it, and may have started another one in its place.
    if (call->state != state || call->generation != generation) continue;
    if (call->stats != nullptr) call->stats->CountEnd(status);
    End(call, event, status);
    ++ended;
  }
  return ended;
}

void CallTable::Thrown(const Method& method) {
  if (on_thrown_ == nullptr) throw;
  on_thrown_(owner_, method);
}

void CallTable::Enqueue(Call* call) {
  call->next = kNil;
  call->previous = last_;
  (last_ == kNil ? first_ : calls_[last_].next) = call->place;
  last_ = call->place;
  ++waiting_;
}

void CallTable::Unqueue(Call* call) {
  (call->previous == kNil ? first_ : calls_[call->previous].next) = call->next;
  (call->next == kNil ? last_ : calls_[call->next].previous) = call->previous;
  --waiting_;
}

}  // namespace sluice::call
