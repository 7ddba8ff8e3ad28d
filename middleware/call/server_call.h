// SPDX-License-Identifier: Apache-2.0
//
// ServerCall: a call that a server has accepted and not answered when its handler returned: the handler is a coroutine, runs on an
// executor, or streams.
//
// Purpose       Request, reply, caller, and the received messages of a stream. The handler calls Finish() exactly once. If the caller
//               disconnects or cancels, or the deadline expires, the observer is told, and the reply is dropped.
// Ownership     ServerEngine, which reuses it. From start to Finish() the handler has it.
// Threads       The polling thread. Post(): any.
#ifndef SLUICE_MIDDLEWARE_CALL_SERVER_CALL_H_
#define SLUICE_MIDDLEWARE_CALL_SERVER_CALL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "middleware/call/method.h"
#include "middleware/call/stream_end.h"
#include "middleware/observe/call_stats.h"
#include "transport/base/mailbox.h"
#include "transport/base/timer_wheel.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::call {

class ServerEngine;

class ServerCall {
 public:
  // Called on the polling thread. May finish the call.
  class Observer {
   public:
    virtual ~Observer() = default;
    // Called once when the caller no longer waits: it cancelled or disconnected, or the deadline has expired.
    virtual void OnCancelled() = 0;
    virtual void OnReadable() {}  // after a Read() that found nothing
    virtual void OnWritable() {}  // after a Write() that was refused
  };

  ServerCall(ServerEngine* engine, const MethodHandler* handler);
  ServerCall(const ServerCall&) = delete;
  ServerCall& operator=(const ServerCall&) = delete;

  const MethodHandler& handler() const { return *handler_; }
  const Incoming& incoming() const { return incoming_; }
  // Empty if the client streams.
  const google::protobuf::MessageLite& request() const { return *request_; }
  // Not sent if the server streams.
  google::protobuf::MessageLite* reply() { return reply_.get(); }

  // Sets the observer; nullptr removes it. An observer outlives the call, or is removed before it ends.
  void set_observer(Observer* observer) { observer_ = observer; }
  bool cancelled() const { return cancelled_; }
  // Returns the reason of the cancellation; OK if the call was not cancelled. CANCELLED: by the caller, its disconnect, or the server's
  // Close(). DEADLINE_EXCEEDED. UNAVAILABLE: by the server's drain. Another code: a large message of the stream was lost.
  const absl::Status& why_cancelled() const { return why_cancelled_; }

  // Reads the next message of the client's stream. Returns kEnd if the call was cancelled.
  ReadResult Read(google::protobuf::MessageLite* message);
  // Sends a message of the server's stream. Does not block.
  // Errors: RESOURCE_EXHAUSTED (no room now; OnWritable() follows), INVALID_ARGUMENT (over the limit), CANCELLED (the caller
  // disconnected), why_cancelled() (the call was cancelled).
  absl::Status Write(const google::protobuf::MessageLite& message);

  // Sends serialised metadata, which may be empty, in a streaming call: once, and before the first message. Does not block.
  // Errors: FAILED_PRECONDITION (initial metadata or a message was sent before), RESOURCE_EXHAUSTED (over the limit), CANCELLED (the
  // caller disconnected), why_cancelled() (the call was cancelled).
  absl::Status SendInitialMetadata(std::string_view metadata);

  // Sends the reply and ends the call. Do not use the call afterwards.
  void Finish(const absl::Status& status);
  // As Finish(), for a call that no handler has seen or will see. The reply reports this to the caller.
  void Refuse(const absl::Status& status);
  // Runs the node on the polling thread, where it may call Finish(). Any thread.
  void Post(base::MailNode* node);
  // Withdraws a posted node that has not run. On the polling thread.
  void Withdraw(base::MailNode* node);
  // Any thread. Returns whether another thread than the calling one is the polling thread.
  bool PolledElsewhere() const;
  // On the polling thread. Fires `timer` there after `after_ns` of the server's clock; also after the server's Close(), as long as
  // the call is not finished.
  void StartTimer(base::Timer* timer, int64_t after_ns);
  void StopTimer(base::Timer* timer);

 private:
  friend class ServerEngine;

  ServerEngine* const engine_;
  const MethodHandler* const handler_;
  const std::unique_ptr<google::protobuf::MessageLite> request_;
  const std::unique_ptr<google::protobuf::MessageLite> reply_;
  const std::unique_ptr<StreamEnd> stream_;  // nullptr: the method does not stream
  Observer* observer_ = nullptr;
  Incoming incoming_{};
  observe::MethodStats* stats_ = nullptr;  // of its method
  std::string peer_address_;
  std::string tenant_;
  std::string metadata_;
  Buffer attachment_;
  Beside reply_beside_;
  endpoint::PeerId peer_;
  uint64_t call_id_ = 0;
  uint64_t serial_ = 0;  // number among the engine's calls; 0: not in use
  base::Timer timer_;
  bool cancelled_ = false;
  bool wants_to_read_ = false;
  bool wants_to_write_ = false;
  bool blocked_ = false;  // in ServerEngine::Peer::blocked
  bool not_run_ = false;
  bool opened_ = false;  // initial metadata or a message has been sent
  absl::Status why_cancelled_;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_SERVER_CALL_H_
