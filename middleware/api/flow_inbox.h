// SPDX-License-Identifier: Apache-2.0
//
// FlowInbox: a handler for those who ask for messages instead of being called.
//
//   sluice::FlowInbox inbox(/*window=*/64);
//   auto flow = messenger->Open(address, "prices", inbox.options(), &inbox);
//   while (messenger->Drive([&] { return inbox.ready() || inbox.closed(); }, timeout) && inbox.ready()) {
//     Use(inbox.Front());
//     inbox.Pop();
//   }
//
// What it is    The messages of one flow, copied, first in first out. One that is taken makes room for one more: a reader
//               that does not read stops the sender, and nothing is dropped.
// Bound         `window` messages.
// Who owns it   The user; it outlives the flow.
// Which thread  The messenger's.
#ifndef SLUICE_MIDDLEWARE_API_FLOW_INBOX_H_
#define SLUICE_MIDDLEWARE_API_FLOW_INBOX_H_

#include <algorithm>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "middleware/flow/flow.h"
#include "middleware/session/backlog.h"

namespace sluice {

class FlowInbox final : public flow::FlowHandler {
 public:
  explicit FlowInbox(uint32_t window) : messages_(window, UINT64_MAX), window_(window) {}

  // What the flow must be opened or accepted with.
  flow::FlowOptions options() const { return {.window = window_, .manual_consume = true}; }

  bool ready() const { return !messages_.empty(); }
  // The oldest; only when ready(). Valid until Pop().
  std::span<const std::byte> Front() const { return messages_.Front().subspan(1); }
  void Pop() {
    messages_.Pop();
    flow_.Consume();
  }

  bool is_open() const { return open_; }
  bool closed() const { return closed_; }  // what is ready() can still be taken
  const absl::Status& why() const { return why_; }

  void OnOpen(flow::Flow) override { open_ = true; }
  void OnMessage(flow::Flow flow, std::span<const std::byte> message) override {
    flow_ = flow;
    // One more in front: a backlog holds nothing that is empty.
    std::byte* const place = messages_.Push(static_cast<uint32_t>(message.size()) + 1);
    std::copy(message.begin(), message.end(), place + 1);
  }
  void OnClosed(flow::Flow, const absl::Status& why, const flow::FlowTotals&) override {
    open_ = false;
    closed_ = true;
    why_ = why;
  }

 private:
  session::Backlog messages_;
  const uint32_t window_;
  flow::Flow flow_;  // once there was a message
  bool open_ = false;
  bool closed_ = false;
  absl::Status why_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_FLOW_INBOX_H_
