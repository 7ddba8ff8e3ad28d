// SPDX-License-Identifier: Apache-2.0
//
// ClientReader, ClientWriter, ClientReaderWriter: the caller's side of calls in which the server, the client, or both send more than one
// message.
//
//   auto lines = client.Tail(context, request);              // ClientReader<Line>
//   Line line;
//   while (lines.Read(&line)) …                               // or co_await lines.CoRead(&line)
//   absl::Status status = lines.Finish();                     // or co_await lines.CoFinish()
//
// Purpose       Messages in order, with a window in each direction: if the reader does not read, its writer waits.
// Ownership     The user. The context outlives the stream. The stream outlives the callbacks and coroutines that wait for it. A
//               waiting coroutine may be destroyed (task.h names the thread): its operation is withdrawn, and the call continues.
// Threads       At most one ReadInitialMetadata, one Read and one Write at a time, from any thread; one Finish.
// Styles        Read(), Write(), Finish() block, and drive the channel meanwhile. Inside a callback of the channel they return false
//               or FAILED_PRECONDITION. TryWrite() does not wait. CoRead() … are for co_await. StartRead() … call back on the thread
//               that drives the channel.
// Errors        Read() and Write() return false for any error; Finish() returns the error. An exception that leaves a callback is
//               logged and ends the call with UNKNOWN.
// Metadata      ReadInitialMetadata() waits for the metadata that the server's handler sends at the beginning of the call
//               (ServerContext::SendInitialMetadata()). CallContext::reply_metadata() has the metadata at the end, after Finish().
// Limits        The receiver's stream_window (ChannelOptions, ServerOptions; default 16) limits the messages of each direction that
//               were sent and not read. A message over 1 MiB counts once for each MiB begun, and as 8 at most. Write() waits while the
//               window is full.
// Deadlock      A client that writes all its messages before it reads waits for a server that replies while it reads, and the server
//               waits for the client. Both stop after about 33 messages (the sum of both windows, and one). The call ends with
//               DEADLINE_EXCEEDED, and the text has the number of unread messages. To avoid it, read while writing: on another thread,
//               with StartRead(), or with co_await.
// End           Finish(); after it the stream may be destroyed. A destructor without Finish() cancels the call. If the channel ends
//               first, the call ends with CANCELLED.
#ifndef SLUICE_MIDDLEWARE_API_STREAM_H_
#define SLUICE_MIDDLEWARE_API_STREAM_H_

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "middleware/api/call_context.h"
#include "middleware/api/channel.h"
#include "middleware/api/channel_keep.h"
#include "middleware/api/stop_call.h"
#include "middleware/api/task.h"
#include "middleware/call/client_stream.h"

namespace sluice {

// Result of TryWrite().
enum class WriteAttempt : uint8_t {
  kWritten,  // as a Write() that returned true
  // Not sent: the window is full, or the channel is not connected. Write(), CoWrite() and StartWrite() wait.
  kWouldWait,
  kEnded,  // as a Write() that returned false: Finish() returns the reason
};

namespace internal {

// A waiter for a stream operation. Done(ok) is called once, on the thread that drives, and may
// destroy the waiter.
class StreamWaiter {
 public:
  virtual void Done(bool ok) = 0;

 protected:
  ~StreamWaiter() = default;
};

class StreamCore final : private call::ClientStream::Observer {
 public:
  // `request` is nullptr if the client streams, `reply` if the server streams. The request is
  // copied.
  StreamCore(Channel* channel, const Method& method, CallContext& context,
             const google::protobuf::MessageLite* request, google::protobuf::MessageLite* reply);
  ~StreamCore();
  StreamCore(const StreamCore&) = delete;
  StreamCore& operator=(const StreamCore&) = delete;

  // These functions return the result. nullopt: there is no result yet; `waiter` will get it.
  std::optional<bool> Read(google::protobuf::MessageLite* message, StreamWaiter* waiter);
  std::optional<bool> Write(const google::protobuf::MessageLite& message, StreamWaiter* waiter);
  WriteAttempt WriteNow(const google::protobuf::MessageLite& message);
  std::optional<bool> ReadInitialMetadata(Metadata* metadata, StreamWaiter* waiter);
  std::optional<bool> AwaitEnd(StreamWaiter* waiter);
  // Removes the waiter. After it returns, the waiter is not notified.
  void Forget(StreamWaiter* waiter);
  void EndWrites();
  // Ends the call with CANCELLED.
  void Cancel();
  // Status of the call. Valid after AwaitEnd() has given its result.
  absl::Status status() const { return status_; }
  Channel* channel() const { return channel_.get(); }
  // Number of the call; 0: it was not started.
  uint64_t call_id() const { return control_.call_id.load(); }
  // Call in the catch block of an exception that left a callback of the call. Logs the exception, and ends the call with UNKNOWN in
  // the next pass.
  static void Thrown(Channel* channel, uint64_t call_id);

