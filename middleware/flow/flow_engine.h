// SPDX-License-Identifier: Apache-2.0
//
// FlowEngine: the flows between this endpoint and all its peers.
//
// Purpose       Opens and accepts flows, and selects the next flow that may write. It has one connection for each address: the first
//               Open() creates it, and it stays. Order and delivery are the session's, with one sequence for each peer. A flow adds its
//               own identity, window and priority (docs/decisions/0018).
// Ownership     Messenger (middleware/api), or a test. Handlers outlive their flows, and acceptors the engine.
// Threads       The polling thread. Handlers and acceptors are called only inside Poll() and Close().
// End           Close(): every flow that is left ends with CANCELLED.
// Limits        Flows: max_flows, 80 bytes each. Messages: the engine queues none; a message that was sent is in a send slot of the
//               endpoint. A report that a flow owes its peer is one bit, sent when the peer can be written to.
#ifndef SLUICE_MIDDLEWARE_FLOW_FLOW_ENGINE_H_
#define SLUICE_MIDDLEWARE_FLOW_FLOW_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "middleware/flow/connection.h"
#include "middleware/flow/flow.h"
#include "middleware/flow/flow_table.h"
#include "middleware/frame/frame.h"
#include "middleware/session/sessions.h"
#include "transport/base/clock.h"
#include "transport/base/event_log.h"
#include "transport/base/log.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::flow {

struct FlowEngineOptions {
  uint32_t max_flows = 1u << 20;
  int64_t connect_timeout_ns = 5'000'000'000;
};

struct FlowCounters {
  uint64_t opened = 0;    // by this side
  uint64_t accepted = 0;  // flows that peers opened
  uint64_t refused = 0;   // likewise
  uint64_t ended = 0;     // of opened and accepted: OnClosed() was called
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t control_sent = 0;     // messages about flows
  uint64_t protocol_errors = 0;  // peers disconnected because of invalid messages
};

class FlowEngine final : public session::User {
 public:
  // `log` may be nullptr.
  FlowEngine(const FlowEngineOptions& options, base::Clock* clock, base::LogSink* log);
  ~FlowEngine() override;

  // Returns the handler to create the endpoint with.
  endpoint::Handler* handler() { return &sessions_; }
  void Attach(endpoint::Endpoint* endpoint) {
    endpoint_ = endpoint;
    sessions_.Attach(endpoint);
  }

  // Registers the acceptor of flows that peers open to the end `name`.
  // Errors: ALREADY_EXISTS (the end has an acceptor), INVALID_ARGUMENT (name or options).
  absl::Status Accept(const std::string& name, const FlowOptions& options, Acceptor acceptor);
  // Opens a flow. Does not block: OnOpen() or OnClosed() of the handler follows.
  // Errors: RESOURCE_EXHAUSTED (max_flows), INVALID_ARGUMENT (name or options), CANCELLED (after Close()), errors of Endpoint::Connect().
  absl::StatusOr<Flow> Open(const std::string& host, uint16_t port, const std::string& name,
                            const FlowOptions& options, FlowHandler* handler);

  // Runs one pass, and returns the number of events and turns handled. Does not block.
  int Poll();
  // Returns true if Poll() has work that no event of the endpoint announces.
  bool HasWork() const { return !active_.empty() || !ending_.empty(); }
  void Close();

  // Returns the number of flows that have not ended, including flows that wait for a last close.
  uint32_t flows() const { return table_.used(); }
  size_t memory_bytes() const { return table_.memory_bytes(); }
  // Returns 0 if the peer is not up.
  uint32_t unacknowledged(endpoint::PeerId peer) { return sessions_.unacknowledged(peer); }
  const FlowCounters& counters() const { return counters_; }
  const session::SessionCounters& session_counters() const { return sessions_.counters(); }

