// SPDX-License-Identifier: Apache-2.0
//
// CallTable: the calls of one channel that have not ended.
//
// Purpose       An array of places. On the wire, place and generation identify a call, so a late reply to an ended call or to an
//               abandoned attempt matches no call. Calls that wait to be sent form a FIFO queue through the same places. The
//               places are made in blocks, when they are first needed; otherwise a call allocates nothing.
// Ownership     ClientEngine. Request, response and callback argument belong to the caller, and stay valid until the callback runs.
// Threads       The polling thread.
// Limits        `capacity` calls for each owner. Start() returns nullptr when all places are taken.
// End           All calls must have ended before the table is destroyed.
#ifndef SLUICE_MIDDLEWARE_CALL_CALL_TABLE_H_
#define SLUICE_MIDDLEWARE_CALL_CALL_TABLE_H_

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "middleware/call/call_state.h"
#include "middleware/call/client_stream.h"
#include "middleware/call/connection.h"
#include "middleware/call/deadlines.h"
#include "middleware/call/method.h"
#include "middleware/observe/call_stats.h"
#include "transport/base/timer_wheel.h"

namespace sluice::call {

// Runs exactly once per call that was started, on the thread that polls. May start other calls.
using Done = void (*)(void* argument, const absl::Status& status);

// The same, with what it needs in it.
using Callback = absl::AnyInvocable<void(const absl::Status& status) &&>;

// For who may want to end a call from another thread. Outlives the call.
struct CallControl {
  std::atomic<uint64_t> call_id{0};  // set when it starts; for ClientEngine::Cancel()
  std::atomic<bool> cancelled{false};
  // True: it has a number by which it can be cancelled. False: it was not started, and won't be.
  bool Cancel(uint64_t* id) {
    cancelled.store(true, std::memory_order_seq_cst);
    *id = call_id.load(std::memory_order_seq_cst);
    return *id != 0;
  }
};

struct CallSpec {
  const Method* method = nullptr;
  const google::protobuf::MessageLite* request = nullptr;
  google::protobuf::MessageLite* reply = nullptr;  // filled before `done` runs with OK
  Done done = nullptr;
  void* argument = nullptr;
  // Instead of `done`, which is nullptr then: moved out of here when the call is started, and only then.
  Callback* callback = nullptr;
  int64_t timeout_ns = 0;                 // from the start of the call; kNoDeadlineNs: none
  int64_t deadline_ns = kNoDeadlineNs;    // of the channel's clock; the earlier of the two counts
  bool wait_for_ready = false;            // no connection: wait for one instead of failing
  std::string_view metadata;              // serialised; goes with the request
  std::span<const std::byte> attachment;  // the same; stays until `done`
  const Buffer* buffer = nullptr;         // in which the attachment stands; nullptr: elsewhere
  Beside* reply_beside = nullptr;         // where what comes with the reply goes
  const void* owner = nullptr;            // for EndCallsOf(): who shares the engine with others
  CallControl* control = nullptr;         // nullptr: nobody else cancels it
  ClientStream* stream = nullptr;         // of a method that streams
};

class CallTable;

struct Call : Deadline {
  CallSpec spec;
  CallTable* table = nullptr;
  int64_t started_ns = 0;                 // these two are the engine's
  observe::MethodStats* stats = nullptr;  // where its end is counted; nullptr: nowhere
  base::Timer pause;                      // between two attempts
  Connection* connection = nullptr;       // over which it was sent
  uint32_t attempt = 1;
  std::string_view first_metadata;  // the caller's
  std::string metadata;             // of this attempt, if it is not the first
  Callback callback;                // of a call that has no spec.done
  CallState state = CallState::kFree;
  uint32_t place = 0;
  uint32_t generation = 1;
  Call* next = nullptr;      // in the free list or the queue
  Call* previous = nullptr;  // in the queue
};

class CallTable {
 public:
  static constexpr uint32_t kMaxCapacity = 1u << 20;

  // `now_ns`: the time that TimerWheel::Advance() is called with. `on_deadline` runs in it for a call whose time is up; it
  // calls End(). `on_thrown` runs in the catch block of an exception that left a callback; without it such an exception goes on.
  CallTable(uint32_t capacity, base::TimerWheel* wheel, const int64_t* now_ns,
            void (*on_deadline)(void* owner, Call* call), void* owner,
            void (*on_thrown)(void* owner, const Method& method) = nullptr);
  ~CallTable();
  CallTable(const CallTable&) = delete;
  CallTable& operator=(const CallTable&) = delete;

  // There are numbers for the places of so many owners.
  static uint32_t MaxOwners(uint32_t capacity) { return kMaxCapacity / capacity; }
  // So many owners have `capacity` places each, or more had before; at most MaxOwners().
  void AllowOwners(uint32_t owners) { limit_ = std::max(limit_, owners * capacity_); }

  // At the end of the queue. nullptr: full.
  Call* Start(const CallSpec& spec, int64_t deadline_ns);

  // The same for a call that is sent at once, because nobody waits in front of it.
  Call* StartSent(const CallSpec& spec, int64_t deadline_ns) {
    Call* call = Take(spec, deadline_ns);
    constexpr CallState kStarted = CallStateAfter(CallState::kFree, CallEvent::kStart);
    if (call != nullptr) call->state = CallStateAfter(kStarted, CallEvent::kSend);
    return call;
  }

  Call* FirstWaiting();
  // Takes it out of the queue; from now on replies find it.
  void MarkSent(Call* call);

