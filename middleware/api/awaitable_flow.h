// SPDX-License-Identifier: Apache-2.0
//
// AwaitableFlow: a handler for coroutines.
//
//   sluice::AwaitableFlow end(/*window=*/64);
//   sluice::Flow flow = *messenger->Open(address, "prices", end.options(), &end);
//
//   while (const auto message = co_await end.Next()) Use(*message);          // in one coroutine: until it is closed
//   const absl::Status status = co_await end.Send(flow, bytes);              // in another, or the same
//
// What it is    OnMessage() and OnWritable() as things to wait for. It brings no type of coroutine: any that may await what it
//               likes will do. Messages that nobody waits for are copied, as in FlowInbox, and slow the sender down.
// Bound         One coroutine waits for messages and one for room at a time; `window` messages.
// Who owns it   The user; it outlives the flow and whoever waits here.
// Which thread  The messenger's. Who waits goes on inside Poll(), Drive() or Close(), and may do what a handler may.
// What ends it  When the flow is closed both go on: messages that have come are still there, then there are none; a message
//               that could not be sent is not. Nobody is left waiting. A coroutine may be destroyed while it waits.
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
  ~AwaitableFlow() override { assert(!reader_ && !writer_); }
  AwaitableFlow(const AwaitableFlow&) = delete;
  AwaitableFlow& operator=(const AwaitableFlow&) = delete;

  // What the flow must be opened or accepted with.
  flow::FlowOptions options() const { return inbox_.options(); }
  bool is_open() const { return inbox_.is_open(); }
  bool closed() const { return inbox_.closed(); }
  // Once it is closed.
  const absl::Status& why() const { return inbox_.why(); }

  class NextMessage;
  class Room;
  class Sending;
  // The next message, valid until the next one is asked for; nothing: the flow is closed, why() says why.
  NextMessage Next();
  // After Send() or Reserve() of the flow itself has answered RESOURCE_EXHAUSTED: true when it may be tried again, false
  // when the flow is closed.
  Room Writable();
  // Sends as soon as there is room. `message` must stay until then. What Flow::Send() answers otherwise.
  Sending Send(flow::Flow flow, std::span<const std::byte> message);

  void OnOpen(flow::Flow flow) override { inbox_.OnOpen(flow); }
  void OnMessage(flow::Flow flow, std::span<const std::byte> message) override {
    inbox_.OnMessage(flow, message);
    Continue(reader_);
  }
  void OnWritable(flow::Flow flow) override;
  void OnClosed(flow::Flow flow, const absl::Status& why, const flow::FlowTotals& totals) override;

 private:
  // What goes on may wait again at once.
  static void Continue(std::coroutine_handle<>& waiter) {
    if (waiter) std::exchange(waiter, {}).resume();
  }

  FlowInbox inbox_;
  bool taken_ = false;     // the front of the inbox was given out
  bool writable_ = false;  // since somebody waited for it last
  std::coroutine_handle<> reader_;
  std::coroutine_handle<> writer_;
  Sending* sending_ = nullptr;  // what the writer waits for
};

// A place where a coroutine waits. One that is destroyed meanwhile is forgotten.
class FlowWait {
 public:
  explicit FlowWait(std::coroutine_handle<>* place) : place_(place) {}
  ~FlowWait() {
    if (waits_) *place_ = {};
  }
  FlowWait(const FlowWait&) = delete;
  FlowWait& operator=(const FlowWait&) = delete;
  void await_suspend(std::coroutine_handle<> handle) {
    assert(!*place_);  // somebody waits here already
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
    status_ = flow_.Send(message_);
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
  // Refused once more: this is called again.
  if (sending_ != nullptr && !sending_->await_ready()) return;
  sending_ = nullptr;
  Continue(writer_);
}

inline void AwaitableFlow::OnClosed(flow::Flow flow, const absl::Status& why,
                                    const flow::FlowTotals& totals) {
  inbox_.OnClosed(flow, why, totals);
  if (sending_ != nullptr) sending_->await_ready();  // refused for good
  sending_ = nullptr;
  Continue(writer_);
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