  bool WaitInitialMetadata(Metadata* metadata);
  bool WaitRead(google::protobuf::MessageLite* message);
  bool WaitWrite(const google::protobuf::MessageLite& message);
  absl::Status WaitEnd();

 private:
  struct Blocking;

  static void OnDone(void* argument, const absl::Status& status);
  void OnReadable() override;
  void OnWritable() override;
  void OnOpened() override;
  template <typename Begin>
  bool Wait(Begin begin);
  // These functions need the lease.
  std::optional<bool> TryRead(google::protobuf::MessageLite* message);
  std::optional<bool> TryWrite(const google::protobuf::MessageLite& message);
  void Fault(absl::Status why);
  std::optional<bool> TryInitialMetadata(Metadata* metadata) const;
  std::optional<bool> BeginInitialMetadata(Metadata* metadata, StreamWaiter* waiter);
  std::optional<bool> BeginRead(google::protobuf::MessageLite* message, StreamWaiter* waiter);
  std::optional<bool> BeginWrite(const google::protobuf::MessageLite& message,
                                 StreamWaiter* waiter);
  std::optional<bool> BeginEnd(StreamWaiter* waiter);

  const ChannelKeep channel_;
  const char* const method_;  // name of the method
  const std::unique_ptr<google::protobuf::MessageLite> request_;
  call::ClientStream stream_;
  call::CallControl control_;
  StopCall stop_;
  // The members below need the lease.
  bool over_ = false;
  absl::Status status_;
  absl::Status fault_;  // error that this side found in a message
  StreamWaiter* reader_ = nullptr;
  google::protobuf::MessageLite* read_into_ = nullptr;
  StreamWaiter* writer_ = nullptr;
  const google::protobuf::MessageLite* to_write_ = nullptr;
  StreamWaiter* opener_ = nullptr;
  Metadata* metadata_into_ = nullptr;
  StreamWaiter* finisher_ = nullptr;
  bool* gone_ = nullptr;  // flag of OnDone(): *this was destroyed inside it
};

template <typename Begin>
class [[nodiscard]] StreamAwaiter final : private StreamWaiter {
 public:
  StreamAwaiter(StreamCore* core, Begin begin) : core_(core), begin_(std::move(begin)) {}
  StreamAwaiter(const StreamAwaiter&) = delete;
  StreamAwaiter& operator=(const StreamAwaiter&) = delete;
  ~StreamAwaiter() {
    if (waits_) core_->Forget(this);
  }
  bool await_ready() { return false; }
  template <typename Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) {
    resumption_.Set(handle);
    waits_ = true;
    // If `begin_` returns nullopt, another thread may have resumed the coroutine and destroyed
    // *this.
    const std::optional<bool> result = begin_(static_cast<StreamWaiter*>(this));
    if (!result.has_value()) return true;
    ok_ = *result;
    return false;
  }
  bool await_resume() {
    waits_ = false;
    return ok_;
  }

 private:
  void Done(bool ok) override {
    ok_ = ok;
    resumption_.Resume();
  }

  StreamCore* const core_;
  Begin begin_;
  bool ok_ = false;
  bool waits_ = false;  // the coroutine waits; used by its thread only
  Resumption resumption_;
};

// Runs a callback, and owns itself.
class StreamCallback final : public StreamWaiter {
 public:
  using Function = absl::AnyInvocable<void(bool ok) &&>;
  StreamCallback(const StreamCore& core, Function done)
      : channel_(core.channel()), call_id_(core.call_id()), done_(std::move(done)) {}
  void Done(bool ok) override {
    const std::unique_ptr<StreamCallback> self(this);
    try {
      std::move(done_)(ok);
    } catch (...) {  // the stream may be destroyed
      StreamCore::Thrown(channel_.get(), call_id_);
    }
  }
  // `begin(waiter)` as in StreamAwaiter. The callback may run before this returns.
  template <typename Begin>
  static void Start(const StreamCore& core, Function done, Begin begin) {
    auto* callback = new StreamCallback(core, std::move(done));
    const std::optional<bool> result = begin(static_cast<StreamWaiter*>(callback));
    if (result.has_value()) callback->Done(*result);
  }

 private:
  const ChannelKeep channel_;
  const uint64_t call_id_;
  Function done_;
};

// Common part of the three classes.
class ClientStreamBase {
 public:
  using Callback = StreamCallback::Function;

