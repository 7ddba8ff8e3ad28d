// SPDX-License-Identifier: Apache-2.0
//
// ClientEngine: the calls of one channel, over one endpoint, on one thread at a time.
//
// What it is    Starts calls, sends them in order when there is a connection and a credit, matches replies, ends
//               each call exactly once (call_state.h), and keeps the connection up (connection_state.h) with
//               jittered, bounded back-off.
// Who owns it   Channel (middleware/api), or a test. Options, clock and random source are given at construction;
//               the endpoint follows with Attach(), because it takes handler().
// Which thread  Any, but one at a time, with a happens-before edge between two; the lease in middleware/api is
//               that edge. Callbacks run inside Poll() and Close() only.
// What ends it  Close() ends what is left with CANCELLED. The endpoint must outlive the engine's last call to it.
#ifndef SLUICE_MIDDLEWARE_CALL_CLIENT_ENGINE_H_
#define SLUICE_MIDDLEWARE_CALL_CLIENT_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "middleware/call/call_table.h"
#include "middleware/call/connection_state.h"
#include "middleware/frame/frame.h"
#include "middleware/session/sessions.h"
#include "transport/base/clock.h"
#include "transport/base/random.h"
#include "transport/base/timer_wheel.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::call {

struct ClientEngineOptions {
  std::string host;
  uint16_t port = 0;
  uint32_t max_outstanding_calls =
      1024;                            // 1 to CallTable::kMaxCapacity; more fail RESOURCE_EXHAUSTED
  uint32_t max_message_bytes = 16384;  // with the header; the server may allow less
  int64_t connect_timeout_ns = 5'000'000'000;
  int64_t backoff_min_ns = 20'000'000;  // before the first attempt to connect again
  int64_t backoff_max_ns =
      2'000'000'000;  // each wait doubles up to this; each is jittered by a quarter
  uint32_t max_reconnect_attempts = 20;  // in a row; then it rests until the next call
};

struct ClientCounters {
  uint64_t calls_started = 0;
  uint64_t calls_ok = 0;
  uint64_t calls_failed = 0;      // ended with another status
  uint64_t late_replies = 0;      // to calls that had ended
  uint64_t protocol_errors = 0;   // connections closed because of what came over them
  uint64_t connections = 0;       // came up
  uint64_t connections_lost = 0;  // went down after having been up
};

class ClientEngine final : public session::User {
 public:
  ClientEngine(const ClientEngineOptions& options, base::Clock* clock, base::Random* random);
  ~ClientEngine() override;

  // What the endpoint is made with.
  endpoint::Handler* handler() { return &sessions_; }
  void Attach(endpoint::Endpoint* endpoint) {
    endpoint_ = endpoint;
    sessions_.Attach(endpoint);
  }

  // Starts an attempt to connect now, unless one is under way or it is up.
  void Dial();

  // OK: `spec.done` will run exactly once, from Poll() or Close(). Anything else: it never will.
  // Nothing reaches the wire before Flush() or the end of Poll(). `call_id`, if given, is for
  // Cancel().
  absl::Status Start(const CallSpec& spec, uint64_t* call_id = nullptr);

  // Ends the call with CANCELLED if it has not ended; its callback runs before this returns. The server
  // is told, as soon as there is credit.
  bool Cancel(uint64_t call_id);

  // Streaming calls. What comes in:
  ReadResult Read(ClientStream* stream, google::protobuf::MessageLite* message);
  // What goes out. RESOURCE_EXHAUSTED: no room now, OnWritable() follows, or the end of the call.
  // FAILED_PRECONDITION: the call is over, or EndWrites() was said. INVALID_ARGUMENT: over the limit.
  absl::Status Write(ClientStream* stream, const google::protobuf::MessageLite& message);
  // The caller sends no more.
  void EndWrites(ClientStream* stream);

  void Flush() { endpoint_->Flush(); }
  // One pass; never blocks. The number of things done.
  int Poll();
  // See endpoint.h; includes this engine's timers.
  bool PrepareToSleep() { return endpoint_->PrepareToSleep(); }
  int64_t SleepLimitNs();
  // After a sleep, so that timers see the time that has passed.
  void AfterSleep();

