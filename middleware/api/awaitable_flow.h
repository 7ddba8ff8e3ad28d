// SPDX-License-Identifier: Apache-2.0
//
// AwaitableFlow: a flow handler for coroutines.
//
//   sluice::AwaitableFlow end(/*window=*/64);
//   sluice::Flow flow = *messenger->Open(address, "prices", end.options(), &end);
//
//   while (const auto message = co_await end.Next()) Use(*message);          // in one coroutine: until it is closed
//   const absl::Status status = co_await end.Send(flow, bytes);              // in another, or the same
//
// Purpose       Makes OnMessage() and OnWritable() awaitable. Any coroutine type may await.
//               Messages that no coroutine has taken are copied, as in FlowInbox, and slow the
//               sender down.
// Ownership     The user owns it. It outlives the flow and all coroutines that wait here. Once the
//               flow is closed, a coroutine that resumes may destroy it, if no other waits here.
// Threads       The messenger's thread. A waiting coroutine resumes inside Poll(), Drive() or
//               Close(), and may call all that a handler may call.
// Limits        One coroutine may wait for messages and one for room at a time. At most `window`
//               messages are kept.
// End           When the flow is closed, both coroutines resume: received messages can still be
//               taken; a message that could not be sent is not sent. A coroutine may be destroyed
//               while it waits.
#ifndef SLUICE_MIDDLEWARE_API_AWAITABLE_FLOW_H_
#define SLUICE_MIDDLEWARE_API_AWAITABLE_FLOW_H_

#include <cassert>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "middleware/api/flow_inbox.h"
#include "middleware/flow/flow.h"

namespace sluice {

class AwaitableFlow final : public flow::FlowHandler {
 public:
  explicit AwaitableFlow(uint32_t window) : inbox_(window) {}
  ~AwaitableFlow() override {
    assert(!reader_ && !writer_);
    if (destroyed_ != nullptr) *destroyed_ = true;
  }
  AwaitableFlow(const AwaitableFlow&) = delete;
  AwaitableFlow& operator=(const AwaitableFlow&) = delete;

  // Options to open or accept the flow with.
  flow::FlowOptions options() const { return inbox_.options(); }
  bool is_open() const { return inbox_.is_open(); }
  bool closed() const { return inbox_.closed(); }
  // Reason for the end of the flow. Valid once closed() is true.
  const absl::Status& why() const { return inbox_.why(); }

  class NextMessage;
  class Room;
  class Sending;
  // co_await it: gives the next message, which is valid until the next call of Next(). Gives
  // nullopt when the flow is closed; why() has the reason.
  NextMessage Next();
  // co_await it after Send() or Reserve() of the flow returned RESOURCE_EXHAUSTED: gives true when
  // the program may retry, false when the flow is closed.
  Room Writable();
  // co_await it: sends `message` as soon as there is room, and gives OK or the error of
  // Flow::Send(). `message` must stay valid until then.
  Sending Send(flow::Flow flow, std::span<const std::byte> message);

  void OnOpen(flow::Flow flow) override { inbox_.OnOpen(flow); }
  void OnMessage(flow::Flow flow, std::span<const std::byte> message) override {
    inbox_.OnMessage(flow, message);
    Continue(reader_);
  }
  void OnWritable(flow::Flow flow) override;
  void OnClosed(flow::Flow flow, const absl::Status& why, const flow::FlowTotals& totals) override;

 private:
  // Resumes the waiter, which may wait again at once.
  static void Continue(std::coroutine_handle<>& waiter) {
    if (waiter) std::exchange(waiter, {}).resume();
  }