  // Blocks until the call has ended, and returns its status. Messages that were not read are
  // dropped.
  absl::Status Finish() { return core_->WaitEnd(); }
  Task<absl::Status> CoFinish() {
    StreamCore* const core = core_.get();
    co_await StreamAwaiter(core, [core](StreamWaiter* waiter) { return core->AwaitEnd(waiter); });
    co_return core->status();
  }
  void StartFinish(absl::AnyInvocable<void(const absl::Status&) &&> done) {
    StreamCore* const core = core_.get();
    StreamCallback::Start(
        *core, [core, done = std::move(done)](bool) mutable { std::move(done)(core->status()); },
        [core](StreamWaiter* waiter) { return core->AwaitEnd(waiter); });
  }
  // Blocks until the server's handler has sent initial metadata (ServerContext::SendInitialMetadata()), and sets `*metadata`, which
  // may be empty. Returns false if there is none: a message arrived first, or the call has ended. Further calls return the same
  // result.
  bool ReadInitialMetadata(Metadata* metadata) { return core_->WaitInitialMetadata(metadata); }
  auto CoReadInitialMetadata(Metadata* metadata) {
    return StreamAwaiter(core_.get(), [core = core_.get(), metadata](StreamWaiter* waiter) {
      return core->ReadInitialMetadata(metadata, waiter);
    });
  }
  void StartReadInitialMetadata(Metadata* metadata, Callback done) {
    StreamCallback::Start(*core_, std::move(done),
                          [core = core_.get(), metadata](StreamWaiter* waiter) {
                            return core->ReadInitialMetadata(metadata, waiter);
                          });
  }
  // Ends the call with CANCELLED, soon.
  void Cancel() { core_->Cancel(); }

 protected:
  explicit ClientStreamBase(std::unique_ptr<StreamCore> core) : core_(std::move(core)) {}

  auto AwaitRead(google::protobuf::MessageLite* message) {
    return StreamAwaiter(core_.get(), [core = core_.get(), message](StreamWaiter* waiter) {
      return core->Read(message, waiter);
    });
  }
  auto AwaitWrite(const google::protobuf::MessageLite& message) {
    return StreamAwaiter(core_.get(), [core = core_.get(), &message](StreamWaiter* waiter) {
      return core->Write(message, waiter);
    });
  }
  void CallBackRead(google::protobuf::MessageLite* message, Callback done) {
    StreamCallback::Start(*core_, std::move(done),
                          [core = core_.get(), message](StreamWaiter* waiter) {
                            return core->Read(message, waiter);
                          });
  }
  void CallBackWrite(const google::protobuf::MessageLite& message, Callback done) {
    StreamCallback::Start(*core_, std::move(done),
                          [core = core_.get(), &message](StreamWaiter* waiter) {
                            return core->Write(message, waiter);
                          });
  }

  std::unique_ptr<StreamCore> core_;
};

}  // namespace internal

// A call in which the server streams.
template <typename Reply>
class ClientReader : public internal::ClientStreamBase {
 public:
  ClientReader(Channel* channel, const Method& method, CallContext& context,
               const google::protobuf::MessageLite& request)
      : ClientStreamBase(
            std::make_unique<internal::StreamCore>(channel, method, context, &request, nullptr)) {}
  // Blocks until there is a message. False: there are no more messages; Finish() returns the
  // reason. A message that is not a Reply ends the call with INTERNAL.
  bool Read(Reply* message) { return core_->WaitRead(message); }
  auto CoRead(Reply* message) { return AwaitRead(message); }
  void StartRead(Reply* message, Callback done) { CallBackRead(message, std::move(done)); }
};

// A call in which the client streams. `reply` is set if Finish() returns OK.
template <typename Request>
class ClientWriter : public internal::ClientStreamBase {
 public:
  ClientWriter(Channel* channel, const Method& method, CallContext& context,
               google::protobuf::MessageLite* reply)
      : ClientStreamBase(
            std::make_unique<internal::StreamCore>(channel, method, context, nullptr, reply)) {}
  // Blocks until the window has room for the message. False: the call has ended, or ends because the message is over the limit;
  // Finish() returns the reason.
  bool Write(const Request& message) { return core_->WaitWrite(message); }
  // Writes the message if that does not wait. Does not block, and may be used in a callback of the channel.
  [[nodiscard]] WriteAttempt TryWrite(const Request& message) { return core_->WriteNow(message); }
  auto CoWrite(const Request& message) { return AwaitWrite(message); }
  void StartWrite(const Request& message, Callback done) {
    CallBackWrite(message, std::move(done));
  }
  // Ends the stream of requests.
  void WritesDone() { core_->EndWrites(); }
};

// A call in which client and server stream.
template <typename Request, typename Reply>
class ClientReaderWriter : public internal::ClientStreamBase {
 public:
  ClientReaderWriter(Channel* channel, const Method& method, CallContext& context)
      : ClientStreamBase(
            std::make_unique<internal::StreamCore>(channel, method, context, nullptr, nullptr)) {}
  bool Read(Reply* message) { return core_->WaitRead(message); }
  auto CoRead(Reply* message) { return AwaitRead(message); }
  void StartRead(Reply* message, Callback done) { CallBackRead(message, std::move(done)); }
  bool Write(const Request& message) { return core_->WaitWrite(message); }
  [[nodiscard]] WriteAttempt TryWrite(const Request& message) { return core_->WriteNow(message); }
  auto CoWrite(const Request& message) { return AwaitWrite(message); }
  void StartWrite(const Request& message, Callback done) {
    CallBackWrite(message, std::move(done));
  }
  void WritesDone() { core_->EndWrites(); }
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_STREAM_H_