  // Says goodbye and ends all calls with CANCELLED. No callbacks afterwards.
  void Close();

  // The time as of the last reading: at most one per pass when there is work, one in sixteen when
  // there is none.
  int64_t now_ns() const { return now_ns_; }
  ConnectionState state() const { return state_; }
  // Why it is not up; OK while it never failed.
  const absl::Status& last_error() const { return last_error_; }
  const std::string& server() const { return server_; }
  uint32_t outstanding() const { return table_.active(); }
  const ClientCounters& counters() const { return counters_; }
  const session::SessionCounters& session_counters() const { return sessions_.counters(); }

  void OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) override;
  void OnPeerDown(endpoint::PeerId peer, const absl::Status& why) override;
  void OnMessage(endpoint::PeerId peer, const frame::Header& header,
                 std::span<const std::byte> payload) override;
  void OnWritable(endpoint::PeerId peer) override;
  void OnProtocolError(endpoint::PeerId peer, std::string_view what,
                       std::string_view explanation) override;

 private:
  static constexpr uint32_t kIdlePassesPerClockRead = 16;
  static constexpr uint32_t kBusyPassesPerClockRead = 64;

  static void OnDeadline(void* owner, Call* call);
  static void OnBackoffOver(base::Timer* timer, void* context);

  void RefreshNow();
  void Move(ConnectionEvent event);
  // The connection is gone, or never came up: back-off, and the calls that can't go on end.
  void Lose(const absl::Status& why, absl::StatusCode sent_code);
  // Closes it because of what came over it.
  void Break(std::string_view what, std::string_view explanation);
  // The server takes no new calls.
  void OnDrain();
  void Deliver(const frame::Header& header, std::span<const std::byte> payload);

  void Number(const Call& call, uint64_t* call_id);
  absl::StatusOr<endpoint::SendBuffer> ReserveFor(const CallSpec& spec, uint32_t* payload_bytes);
  void Send(Call* call, endpoint::SendBuffer buffer, uint32_t payload_bytes);
  void SendWaiting();
  bool SendControl(frame::Kind kind, uint64_t call_id, uint32_t window);
  void SendOwed();
  void Block(ClientStream* stream);
  void OnStream(const frame::Header& header, std::span<const std::byte> payload);
  void End(Call* call, CallEvent event, const absl::Status& status);

  absl::Status TooLarge(const CallSpec& spec, uint64_t payload_bytes) const;
  absl::Status NotConnected(std::string_view operation) const;
  absl::Status Draining(std::string_view operation) const;
  absl::Status DeadlineExceeded(const CallSpec& spec, CallState state) const;

  const ClientEngineOptions options_;
  const std::string server_;  // "host:port"
  base::Clock* const clock_;
  base::Random* const random_;
  endpoint::Endpoint* endpoint_ = nullptr;
  session::Sessions sessions_{this};

  base::TimerWheel wheel_;
  CallTable table_;
  base::Timer backoff_timer_;

  ConnectionState state_ = ConnectionState::kIdle;
  endpoint::PeerId peer_;
  uint32_t limit_bytes_ = 0;  // of a message, header included
  absl::Status last_error_;
  uint32_t failed_attempts_ = 0;        // in a row
  bool dial_wanted_ = false;            // by a call, at the next Poll()
  std::vector<uint64_t> cancel_soon_;   // cancelled while they were started, at the next Poll()
  std::vector<uint64_t> cancels_owed_;  // the server is to hear of them when there is credit
  std::vector<uint64_t> blocked_;       // streams that wait for credit, by call
  int64_t up_since_ns_ = 0;

  int64_t now_ns_ = 0;
  bool now_is_stale_ = true;
  uint32_t idle_passes_ = 0;
  uint32_t busy_passes_ = 0;
  ClientCounters counters_;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_CLIENT_ENGINE_H_
