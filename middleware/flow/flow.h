// SPDX-License-Identifier: Apache-2.0
//
// Flow: a bidirectional, ordered message stream with a priority, between two named ends in two
// processes.
//
//   opener                                             acceptor
//   Open("host:port", "prices", options, handler)  →   Accept("prices", options, acceptor) was called before
//   OnOpen                                         ←   the acceptor returns a handler
//   Send() … OnWritable() … Send()                 →   OnMessage() … OnMessage()
//   OnDelivered(total)                                 (both ways alike)
//   Close()                                        →   OnClosed(OK)
//   OnClosed(OK): all sent messages have been delivered, unless the other end closed first; no message follows
//
// Purpose       A handle to a flow of a FlowEngine. It may be copied. Functions fail after the flow
//               has ended.
// Order         Messages of a flow arrive once and in the order of sending, as long as both
//               processes live and a path exists. There is no order between flows.
// Ownership     A value. The handler belongs to the user, and outlives the flow.
// Threads       The polling thread. Handlers are called only inside Poll() and Close() of the
//               engine.
// Limits        Size of a message: limit_bytes(). Messages in flight per flow: the receiver's
//               window. Messages in flight of all flows to a peer: its credits. Only messages that
//               were sent wait on this side: Send() refuses further messages, and OnWritable()
//               follows.
#ifndef SLUICE_MIDDLEWARE_FLOW_FLOW_H_
#define SLUICE_MIDDLEWARE_FLOW_FLOW_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::flow {

class FlowEngine;

// Share of the flows of a peer when its credits are short: if all three priorities have messages,
// 16, 4 and 1 of 21 messages are high, normal and low. No flow starves; flows of one priority take
// turns.
enum class Priority : uint8_t { kLow = 0, kNormal = 1, kHigh = 2 };
inline constexpr int kPriorities = 3;

// Maximum window of a flow, in messages.
inline constexpr uint32_t kMaxWindow = 65536;

struct FlowOptions {
  // Priority of both directions. The opener's value applies.
  Priority priority = Priority::kNormal;
  // Maximum number of messages that the other end has sent and this end has not consumed. Range: 1
  // to kMaxWindow.
  uint32_t window = 64;
  // False: a message is consumed when OnMessage() returns, or before, when OnMessage() sends a message
  // on this flow. True: when Flow::Consume() is called, so that a slow reader slows down the sender.
  bool manual_consume = false;
  // True: the peer reports delivery at once, and OnDelivered() follows. False: later, with other
  // messages of the peer.
  bool report_delivery = false;
};

struct FlowTotals {
  uint64_t sent = 0;       // messages sent by this end
  uint64_t delivered = 0;  // of these, messages known to have reached the other end
  uint64_t received = 0;   // messages received by OnMessage()
};

// A message in registered memory that the program is writing. Call Commit() or Cancel() before any
// other function of the engine.
struct FlowBuffer {
  std::byte* data = nullptr;
  uint32_t capacity_bytes = 0;
  endpoint::SendBuffer place;  // used by the engine
};

class Flow {
 public:
  Flow() = default;
  Flow(FlowEngine* engine, uint32_t index, uint32_t generation)
      : engine_(engine), index_(index), generation_(generation) {}

  // Sends a copy of `message`, which may be empty. Does not block.
  // Errors:
  // - RESOURCE_EXHAUSTED: the flow's window or the peer's credits are used up, or other flows wait
  //   for them, or the flow is not open yet. OnWritable() follows.
  // - INVALID_ARGUMENT: larger than limit_bytes().
  // - FAILED_PRECONDITION: the flow is closed.
  absl::Status Send(std::span<const std::byte> message) const;
  // The same without a copy: Reserve() returns a buffer of `bytes`; Commit() sends its first
  // `bytes`.
  absl::StatusOr<FlowBuffer> Reserve(uint32_t bytes) const;
  void Commit(const FlowBuffer& buffer, uint32_t bytes) const;
  void Cancel(const FlowBuffer& buffer) const;

  // With manual_consume: marks `messages` received messages as consumed. Not more than were
  // received.
  void Consume(uint32_t messages = 1) const;

  // Closes the flow in both directions; messages sent before are delivered. `why`: status for the
  // other end. OnClosed() follows when the other end has received all messages, or has closed the
  // flow too. No effect on a closed flow.
  void Close(const absl::Status& why = absl::OkStatus()) const;

  bool is_open() const;
  // Maximum size of a message in bytes, limited by max_large_message_bytes of both sides. 0 while
  // the peer is not connected.
  uint32_t limit_bytes() const;
  FlowTotals totals() const;
  // Identifies the flow among all flows of this engine, closed flows included.
  uint64_t id() const { return static_cast<uint64_t>(generation_) << 32 | index_; }

  friend bool operator==(const Flow&, const Flow&) = default;

 private:
  friend class FlowEngine;
  FlowEngine* engine_ = nullptr;
  uint32_t index_ = 0;
  uint32_t generation_ = 0;
};

// Callbacks of one end of a flow. One handler may serve many flows; it outlives them. It may call
// all functions except Poll() and Close() of the engine. It must not block.
class FlowHandler {
 public:
  virtual ~FlowHandler() = default;
  // Opener only: the other end has accepted the flow.
  virtual void OnOpen(Flow) {}
  // `message` is valid during the call only.
  virtual void OnMessage(Flow flow, std::span<const std::byte> message) = 0;
  // Called once after Send() or Reserve() returned RESOURCE_EXHAUSTED: retry now.
  virtual void OnWritable(Flow) {}
  // The other end's OnMessage() has received the first `total` messages of this end, or the other
  // end has dropped them because it closed the flow.
  virtual void OnDelivered(Flow, uint64_t /*total*/) {}
  // The last call for this flow. OK: this or the other end closed it. Otherwise the reason: the
  // peer disconnected, the other end does not exist or refused, or it closed the flow with that
  // status. If the peer disconnected, the text has the number of messages known to be delivered.
  virtual void OnClosed(Flow flow, const absl::Status& why, const FlowTotals& totals) = 0;
};

// A peer's request to open a flow to an end of this process. Valid during the call only.
struct Offer {
  const std::string& end;
  const std::string& peer;    // source address
  const std::string& tenant;  // tenant whose secret the peer proved; empty: no tenants
  Priority priority;
};

// Returns the handler of the flow; nullptr refuses the flow. The opener's OnClosed() then gets
// PERMISSION_DENIED, or the status with which the acceptor closed the flow.
using Acceptor = std::function<FlowHandler*(Flow flow, const Offer& offer)>;

}  // namespace sluice::flow

#endif  // SLUICE_MIDDLEWARE_FLOW_FLOW_H_
