// SPDX-License-Identifier: Apache-2.0
//
// ServerEngine: runs the methods of registered services for the peers of one endpoint.
//
// What it is    Checks each message, finds the method, parses, runs the handler inline, sends the reply.
// Bounds        Replies that find no credit wait in the peer's backlog; a peer whose backlog is full takes more
//               than it grants and is disconnected (counted, logged).
// Who owns it   Server (middleware/api), or a test. Services outlive it.
// Which thread  The polling thread; registration before the first Poll().
// What ends it  Close().
//
// A handler that throws is not caught: the exception leaves Poll() and, in a Server, ends the process.
#ifndef SLUICE_MIDDLEWARE_CALL_SERVER_ENGINE_H_
#define SLUICE_MIDDLEWARE_CALL_SERVER_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "middleware/call/method.h"
#include "middleware/frame/frame.h"
#include "middleware/session/backlog.h"
#include "middleware/session/sessions.h"
#include "transport/base/clock.h"
#include "transport/base/log.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::call {

struct ServerEngineOptions {
  uint32_t max_message_bytes = 16384;  // with the header; a client may allow less
  uint32_t max_waiting_replies_per_peer = 4096;
  uint64_t max_waiting_bytes_per_peer = 16u << 20;
};

struct ServerCounters {
  uint64_t requests = 0;  // that reached a handler
  uint64_t replies_ok = 0;
  uint64_t replies_error = 0;   // a handler's, or the engine's own (unknown method, …)
  uint64_t replies_lost = 0;    // the caller went away before
  uint64_t replies_waited = 0;  // for credit
  uint64_t unknown_methods = 0;
  uint64_t protocol_errors = 0;  // peers disconnected because of what they sent
  uint64_t overflows = 0;        // peers disconnected because their backlog was full
  uint64_t peers_up = 0;
  uint64_t peers_down = 0;
};

class ServerEngine final : public session::User {
 public:
  // `log` may be nullptr.
  ServerEngine(const ServerEngineOptions& options, base::Clock* clock, base::LogSink* log);

  // What the endpoint is made with.
  endpoint::Handler* handler() { return &sessions_; }
  void Attach(endpoint::Endpoint* endpoint) {
    endpoint_ = endpoint;
    sessions_.Attach(endpoint);
  }

  // ALREADY_EXISTS: a method of this name, or of the same number, is there.
  absl::Status Register(MethodHandler handler);

  // One pass; never blocks. The number of things done.
  int Poll();

  // Replies that have not been handed to the endpoint yet.
  bool HasWaitingReplies() const { return waiting_replies_ != 0; }
  // Goodbye to all peers. No handler runs afterwards.
  void Close();

  const ServerCounters& counters() const { return counters_; }
  const session::SessionCounters& session_counters() const { return sessions_.counters(); }

  void OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) override;
  void OnPeerDown(endpoint::PeerId peer, const absl::Status& why) override;
  void OnMessage(endpoint::PeerId peer, const frame::Header& header,
                 std::span<const std::byte> payload) override;
  void OnWritable(endpoint::PeerId peer) override;
  void OnProtocolError(endpoint::PeerId peer, std::string_view what,
                       std::string_view explanation) override;

 private:
  struct Peer {
    Peer(const ServerEngineOptions& options, uint32_t the_generation,
         const endpoint::PeerInfo& info);

    const uint32_t generation;
    const std::string address;
    const std::string tenant;
    const uint32_t limit_bytes;  // of a message, header included
    session::Backlog backlog;
  };

  Peer* Find(endpoint::PeerId id);
  void Drop(endpoint::PeerId id);
  void Break(endpoint::PeerId id, std::string_view what, std::string_view explanation);

  void Run(endpoint::PeerId id, Peer* peer, const frame::Header& request,
           std::span<const std::byte> payload);
  void ReplyOk(endpoint::PeerId id, Peer* peer, uint64_t call_id, MethodHandler* handler);
  void ReplyError(endpoint::PeerId id, Peer* peer, uint64_t call_id, const absl::Status& status);
  absl::Status UnknownMethod(uint64_t method_id) const;

  // Memory for the payload of a reply, registered or the backlog's; nullptr: the peer is gone.
  struct Outgoing {
    std::byte* data = nullptr;
    bool waits = false;
    endpoint::SendBuffer buffer;
  };
  Outgoing Reserve(endpoint::PeerId id, Peer* peer, uint32_t payload_bytes);
  void Commit(endpoint::PeerId id, const Outgoing& outgoing, frame::Header& header);

  const ServerEngineOptions options_;
  base::Clock* const clock_;
  base::LogSink* const log_;
  endpoint::Endpoint* endpoint_ = nullptr;
  session::Sessions sessions_{this};
  bool closed_ = false;

  absl::flat_hash_map<uint64_t, std::unique_ptr<MethodHandler>> methods_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by PeerId::index; the endpoint bounds it
  uint64_t waiting_replies_ = 0;              // in all backlogs

  int64_t now_ns_ = 0;
  bool now_is_stale_ = true;
  ServerCounters counters_;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_SERVER_ENGINE_H_
