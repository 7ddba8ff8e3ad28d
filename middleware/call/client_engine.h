// SPDX-License-Identifier: Apache-2.0
//
// ClientEngine: makes the calls of one channel, over one endpoint, on one thread at a time.
//
// Purpose       Starts calls, sends each to one of its servers when the server is connected and has granted a credit, matches replies, and
//               ends each call exactly once (call_state.h), after one attempt or several (retry.h). It keeps the connections to all
//               servers up (connection_state.h), with jitter and bounded back-off. All of them share the queues of the endpoint: one more
//               server costs as much as one more peer.
// Ownership     Channel (middleware/api), or a test. The constructor takes options, clock and random source. The endpoint follows with
//               Attach(), because it takes handler().
// Threads       Any, one at a time, with a happens-before edge between two; the lease in middleware/api provides it. Callbacks run only
//               inside Poll() and Close().
// End           Close() ends remaining calls with CANCELLED. The endpoint outlives the engine's last use of it.
#ifndef SLUICE_MIDDLEWARE_CALL_CLIENT_ENGINE_H_
#define SLUICE_MIDDLEWARE_CALL_CLIENT_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "middleware/call/buffer.h"
#include "middleware/call/call_table.h"
#include "middleware/call/connection.h"
#include "middleware/call/connection_state.h"
#include "middleware/call/exceptions.h"
#include "middleware/call/retry.h"
#include "middleware/call/state_watch.h"
#include "middleware/frame/frame.h"
#include "middleware/observe/call_stats.h"
#include "middleware/observe/overload.h"
#include "middleware/observe/trace_events.h"
#include "middleware/session/sessions.h"
#include "transport/base/clock.h"
#include "transport/base/event_log.h"
#include "transport/base/log.h"
#include "transport/base/random.h"
#include "transport/base/sampler.h"
#include "transport/base/timer_wheel.h"
#include "transport/base/trace_ring.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::call {

// Which of the servers that are up gets the next call.
enum class Balancing : uint8_t {
  kPickFirst,         // the first in the list; the others only while it is not up
  kRoundRobin,        // one after another; one without credit is passed over
  kLeastOutstanding,  // the one with the fewest calls of this engine that have not ended
};

struct ClientEngineOptions {
  std::string host;  // of the first server; SetServers() names others. Empty: none so far
  uint16_t port = 0;
  Balancing balancing = Balancing::kPickFirst;
  RetryPolicy retry;
  uint32_t max_outstanding_calls =
      1024;                      // 1 to CallTable::kMaxCapacity; more fail RESOURCE_EXHAUSTED
  uint64_t max_large_bytes = 0;  // of a message that does not fit below; the server may allow less
  uint32_t max_message_bytes = 16384;           // with the header; the server may allow less
  uint32_t stream_window = StreamEnd::kWindow;  // of what the server sends (StreamEnd)
  int64_t connect_timeout_ns = 5'000'000'000;
  int64_t backoff_min_ns = 20'000'000;  // before the first attempt to connect again
  int64_t backoff_max_ns =
      2'000'000'000;  // each wait doubles up to this; each is jittered by a quarter
  // Servers are asked this often, varied by a quarter, whether they serve; who does not gets calls only while none that is up
  // does. 0: nobody is asked.
  int64_t health_period_ns = 0;
  std::string health_service;            // "package.Service"; empty: the server as a whole
  uint32_t max_reconnect_attempts = 20;  // in a row; then it rests until the next call
  // The owner hears why the first connection of a single server failed: the log needs no warning.
  bool first_failure_is_told = true;
  uint32_t trace_records = 4096;  // kept of what happened last; 32 bytes each
  uint32_t timed_every = 16;  // one of how many calls is timed while they come one upon the other

  bool operator==(const ClientEngineOptions&) const = default;
};

struct ClientCounters {
  uint64_t calls_started = 0;
  uint64_t calls_ok = 0;
  uint64_t calls_failed = 0;      // ended with another status
  uint64_t late_replies = 0;      // to calls that had ended
  uint64_t protocol_errors = 0;   // connections closed because of what came over them
  uint64_t connections = 0;       // came up
  uint64_t connections_lost = 0;  // went down after having been up
  uint64_t dials = 0;             // attempts to connect
  uint64_t retries = 0;           // attempts of calls beyond their first
  uint64_t retries_denied = 0;    // that the budget did not have
};

class ClientEngine final : public session::User {
 public:
  // `log` may be nullptr.
  ClientEngine(const ClientEngineOptions& options, base::Clock* clock, base::Random* random,
               base::LogSink* log = nullptr);
  ~ClientEngine() override;

  // What the endpoint is made with.
  endpoint::Handler* handler() { return &sessions_; }
  void Attach(endpoint::Endpoint* endpoint) {
    endpoint_ = endpoint;
    sessions_.Attach(endpoint);
  }

