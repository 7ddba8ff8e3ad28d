// SPDX-License-Identifier: Apache-2.0
//
// Flow: an ordered, prioritised way of messages between two named ends of two processes.
//
//   opener                                             acceptor
//   Open("host:port", "prices", options, handler)  →   Accept("prices", options, acceptor) was called before
//   OnOpen                                         ←   the acceptor returns a handler
//   Send() … OnWritable() … Send()                 →   OnMessage() … OnMessage()
//   OnDelivered(total)                                 (both ways alike)
//   Close()                                        →   OnClosed(OK)
//   OnClosed(OK): all that was sent has been delivered, unless the other end closed first; nothing more will come
//
// What it is    A name for a flow of a FlowEngine, to be copied; it may be used after the flow's end, and is refused then.
// Order         Messages of a flow arrive in the order of sending, once, as long as both processes live and a path exists.
//               Between flows there is none.
// Bounds        A message: what one receive buffer holds (limit_bytes()). In a flow: the receiver's window. Over all flows to
//               a peer: its credits. Nothing waits on this side but what was sent: Send() refuses, OnWritable() follows.
// Which thread  The polling thread. Handlers are called inside Poll() and Close() of the engine only.
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

// Which flows of a peer go first when its credits are short: of 21 messages 16, 4 and 1 are of each if all three have
// some. None starves; within one priority flows take turns.
enum class Priority : uint8_t { kLow = 0, kNormal = 1, kHigh = 2 };
inline constexpr int kPriorities = 3;

// Largest window of a flow.
inline constexpr uint32_t kMaxWindow = 65536;

struct FlowOptions {
  // The opener's counts, for both ways.
  Priority priority = Priority::kNormal;
  // Messages that the other end may have sent and this one not consumed. 1 to kMaxWindow.
  uint32_t window = 64;
  // False: a message is consumed when OnMessage() returns. True: when Flow::Consume() says so, so that a slow reader
  // slows the sender down.
  bool manual_consume = false;
  // OnDelivered() as soon as it is known. Otherwise some time later, with what comes from the peer anyway.
  bool report_delivery = false;
};

struct FlowTotals {
  uint64_t sent = 0;  // messages
  uint64_t delivered =
      0;  // of these: have reached the other end for sure, which drops them if it has closed the flow
  uint64_t received = 0;  // by OnMessage()
};

// A message that is being written, in registered memory. Ends in Commit() or Cancel(), before anything else is done
// with the engine.
struct FlowBuffer {
  std::byte* data = nullptr;
  uint32_t capacity_bytes = 0;
  endpoint::SendBuffer place;  // the engine's own
};

class Flow {
 public:
  Flow() = default;
  Flow(FlowEngine* engine, uint32_t index, uint32_t generation)
      : engine_(engine), index_(index), generation_(generation) {}

  // Sends a copy of `message`, which may be empty.
  //   RESOURCE_EXHAUSTED   the flow's window or the peer's credits are used up, or others wait for them: OnWritable() follows.
  //                        Also before the flow is open.
  //   INVALID_ARGUMENT     larger than limit_bytes()
  //   FAILED_PRECONDITION  the flow is closed
  absl::Status Send(std::span<const std::byte> message) const;
  // The same in place.
  absl::StatusOr<FlowBuffer> Reserve(uint32_t bytes) const;
  void Commit(const FlowBuffer& buffer, uint32_t bytes) const;
  void Cancel(const FlowBuffer& buffer) const;

  // With manual_consume: `messages` more of those received are done with. Not more than were received.
  void Consume(uint32_t messages = 1) const;

  // Sends nothing more, and wants nothing more; what was sent before is delivered. Status: why, for the other end.
  // OnClosed() follows when the other end has had everything, or has closed too. Nothing happens if it is closed.
  void Close(const absl::Status& why = absl::OkStatus()) const;

  bool is_open() const;
  // 0 while the peer is not connected.
  uint32_t limit_bytes() const;
  FlowTotals totals() const;
  // Names it among all flows of this engine, earlier ones included.
  uint64_t id() const { return static_cast<uint64_t>(generation_) << 32 | index_; }

  friend bool operator==(const Flow&, const Flow&) = default;

 private:
  friend class FlowEngine;
  FlowEngine* engine_ = nullptr;
  uint32_t index_ = 0;
  uint32_t generation_ = 0;
};

// What the user of an end is told. May be one for many flows; outlives them. May call everything but Poll() and
// Close() of the engine. Must not block.
class FlowHandler {
 public:
  virtual ~FlowHandler() = default;
  // At the opener: the other end has accepted.
  virtual void OnOpen(Flow) {}
  // `message` is valid during the call only.
  virtual void OnMessage(Flow flow, std::span<const std::byte> message) = 0;
  // Follows a Send() or Reserve() that answered RESOURCE_EXHAUSTED, once.
  virtual void OnWritable(Flow) {}
  // The first `total` messages of this end have been given to the other end's OnMessage(), or dropped because that end
  // has closed the flow.
  virtual void OnDelivered(Flow, uint64_t /*total*/) {}
  // The last call for this flow. OK: this or the other end closed it. Else why it failed: the peer is gone (the text says
  // how many messages are known to be delivered), the other end does not exist or refused, or closed it with that status.
  virtual void OnClosed(Flow flow, const absl::Status& why, const FlowTotals& totals) = 0;
};

// Somebody wants to open a flow to an end of this process. Valid during the call only.
struct Offer {
  const std::string& end;
  const std::string& peer;    // source address
  const std::string& tenant;  // whose secret it proved; empty: there are no tenants
  Priority priority;
};

// Says who handles the flow; nullptr refuses.
using Acceptor = std::function<FlowHandler*(Flow flow, const Offer& offer)>;

}  // namespace sluice::flow

#endif  // SLUICE_MIDDLEWARE_FLOW_FLOW_H_
