// SPDX-License-Identifier: Apache-2.0
//
// FlowInbox: a flow handler that queues messages until the program takes them.
//
//   sluice::FlowInbox inbox(/*window=*/64);
//   auto flow = messenger->Open(address, "prices", inbox.options(), &inbox);
//   while (messenger->Drive([&] { return inbox.ready() || inbox.closed(); }, timeout) && inbox.ready()) {
//     Use(inbox.Front());
//     inbox.Pop();
//   }
//
// Purpose       Holds copies of the messages of one flow, first in, first out. Each message that is
//               taken makes room for one more: a reader that does not read stops the sender. No
//               message is dropped.
// Ownership     The user owns it. It outlives the flow.
// Threads       The messenger's thread.
// Limits        `window` messages.
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

  // Options to open or accept the flow with.
  flow::FlowOptions options() const { return {.window = window_, .manual_consume = true}; }

  bool ready() const { return !messages_.empty(); }
  // Returns the oldest message. Call only if ready(). Valid until Pop().
  std::span<const std::byte> Front() const { return messages_.Front().subspan(1); }
  void Pop() {
    messages_.Pop();
    if (has_flow_) flow_.Consume();
  }

  bool is_open() const { return open_; }
  bool closed() const { return closed_; }  // messages can still be taken while ready()
  const absl::Status& why() const { return why_; }

  void OnOpen(flow::Flow) override { open_ = true; }
  void OnMessage(flow::Flow flow, std::span<const std::byte> message) override {
    flow_ = flow;
    has_flow_ = true;
    // One byte in front of the message, since a backlog cannot hold an empty entry.
    std::byte* const place = messages_.Push(static_cast<uint32_t>(message.size()) + 1);
    std::copy(message.begin(), message.end(), place + 1);
  }
  void OnClosed(flow::Flow, const absl::Status& why, const flow::FlowTotals&) override {
    open_ = false;
    closed_ = true;
    has_flow_ = false;  // the messenger may end now
    why_ = why;
  }

 private:
  session::Backlog messages_;
  const uint32_t window_;
  flow::Flow flow_;  // of the last message, if has_flow_
  bool has_flow_ = false;
  bool open_ = false;
  bool closed_ = false;
  absl::Status why_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_FLOW_INBOX_H_