  // Of this attempt. The number of the first one names the call for Find() as long as it lives.
  static uint64_t WireId(const Call& call) {
    return static_cast<uint64_t>(call.generation) << 32 | (call.attempt - 1) << kPlaceBits |
           call.place;
  }
  // An attempt that has been sent and has not ended; nullptr for anything else, whatever the number is.
  Call* FindSent(uint64_t wire_id) {
    Call* const call = At(wire_id);
    if (call == nullptr) return nullptr;
    return call->state == CallState::kSent && WireId(*call) == wire_id ? call : nullptr;
  }

  // A call that has not ended, sent or not, by the number of any of its attempts.
  Call* Find(uint64_t wire_id);

  // Of a call that was sent, has no stream, and was answered with success: the same as End() with kReply.
  void EndOk(Call* call) {
    assert(call->state == CallState::kSent && call->spec.stream == nullptr);
    call->state = CallStateAfter(CallState::kSent, CallEvent::kReply);
    Finish(call, absl::OkStatus());
  }

  // Frees the place, then runs the callback, which may reuse the place. Counting the end is the engine's.
  void End(Call* call, CallEvent event, const absl::Status& status);

  // Ends every call in `state` for which `which` says so, counts it, and says how many those were. The
  // callbacks may start calls; those are not visited.
  uint32_t EndAll(CallState state, CallEvent event, const absl::Status& status,
                  absl::FunctionRef<bool(const Call&)> which);

  // Of calls that have not ended, for Find().
  std::vector<uint64_t> IdsOf(const void* owner) const;

  // An attempt has failed: its number finds nobody any more. Again() puts the call at the end of the queue.
  void Pause(Call* call);
  void Again(Call* call);

  // `visit` may pause a call, and end none.
  void ForEachSent(absl::FunctionRef<void(Call*)> visit);

  void* owner() const { return owner_; }
  uint32_t active() const { return active_; }
  uint32_t waiting() const { return waiting_; }
  uint32_t limit() const { return limit_; }
  // Before a sleep: the wheel then says when the first deadline is.
  void SettleDeadlines() { deadlines_.Settle(); }

 private:
  static constexpr uint32_t kPlaceBits = 20;
  static_assert(kMaxCapacity <= 1u << kPlaceBits);
  static constexpr uint32_t kMaxBlockBits = 6;

  static void OnDue(void* context, Deadline* due);
  // nullptr: no such place.
  Call* At(uint64_t wire_id) const {
    const auto place = static_cast<uint32_t>(wire_id) & ((1u << kPlaceBits) - 1);
    if (place >= places_) return nullptr;
    return &blocks_[place >> block_bits_][place & ((1u << block_bits_) - 1)];
  }
  template <typename Visit>
  void ForEachPlace(const Visit& visit) const {
    for (uint32_t place = 0; place < places_; ++place) visit(At(place));
  }
  Call* Take(const CallSpec& spec, int64_t deadline_ns) {
    if (free_ == nullptr && !Grow()) [[unlikely]]
      return nullptr;
    Call* const call = free_;
    assert(call->state == CallState::kFree);
    free_ = call->next;
    call->spec = spec;
    if (spec.callback != nullptr) call->callback = std::move(*spec.callback);
    call->deadline_ns = deadline_ns;
    call->attempt = 1;
    ++active_;
    if (deadline_ns != kNoDeadlineNs) deadlines_.Add(call);
    return call;
  }
  // Frees the place of a call that has ended, then runs its callback.
  void Finish(Call* call, const absl::Status& status) {
    const Method* const method = call->spec.method;
    const Done done = call->spec.done;
    if (done != nullptr) {
      void* const argument = call->spec.argument;
      Release(call);
      try {
        done(argument, status);
      } catch (...) {
        Thrown(*method);
      }
      return;
    }
    Callback callback = std::move(call->callback);  // the place may be taken again while it runs
    Release(call);
    try {
      std::move(callback)(status);
    } catch (...) {
      Thrown(*method);
    }
  }
  // Makes more places. False: as many as allowed are there.
  [[gnu::cold, gnu::noinline]] bool Grow();
  [[gnu::cold, gnu::noinline]] void Thrown(const Method& method);
  void Enqueue(Call* call);
  void Unqueue(Call* call);
  void Release(Call* call) {
    if (call->deadline_ns != kNoDeadlineNs) deadlines_.Remove(call);
    if (call->attempt > 1) wheel_->Cancel(&call->pause);
    if (call->connection != nullptr) --std::exchange(call->connection, nullptr)->outstanding;
    if (++call->generation == 0) call->generation = 1;
    call->next = free_;
    free_ = call;
    --active_;
  }

  const uint32_t capacity_;    // of each owner
  const uint32_t block_bits_;  // of a place's number: where in its block
  uint32_t limit_;             // of all owners together
  uint32_t places_ = 0;        // made so far
  base::TimerWheel* const wheel_;
  Deadlines deadlines_;
  void (*const on_deadline_)(void* owner, Call* call);
  void* const owner_;
  void (*const on_thrown_)(void* owner, const Method& method);
  std::vector<std::unique_ptr<Call[]>> blocks_;  // of 1 << block_bits_ calls
  Call* free_ = nullptr;
  Call* first_ = nullptr;  // of the queue
  Call* last_ = nullptr;
  uint32_t active_ = 0;
  uint32_t waiting_ = 0;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_CALL_TABLE_H_