  // session::User
  void OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) override;
  void OnPeerDown(endpoint::PeerId peer, const absl::Status& why) override;
  void OnMessage(endpoint::PeerId peer, const frame::Header& header,
                 std::span<const std::byte> payload) override;
  void OnWritable(endpoint::PeerId peer) override;
  void OnDelivered(endpoint::PeerId peer, uint32_t sequence) override;
  void OnProtocolError(endpoint::PeerId peer, std::string_view what,
                       std::string_view explanation) override;
  void OnLost(endpoint::PeerId peer, const frame::Header& header, const absl::Status& why) override;

 private:
  friend class Flow;
  struct End {
    FlowOptions options;
    Acceptor acceptor;
  };

  // ---- flow_engine.cc: actions of this side
  Record* Find(const Flow& flow) { return table_.Find(flow.index_, flow.generation_); }
  Flow NameOf(uint32_t index) { return {this, index, table_[index].generation}; }
  Connection& ConnectionOf(const Record& record) { return *connections_[record.connection]; }
  // Returns nullptr if the peer is down, or will be disconnected at the end of the pass.
  Connection* Find(endpoint::PeerId peer) {
    Connection* const connection = FindAny(peer);
    return connection != nullptr && !connection->ending ? connection : nullptr;
  }
  // As Find(), but also finds a peer that will be disconnected at the end of the pass.
  Connection* FindAny(endpoint::PeerId peer) {
    if (peer.index >= connections_.size()) return nullptr;
    Connection* const connection = connections_[peer.index].get();
    return connection != nullptr && connection->peer == peer ? connection : nullptr;
  }
  absl::StatusOr<Connection*> Dial(const std::string& host, uint16_t port);

  absl::Status Send(const Flow& flow, std::span<const std::byte> message);
  absl::StatusOr<FlowBuffer> Reserve(const Flow& flow, uint32_t bytes);
  void Commit(const Flow& flow, const FlowBuffer& buffer, uint32_t bytes);
  // Returns `why`, the session layer's refusal of a message. If OnWritable() follows, the flow waits for it.
  absl::Status Refused(Connection& connection, uint32_t index, const absl::Status& why);
  // Sends a message of an open flow. `Memory`: endpoint::Room or endpoint::SendBuffer.
  template <typename Memory>
  void SendData(uint32_t index, Record& record, Connection& connection, const Memory& memory,
                uint32_t bytes);
  void Cancel(const Flow& flow, const FlowBuffer& buffer);
  void Consume(const Flow& flow, uint32_t messages);
  // Sends the window of an open flow if the peer has used half of it, and no message of this side has reported it.
  void ReportWindow(uint32_t index, const Record& record) {
    const uint32_t unsaid = record.consumed + record.window - record.told;
    if (unsaid >= std::max(1u, record.window / 2)) Owe(index, kOweWindow);
  }
  void CloseFlow(const Flow& flow, const absl::Status& why);
  // Puts the flow in line; OnWritable() follows.
  void WaitForTurn(Connection& connection, uint32_t index);

  // Creates a flow of this connection, in the state after `event`. The table must have a free place.
  uint32_t NewFlow(Connection& connection, FlowEvent event, const FlowOptions& options,
                   Priority priority);
  void Move(Record& record, FlowEvent event);
  // Releases the place of a flow in state kFree. Calls OnClosed() first, if it was not called.
  void Finish(uint32_t index, const absl::Status& why);
  void Tell(uint32_t index, const absl::Status& why);
  void Forget(uint32_t index);
  uint32_t live_flows() const { return table_.used() - refusals_; }
  void Owe(uint32_t index, uint8_t owed);
  void Link(Connection& connection, uint32_t index);
  void Unlink(Connection& connection, uint32_t index);
  void Activate(Connection& connection);
  // Gives turns to the flows in line until the credits are used up. Returns the number of turns. Handlers run here: call it from Poll()
  // or from a callback of the sessions only. `connection` may be parked when it returns.
  int Serve(Connection& connection);
  // Sends all control messages that the flow owes. Returns false if the credits do not suffice.
  bool Say(Connection& connection, uint32_t index);

  // ---- flow_reception.cc: messages and events of peers
  // Each function that returns a text returns an error, which ends the connection, or nullptr if the message is valid.
  void OnOtherMessage(Connection& connection, const frame::Header& header,
                      std::span<const std::byte> payload);
  const char* Take(Record& record, const frame::Header& header, std::span<const std::byte> payload);
  const char* TakeOpen(Connection& connection, const frame::Header& header,
                       std::span<const std::byte> payload);
  const char* TakeAccept(Record& record, uint32_t index, const frame::Header& header);
  const char* TakeData(Record& record, uint32_t index, uint32_t window,
                       std::span<const std::byte> payload);
  const char* TakeClose(Record& record, uint32_t index, const frame::Header& header,
                        std::span<const std::byte> payload);
  bool TakeWindow(Record& record, uint32_t index, uint32_t window);
  void Refuse(Connection& connection, uint32_t remote, const absl::Status& why);
  // Counts a flow in state kEnding among the refusals, not among the live flows. No handler knows it, and the peer does not know its index.
  void CountRefusal(Connection& connection, Record& record);
  // Ensures that there is a place for a refusal. Returns false if this connection must end for that.
  bool MakeRoomToRefuse(Connection& connection);
  void ForgetRefusals(Connection& connection);
  // Ends the connection with `why` at the end of the pass.
  void EndLater(Connection* connection, const absl::Status& why);
  // Disconnects the peers in ending_. Handlers run here; they may break further connections.
  void EndPeers();
  void Drop(endpoint::PeerId peer, const absl::Status& why);
  // Moves a connection to parked_, because another peer takes its place. Ends its flows; Drop() calls their handlers.
  void Park(uint32_t index);
  std::unique_ptr<Connection> Detach(uint32_t index);

  const FlowEngineOptions options_;
  base::Clock* const clock_;
  base::EventLog log_;
  endpoint::Endpoint* endpoint_ = nullptr;
  session::Sessions sessions_{this};
  bool closed_ = false;
  // Created once, so that a refusal allocates nothing.
  const absl::Status not_open_;
  const absl::Status no_window_;
  const absl::Status not_its_turn_;

  FlowTable table_;
  std::vector<std::unique_ptr<Connection>> connections_;         // by PeerId::index
  std::vector<std::unique_ptr<Connection>> parked_;              // OnPeerDown() has not been called
  absl::flat_hash_map<std::string, endpoint::PeerId> outbound_;  // by address
  absl::flat_hash_map<std::string, std::unique_ptr<End>> ends_;
  // Of flows whose opening (names_), or whose close with an error (reasons_), is not sent yet.
  absl::flat_hash_map<uint32_t, std::string> names_;
  absl::flat_hash_map<uint32_t, absl::Status> reasons_;
  uint32_t refusals_ = 0;         // refused flows whose refusal is not sent yet
  std::vector<uint32_t> active_;  // connections with a flow in line
  std::vector<uint32_t> serving_now_;
  std::vector<UnderWay::Run> touched_;
  struct Ending {
    endpoint::PeerId peer;
    absl::Status why;
  };
  std::vector<Ending> ending_;  // to be disconnected at the end of the pass

  // The flow whose OnWritable() runs, and the number of messages that it may still send in its turn.
  uint32_t served_ = kNone;
  uint32_t turn_left_ = 0;
  FlowCounters counters_;
};

}  // namespace sluice::flow

#endif  // SLUICE_MIDDLEWARE_FLOW_FLOW_ENGINE_H_
