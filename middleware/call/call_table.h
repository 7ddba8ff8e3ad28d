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

// Callback of a call. Runs exactly once for each call that was started, on the polling thread. May start other calls.
using Done = void (*)(void* argument, const absl::Status& status);

// As Done, but with data of its own instead of an argument.
using Callback = absl::AnyInvocable<void(const absl::Status& status) &&>;

// Lets another thread cancel a call. Outlives the call.
struct CallControl {
  std::atomic<uint64_t> call_id{0};  // set when it starts; for ClientEngine::Cancel()
  std::atomic<bool> cancelled{false};
  // Requests cancellation; any thread. Returns true if the call was started: pass `*id` to ClientEngine::Cancel(). Returns false if it
  // was not started yet: if it is started later, the engine ends it with CANCELLED in the next Poll().
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
  // Replaces `done`, which is nullptr then. The callback is moved from here only if the call is started.
  Callback* callback = nullptr;
  int64_t timeout_ns = 0;                 // from the start of the call; kNoDeadlineNs: none
  int64_t deadline_ns = kNoDeadlineNs;    // in the channel's clock; the earlier of the two applies
  bool wait_for_ready = false;            // without a connection: wait instead of failing
  std::string_view metadata;              // serialised; sent with the request
  std::span<const std::byte> attachment;  // sent with the request; valid until `done`
  const Buffer* buffer = nullptr;         // contains the attachment; nullptr: other memory does
  Beside* reply_beside = nullptr;         // for metadata and attachment of the reply
  const void* owner = nullptr;            // user of a shared engine, for EndCallsOf()
  CallControl* control = nullptr;         // nullptr: no other thread cancels it
  ClientStream* stream = nullptr;         // for a streaming method
};

class CallTable;

struct Call : Deadline {
  CallSpec spec;
  CallTable* table = nullptr;
  int64_t started_ns = 0;                 // set by the engine, as is `stats`
  observe::MethodStats* stats = nullptr;  // counts the end of the call; nullptr: not counted
  base::Timer pause;                      // timer between two attempts
  Connection* connection = nullptr;       // on which the call was sent
  uint32_t attempt = 1;
  bool may_have_run = false;        // an earlier attempt may have run; valid if `attempt` > 1
  std::string_view first_metadata;  // of the caller, for the attempts after the first
  std::string metadata;             // of the present attempt, if it is not the first
  Callback callback;                // if spec.done is nullptr
  CallState state = CallState::kFree;
  uint32_t place = 0;
  uint32_t generation = 1;
  Call* next = nullptr;      // in the free list or the queue
  Call* previous = nullptr;  // in the queue
};

class CallTable {
 public:
  static constexpr uint32_t kMaxCapacity = 1u << 20;

  // `now_ns`: time that TimerWheel::Advance() is called with. `on_deadline`: called inside Advance() for each call whose deadline has
  // passed; it calls End(). `on_thrown`: called in a catch block if a callback throws; nullptr: the exception is thrown again.
  CallTable(uint32_t capacity, base::TimerWheel* wheel, const int64_t* now_ns,
            void (*on_deadline)(void* owner, Call* call), void* owner,
            void (*on_thrown)(void* owner, const Method& method) = nullptr);
  ~CallTable();
  CallTable(const CallTable&) = delete;
  CallTable& operator=(const CallTable&) = delete;

  // Returns the maximum number of owners: more would need more places than kMaxCapacity.
  static uint32_t MaxOwners(uint32_t capacity) { return kMaxCapacity / capacity; }
  // Allows `capacity` calls for each of `owners` owners, at most MaxOwners(). The limit never decreases.
  void AllowOwners(uint32_t owners) {
    limit_.store(std::max(limit(), owners * capacity_), std::memory_order_relaxed);
  }

  // Starts a call at the end of the queue. Returns nullptr if the table is full.
  Call* Start(const CallSpec& spec, int64_t deadline_ns);

  // As Start(), for a call that is sent at once because the queue is empty.
  Call* StartSent(const CallSpec& spec, int64_t deadline_ns) {
    Call* call = Take(spec, deadline_ns);
    constexpr CallState kStarted = CallStateAfter(CallState::kFree, CallEvent::kStart);
    if (call != nullptr) call->state = CallStateAfter(kStarted, CallEvent::kSend);
    return call;
  }

  Call* FirstWaiting();
  // Removes the call from the queue. From now on FindSent() finds it.
  void MarkSent(Call* call);