  // These and no others, in this order. Calls that were sent to one that is not named any more go on, and then its
  // connection ends; new ones are dialled.
  void SetServers(const std::vector<ServerAddress>& servers);

  // Starts an attempt to connect to each server now, unless one is under way or it is up.
  void Dial();
  // The next Poll() does so for servers that are idle.
  void DialSoon() { dial_wanted_ = true; }

  // Waits for another state() than `watch->seen`. True: `watch->done` will run once. False: it won't: `watch->now` is another
  // one already, or the engine is closed.
  bool Watch(StateWatch* watch);
  // Its `done` does not run any more. No effect on a watch that does not wait.
  void Unwatch(StateWatch* watch);

  // OK: `spec.done` will run exactly once, from Poll() or Close(). Anything else: it never will.
  // Nothing reaches the wire before Flush() or the end of Poll(). `call_id`, if given, is for
  // Cancel().
  absl::Status Start(const CallSpec& spec, uint64_t* call_id = nullptr);

  // Ends the call with CANCELLED if it has not ended; its callback runs before this returns. The server
  // is told, as soon as there is credit.
  bool Cancel(uint64_t call_id);

  // Ends the call with `why` in the next Poll(), if it has not ended by then. OK: with CANCELLED, as Cancel() does.
  void EndSoon(uint64_t call_id, absl::Status why) {
    end_soon_.push_back({call_id, std::move(why)});
  }

  // Memory for an attachment, for the server that would get a call now. UNAVAILABLE: none is up. RESOURCE_EXHAUSTED: there
  // is no memory now. INVALID_ARGUMENT: over the limit of a message.
  absl::StatusOr<Buffer> MakeBuffer(size_t bytes);

  // Streaming calls. What comes in:
  ReadResult Read(ClientStream* stream, google::protobuf::MessageLite* message);
  // What goes out. RESOURCE_EXHAUSTED: no room now, OnWritable() follows, or the end of the call.
  // FAILED_PRECONDITION: the call has ended, or EndWrites() was said. INVALID_ARGUMENT: over the limit.
  absl::Status Write(ClientStream* stream, const google::protobuf::MessageLite& message);
  // The caller sends no more.
  void EndWrites(ClientStream* stream);

  void Flush() { endpoint_->Flush(); }
  // In a ClientGroup, which polls the endpoint: a pass begins, before anything else is called in it. `after_quiet`: many
  // passes of the group before it found nothing.
  void BeginPass(bool after_quiet) {
    now_is_stale_ = true;
    quiet_passes_ = after_quiet ? kQuietPasses : 0;
  }
  // The next Poll() has something to do that no event announces.
  bool HasWork() const;
  // One pass; never blocks. The number of things done.
  int Poll();
  // See endpoint.h; includes this engine's timers. False, too, while the next Poll() has something to do that no event
  // announces.
  bool PrepareToSleep() { return !HasWork() && endpoint_->PrepareToSleep(); }
  int64_t SleepLimitNs();
  // After a sleep, so that timers see the time that has passed. How many were due.
  int AfterSleep();

  // So many owners share the engine, or did. Each adds max_outstanding_calls to their limit. At most CallTable::MaxOwners().
  void AllowOwners(uint32_t owners) { table_.AllowOwners(owners); }
  // Ends calls and watches whose `owner` is this one, as Close() does, and tells the servers. The owner starts none
  // afterwards, not even in their callbacks.
  void EndCallsOf(const void* owner);
  // The status of calls that Close() and EndCallsOf() end.
  absl::Status ChannelClosed() const;

  // Says goodbye and ends all calls with CANCELLED. No callbacks afterwards.
  void Close();

  // The time as of the last reading: at most one per pass when there is work, one in sixteen when
  // there is none.
  int64_t now_ns() const { return now_ns_; }
  // Of the connection that is nearest to being up.
  ConnectionState state() const;
  const std::vector<std::unique_ptr<Connection>>& connections() const { return connections_; }
  // Why the last one that was lost was lost; OK while none was.
  const absl::Status& last_error() const { return last_error_; }
  const std::string& server() const { return server_; }
  uint32_t outstanding() const { return table_.active(); }
  base::Clock* clock() const { return clock_; }
  const ClientCounters& counters() const { return counters_; }
  const session::SessionCounters& session_counters() const { return sessions_.counters(); }
  // Sessions::large_steps().
  uint64_t large_steps() const { return sessions_.large_steps(); }
  // May be read by any thread meanwhile.
  const observe::CallStats& stats() const { return stats_; }
  const base::TraceRing& trace() const { return trace_; }
  // Any thread.
  Exceptions* exceptions() { return &exceptions_; }

