// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/call_table.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>
#include <vector>

#include "transport/base/error.h"

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
      block_bits_(std::min(kMaxBlockBits, static_cast<uint32_t>(std::bit_width(capacity - 1)))),
      limit_(capacity),
      wheel_(wheel),
      deadlines_(wheel, now_ns, &CallTable::OnDue, this),
      on_deadline_(on_deadline),
      owner_(owner),
      on_thrown_(on_thrown) {
  assert(capacity > 0 && capacity <= kMaxCapacity);
}

// If the limit left the last block incomplete, fills that block first when the limit has risen.
bool CallTable::Grow() {
  if (places_ == limit()) return false;
  const uint32_t block_places = 1u << block_bits_;
  const uint32_t in_block = places_ % block_places;
  if (in_block == 0) blocks_.push_back(std::make_unique<Call[]>(block_places));
  const uint32_t made = std::min(block_places - in_block, limit() - places_);
  for (uint32_t i = made; i-- > 0;) {
    Call& call = blocks_.back()[in_block + i];
    call.place = places_ + i;
    call.next = free_;
    call.table = this;
    free_ = &call;
  }
  places_ += made;
  return true;
}

CallTable::~CallTable() { assert(active() == 0); }

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

Call* CallTable::FirstWaiting() { return first_; }

void CallTable::MarkSent(Call* call) {
  Move(call, CallEvent::kSend);
  Unqueue(call);
}

Call* CallTable::Find(uint64_t wire_id) {
  Call* const call = At(wire_id);
  if (call == nullptr) return nullptr;
  return call->generation == wire_id >> 32 && call->state != CallState::kFree ? call : nullptr;
}

void CallTable::End(Call* call, CallEvent event, const absl::Status& status) {
  if (call->state == CallState::kWaiting) Unqueue(call);
  Move(call, event);
  assert(call->state == CallState::kFree);
  if (call->spec.stream != nullptr) {  // messages received before can still be read
    call->spec.stream->call_id = 0;
    call->spec.stream->end.SetEnd();
  }
  if (call->attempt > 1 && call->may_have_run) [[unlikely]] {
    // `status` is about the last attempt.
    const absl::Status of_all_attempts = base::NotRetrySafe(status);
    return Finish(call, of_all_attempts);
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
  ForEachPlace([&visit](Call* call) {
    if (call->state == CallState::kSent) visit(call);
  });
}

std::vector<uint64_t> CallTable::IdsOf(const void* owner) const {
  std::vector<uint64_t> ids;
  ForEachPlace([&](Call* call) {
    if (call->state != CallState::kFree && call->spec.owner == owner) ids.push_back(WireId(*call));
  });
  return ids;
}

uint32_t CallTable::EndAll(CallState state, CallEvent event, const absl::Status& status,
                           absl::FunctionRef<bool(const Call&)> which) {
  std::vector<std::pair<Call*, uint32_t>> chosen;  // with its generation
  ForEachPlace([&](Call* call) {
    if (call->state == state && which(*call)) chosen.emplace_back(call, call->generation);
  });
  uint32_t ended = 0;
  for (const auto& [call, generation] : chosen) {
    // A callback may have ended this call, and may have started another call in its place.
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
  call->next = nullptr;
  call->previous = last_;
  (last_ == nullptr ? first_ : last_->next) = call;
  last_ = call;
  ++waiting_;
}

void CallTable::Unqueue(Call* call) {
  (call->previous == nullptr ? first_ : call->previous->next) = call->next;
  (call->next == nullptr ? last_ : call->next->previous) = call->previous;
  --waiting_;
}

}  // namespace sluice::call