  // Returns the number of the present attempt on the wire. Find() accepts the number of any attempt until the call ends.
  static uint64_t WireId(const Call& call) {
    return static_cast<uint64_t>(call.generation) << 32 | (call.attempt - 1) << kPlaceBits |
           call.place;
  }
  // The same while the first attempt is the present one. One load: `place` and `generation` are adjacent.
  static uint64_t FirstWireId(const Call& call) {
    return static_cast<uint64_t>(call.generation) << 32 | call.place;
  }
  // Returns the call whose present attempt has this number, if that attempt was sent and has not ended; else nullptr. Takes any number.
  Call* FindSent(uint64_t wire_id) {
    Call* const call = At(wire_id);
    if (call == nullptr) return nullptr;
    return call->state == CallState::kSent && WireId(*call) == wire_id ? call : nullptr;
  }

  // Returns a call that has not ended, sent or not, by the number of any of its attempts; nullptr: no such call.
  Call* Find(uint64_t wire_id);

  // Ends a sent call without a stream with success, as End() with kReply does.
  void EndOk(Call* call) {
    assert(call->state == CallState::kSent && call->spec.stream == nullptr);
    call->state = CallStateAfter(CallState::kSent, CallEvent::kReply);
    Finish(call, absl::OkStatus());
  }

  // Ends the call: frees its place, then runs its callback, which may reuse the place. The engine counts the end. If an earlier attempt
  // may have run, the callback gets a status that is not retry-safe.
  void End(Call* call, CallEvent event, const absl::Status& status);

  // Ends each call in `state` for which `which` returns true, and counts it in its stats. Returns the number of ended calls. Callbacks
  // may start calls, which are not visited.
  uint32_t EndAll(CallState state, CallEvent event, const absl::Status& status,
                  absl::FunctionRef<bool(const Call&)> which);

  // Returns the numbers of the owner's calls that have not ended, for Find().
  std::vector<uint64_t> IdsOf(const void* owner) const;

  // Pause() ends a failed attempt: FindSent() no longer finds its number. Again() puts the call at the end of the queue.
  void Pause(Call* call);
  void Again(Call* call);

  // Visits each sent call. `visit` may pause calls, but must not end any.
  void ForEachSent(absl::FunctionRef<void(Call*)> visit);

  void* owner() const { return owner_; }
  // Any thread may call active() and limit().
  uint32_t active() const { return active_.load(std::memory_order_relaxed); }
  uint32_t waiting() const { return waiting_; }
  uint32_t limit() const { return limit_.load(std::memory_order_relaxed); }
  // Call before a sleep: TimerWheel::NextWakeNs() then takes the first deadline into account exactly.
  void SettleDeadlines() { deadlines_.Settle(); }

 private:
  static constexpr uint32_t kPlaceBits = 20;
  static_assert(kMaxCapacity <= 1u << kPlaceBits);
  static constexpr uint32_t kMaxBlockBits = 6;

  static void OnDue(void* context, Deadline* due);
  // Returns nullptr if there is no such place.
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
    // That of a free place is empty: there is nothing to destroy.
    if (spec.callback != nullptr) std::construct_at(&call->callback, std::move(*spec.callback));
    call->deadline_ns = deadline_ns;
    call->attempt = 1;
    active_.store(active() + 1, std::memory_order_relaxed);
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
    Callback callback = std::move(call->callback);  // running it may reuse the place
    Release(call);
    try {
      std::move(callback)(status);
    } catch (...) {
      Thrown(*method);
    }
  }
  // Creates more places. Returns false if limit_ places exist.
  [[gnu::cold, gnu::noinline]] bool Grow();
  [[gnu::cold, gnu::noinline]] void Thrown(const Method& method);
  void Enqueue(Call* call);
  void Unqueue(Call* call);
  void Release(Call* call) {
    if (call->deadline_ns != kNoDeadlineNs) deadlines_.Remove(call);
    if (call->attempt > 1) wheel_->Cancel(&call->pause);
    if (call->connection != nullptr) --std::exchange(call->connection, nullptr)->outstanding;
    if (++call->generation == 0) [[unlikely]]
      call->generation = 1;
    call->next = free_;
    free_ = call;
    active_.store(active() - 1, std::memory_order_relaxed);
  }

  const uint32_t capacity_;      // calls of each owner
  const uint32_t block_bits_;    // low bits of a place's number: its index in the block
  std::atomic<uint32_t> limit_;  // calls of all owners together
  uint32_t places_ = 0;          // created so far
  base::TimerWheel* const wheel_;
  Deadlines deadlines_;
  void (*const on_deadline_)(void* owner, Call* call);
  void* const owner_;
  void (*const on_thrown_)(void* owner, const Method& method);
  std::vector<std::unique_ptr<Call[]>> blocks_;  // of 1 << block_bits_ calls
  Call* free_ = nullptr;
  Call* first_ = nullptr;  // of the queue
  Call* last_ = nullptr;
  std::atomic<uint32_t> active_{0};
  uint32_t waiting_ = 0;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_CALL_TABLE_H_