  FlowInbox inbox_;
  bool taken_ = false;     // Next() has given out the front of the inbox
  bool writable_ = false;  // OnWritable() came since the last wait
  std::coroutine_handle<> reader_;
  std::coroutine_handle<> writer_;
  Sending* sending_ = nullptr;  // Send() that the writer awaits; nullptr: none
  bool* destroyed_ = nullptr;   // OnClosed() runs: set by the destructor
};

// Base class of the awaiters. Stores the waiting coroutine in `*place`, and clears it if the
// coroutine is destroyed while it waits.
class FlowWait {
 public:
  explicit FlowWait(std::coroutine_handle<>* place) : place_(place) {}
  ~FlowWait() {
    if (waits_) *place_ = {};
  }
  FlowWait(const FlowWait&) = delete;
  FlowWait& operator=(const FlowWait&) = delete;
  void await_suspend(std::coroutine_handle<> handle) {
    assert(!*place_);  // another coroutine waits here already
    *place_ = handle;
    waits_ = true;
  }

 protected:
  bool waits() const { return waits_; }
  void Resumed() { waits_ = false; }

 private:
  std::coroutine_handle<>* const place_;
  bool waits_ = false;
};

class [[nodiscard]] AwaitableFlow::NextMessage : public FlowWait {
 public:
  explicit NextMessage(AwaitableFlow* end) : FlowWait(&end->reader_), end_(end) {}
  bool await_ready() const { return end_->inbox_.ready() || end_->closed(); }
  std::optional<std::span<const std::byte>> await_resume() {
    Resumed();
    if (!end_->inbox_.ready()) return std::nullopt;
    end_->taken_ = true;
    return end_->inbox_.Front();
  }

 private:
  AwaitableFlow* const end_;
};

class [[nodiscard]] AwaitableFlow::Room : public FlowWait {
 public:
  explicit Room(AwaitableFlow* end) : FlowWait(&end->writer_), end_(end) {}
  bool await_ready() const { return end_->writable_ || end_->closed(); }
  bool await_resume() {
    Resumed();
    end_->writable_ = false;
    return !end_->closed();
  }

 private:
  AwaitableFlow* const end_;
};

class [[nodiscard]] AwaitableFlow::Sending : public FlowWait {
 public:
  Sending(AwaitableFlow* end, flow::Flow flow, std::span<const std::byte> message)
      : FlowWait(&end->writer_), end_(end), flow_(flow), message_(message) {}
  ~Sending() {
    if (waits()) end_->sending_ = nullptr;
  }
  bool await_ready() {
    // The messenger of a closed flow may have ended.
    status_ =
        end_->closed() ? absl::FailedPreconditionError("the flow is closed") : flow_.Send(message_);
    return !absl::IsResourceExhausted(status_);
  }
  void await_suspend(std::coroutine_handle<> handle) {
    FlowWait::await_suspend(handle);
    end_->sending_ = this;
  }
  absl::Status await_resume() {
    Resumed();
    return status_;
  }

 private:
  AwaitableFlow* const end_;
  const flow::Flow flow_;
  const std::span<const std::byte> message_;
  absl::Status status_;
};

inline void AwaitableFlow::OnWritable(flow::Flow) {
  writable_ = true;
  // If the flow refuses the message again, another OnWritable() follows.
  if (sending_ != nullptr && !sending_->await_ready()) return;
  sending_ = nullptr;
  Continue(writer_);
}

inline void AwaitableFlow::OnClosed(flow::Flow flow, const absl::Status& why,
                                    const flow::FlowTotals& totals) {
  inbox_.OnClosed(flow, why, totals);
  if (sending_ != nullptr) sending_->await_ready();  // refused: the flow is closed
  sending_ = nullptr;
  // The writer may own this object, and end. It must have ended the reader before.
  bool destroyed = false;
  destroyed_ = &destroyed;
  Continue(writer_);
  if (destroyed) return;
  destroyed_ = nullptr;
  Continue(reader_);
}

inline AwaitableFlow::NextMessage AwaitableFlow::Next() {
  if (std::exchange(taken_, false)) inbox_.Pop();
  return NextMessage(this);
}
inline AwaitableFlow::Room AwaitableFlow::Writable() { return Room(this); }
inline AwaitableFlow::Sending AwaitableFlow::Send(flow::Flow flow,
                                                  std::span<const std::byte> message) {
  return Sending(this, flow, message);
}

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_AWAITABLE_FLOW_H_