  void OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) override;
  void OnPeerDown(endpoint::PeerId peer, const absl::Status& why) override;
  void OnMessage(endpoint::PeerId peer, const frame::Header& header,
                 std::span<const std::byte> payload) override;
  void OnWritable(endpoint::PeerId peer) override;
  void OnLost(endpoint::PeerId peer, const frame::Header& header, const absl::Status& why) override;
  void OnProtocolError(endpoint::PeerId peer, std::string_view what,
                       std::string_view explanation) override;

 private:
  static constexpr uint32_t kIdlePassesPerClockRead = 16;
  static constexpr uint32_t kBusyPassesPerClockRead = 64;
  // After so many passes without anything a look at the clock costs nothing in comparison.
  static constexpr uint32_t kQuietPasses = 64;

  static void OnDeadline(void* owner, Call* call);
  static void OnThrown(void* owner, const Method& method);
  void EndTheseSoon();
  static void OnBackoffOver(base::Timer* timer, void* context);
  static void OnPauseOver(base::Timer* timer, void* context);

  void RefreshNow();
  void LookAtOverload();
  static void Move(Connection* connection, ConnectionEvent event);
  // client_watch.cc: after each change of what state() says.
  void NoteState();
  static void OnWatch(base::Timer* timer, void* context);
  // nullptr: all of them.
  void EndWatches(const void* owner);
  // The servers' connections (client_connections.cc).
  Connection* Find(endpoint::PeerId peer) {
    if (peer.index >= by_peer_.size()) return nullptr;
    Connection* found = by_peer_[peer.index];
    return found != nullptr && found->peer == peer ? found : nullptr;
  }
  void Dial(Connection* connection);
  // It is gone, or never came up: back-off, and the calls that can't go on end.
  void Lose(Connection* connection, const absl::Status& why, absl::StatusCode sent_code);
  void LogLoss(Connection* connection, const absl::Status& why);
  // Closes it because of what came over it.
  void Break(Connection* connection, std::string_view what, std::string_view explanation);
  // Between 3/4 and 5/4 of it, so that clients do not come in waves.
  int64_t Jittered(int64_t wait_ns) {
    return wait_ns - wait_ns / 4 +
           static_cast<int64_t>(random_->Below(static_cast<uint64_t>(wait_ns / 2) + 1));
  }
  // client_health.cc
  void WatchHealth(Connection* connection);
  void ForgetHealth(Connection* connection);
  void AskHealth(Connection* connection);
  static void OnHealthTime(base::Timer* timer, void* context);
  static void OnHealth(void* argument, const absl::Status& status);
  void Judge(Connection* connection, Health health, std::string_view why);
  void Reconsider();
  bool IsLeaving(const Connection* connection) const;
  // The server takes no new calls.
  void OnDrain(Connection* connection);
  // Those that are no servers any more, and have no calls.
  void DropLeft();
  // A call that waits may be sent some day without anybody's doing.
  bool HasHope() const;
  // There is none: those that were not told to wait for ready end.
  void EndHopeless();

  void Deliver(Connection* connection, const frame::Header& header,
               std::span<const std::byte> payload);
  void DeliverOther(Call* call, const frame::Header& header, std::span<const std::byte> payload);
  // No call waits in front, and there is a place.
  bool MaySendNow() const { return table_.waiting() == 0 && table_.active() < table_.limit(); }
  absl::Status StartOther(const CallSpec& spec, int64_t deadline_ns, uint64_t* call_id,
                          bool refused);

  void Begin(Call* call, uint64_t* call_id) {
    ++counters_.calls_started;
    const Method& method = *call->spec.method;
    const uint64_t id = CallTable::WireId(*call);
    call->started_ns = now_ns_;
    call->stats = stats_.Of(method.id, method.full_name);
    call->stats->CountStart();
    if (call_id != nullptr) *call_id = id;
    if (call->spec.stream != nullptr || call->spec.control != nullptr) BeginKnown(call, id);
  }
  // Tells the call's number to its stream, and to who may cancel it.
  void BeginKnown(Call* call, uint64_t id);
  static bool MayGetCalls(const Connection& connection) {
    return connection.state == ConnectionState::kUp && !connection.left_out;
  }
  // `buffer`, if there is one, was made for a server.
  size_t FirstChoice(const Buffer* buffer) {
    return connections_.size() < 2 ? 0 : FirstChoiceOfSome(buffer);
  }
  size_t FirstChoiceOfSome(const Buffer* buffer);
  static size_t PayloadBytes(const CallSpec& spec) {
    const size_t message =
        spec.method->client_streams() ? 0 : spec.method->request_codec->size(*spec.request);
    return message + frame::MetadataBytes(spec.metadata.size()) +
           frame::AttachmentBytes(spec.attachment.size());
  }
  // Memory for the request, and the server it is for. UNAVAILABLE: none is up.
  absl::Status ReserveFor(const CallSpec& spec, Connection** connection,
                          endpoint::SendBuffer* buffer, uint32_t* payload_bytes);
  // Of these two one is always inlined.
  void SendRequest(Call* call, Connection* connection, const endpoint::SendBuffer& buffer,
                   uint32_t payload_bytes);
  void Send(Call* call, Connection* connection, const endpoint::SendBuffer& buffer,
            uint32_t payload_bytes);
  void SendWaiting();
  // True: there will be another attempt.
  bool Retry(Call* call, const absl::Status& status, bool not_run);
  void Again(Call* call);
  bool SendControl(Connection* connection, frame::Kind kind, uint64_t call_id, uint32_t window);
  void SendOwed(Connection* connection);
  static void Block(Call* call);
  // Its observer may end the call.
  static void Open(ClientStream* stream);
  void OnStream(Connection* connection, const frame::Header& header,
                std::span<const std::byte> payload);
  void End(Call* call, CallEvent event, const absl::Status& status);
  // The same for a reply of success to a call without a stream.
  void EndOk(Call* call);
  bool IsSampled() { return !now_is_stale_ || quiet_passes_ >= kQuietPasses || sampler_.Hit(); }
  // Gives the caller what came beside the reply's message.
  void KeepBeside(Beside* beside, const frame::Parts& parts);
  // The server answered with an error.
  void Fail(Call* call, Connection* connection, const frame::Header& header,
            std::span<const std::byte> message);
  absl::Status NotParsed(const Call& call, const Connection& connection, size_t bytes) const;
  // With what is not done for each call.
  void EndRecorded(Call* call, CallEvent event, const absl::Status& status, bool sampled);
  void CountOk(Call* call) {
    ++counters_.calls_ok;
    budget_.Succeeded();
    call->stats->CountOk();
  }
  void RecordLatency(const Call& call);
  void Trace(observe::TraceEvent event, uint64_t id, uint64_t detail, int64_t number,
             const absl::Status& status = absl::OkStatus()) {
    trace_.Add({now_ns_, id, detail, static_cast<uint32_t>(number), static_cast<uint16_t>(event),
                static_cast<uint16_t>(status.ok() ? absl::StatusCode::kOk : status.code())});
  }

  // Why, without the rest of its sentence: it becomes part of another one.
  static std::string CauseOf(const absl::Status& status);
  // Of a message, header included, whether it is sent as it is or not.
  static uint32_t LimitOf(const endpoint::PeerInfo& info) {
    return frame::kHeaderBytes + session::Sessions::LargestPayload(info);
  }
  // There is no memory for it, and waiting would not help.
  absl::Status NoMemory(const CallSpec& spec, const absl::Status& why) const;
  absl::Status TooLarge(const CallSpec& spec, const char* what, uint64_t payload_bytes,
                        uint32_t limit_bytes,
                        absl::StatusCode code = absl::StatusCode::kResourceExhausted) const;
  // No server is there for it.
  absl::Status NotConnected(std::string_view operation) const;
  absl::Status DeadlineExceeded(const CallSpec& spec, CallState state, uint32_t attempt = 1) const;

  const ClientEngineOptions options_;
  std::string server_;  // "host:port", or all of them
  base::Clock* const clock_;
  base::Random* const random_;
  base::EventLog log_;
  observe::Overload overload_{"calls are refused"};
  observe::Overload outage_{"the retry budget is used up"};
  endpoint::Endpoint* endpoint_ = nullptr;
  session::Sessions sessions_{this};

  base::TimerWheel wheel_;
  Exceptions exceptions_;
  CallTable table_;

  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Connection>> leaving_;  // no servers any more
  std::vector<Connection*> by_peer_;                  // by PeerId::index
  size_t next_choice_ = 0;
  RetryBudget budget_;
  uint32_t limit_bytes_;  // of a message, header included: the largest of the connections'
  bool closed_ = false;
  absl::Status last_error_;
  std::vector<StateWatch*> watches_;
  const void* ending_ = nullptr;  // EndCallsOf()'s owner, while it runs
  bool dial_wanted_ = false;      // by a call, at the next Poll()
  bool servers_changed_ = false;  // since the last Poll(): calls may have lost their hope
  std::vector<std::pair<uint64_t, absl::Status>> end_soon_;  // EndSoon()'s

  int64_t now_ns_ = 0;
  bool now_is_stale_ = true;
  uint32_t idle_passes_ = 0;
  uint32_t busy_passes_ = 0;
  uint32_t quiet_passes_ = 0;  // in a row
  ClientCounters counters_;
  observe::CallStats stats_;
  base::Sampler sampler_;
  base::TraceRing trace_;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_CLIENT_ENGINE_H_
