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
  // Of a method whose client streams it is empty.
  const google::protobuf::MessageLite& request() const { return *request_; }
  // Of a method whose server streams it is not sent.
  google::protobuf::MessageLite* reply() { return reply_.get(); }

  // Sets the observer; nullptr removes it. An observer outlives the call, or is removed before it ends.
  void set_observer(Observer* observer) { observer_ = observer; }
  bool cancelled() const { return cancelled_; }
  // CANCELLED or DEADLINE_EXCEEDED, with who and why; OK before.
  const absl::Status& why_cancelled() const { return why_cancelled_; }

  // The client's stream.
  ReadResult Read(google::protobuf::MessageLite* message);
  // The server's stream. RESOURCE_EXHAUSTED: no room, OnWritable() follows. INVALID_ARGUMENT: over the limit.
  // CANCELLED: the caller no longer reads.
  absl::Status Write(const google::protobuf::MessageLite& message);

  // Of a streaming call, once, before the first message: serialised metadata, which may be empty. Does not wait. CANCELLED or
  // DEADLINE_EXCEEDED: the caller no longer reads. FAILED_PRECONDITION: too late. RESOURCE_EXHAUSTED: over the limit.
  absl::Status SendInitialMetadata(std::string_view metadata);

  // Answers; the call is gone then.
  void Finish(const absl::Status& status);
  // The same for a call that no handler has seen, or will see: its caller is told so.
  void Refuse(const absl::Status& status);
  // From any thread: has the polling thread run it, which then may say Finish().
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
  const std::unique_ptr<StreamEnd> stream_;  // of a method that streams
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
  uint64_t serial_ = 0;  // of the engine's calls; 0: not in use
  base::Timer timer_;
  bool cancelled_ = false;
  bool wants_to_read_ = false;
  bool wants_to_write_ = false;
  bool blocked_ = false;  // in its peer's list
  bool not_run_ = false;
  bool opened_ = false;  // initial metadata or a message has been sent
  absl::Status why_cancelled_;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_SERVER_CALL_H_
