// SPDX-License-Identifier: Apache-2.0
//
// Handlers that end after the function that starts them has returned: coroutines on the polling thread, and plain functions on an
// executor. Used by MethodBinder (service.h).
//
// Ownership     A coroutine owns the context of its call. An ExecutorCall is the context, and owns itself. The context observes its
//               ServerCall until the call is finished.
// Threads       The polling thread, except for the code of a handler on an executor.
#ifndef SLUICE_MIDDLEWARE_API_DEFERRED_H_
#define SLUICE_MIDDLEWARE_API_DEFERRED_H_

#include <coroutine>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "middleware/api/executor_queue.h"
#include "middleware/api/run_on.h"
#include "middleware/api/server_context.h"
#include "middleware/api/task.h"
#include "middleware/call/server_call.h"
#include "middleware/call/server_engine.h"
#include "middleware/call/stream_end.h"
#include "transport/base/clock.h"

namespace sluice {
namespace internal {

// Context and home (task.h) of a handler that is a coroutine.
class TaskContext final : public ServerContext, public Home, private call::ServerCall::Observer {
 public:
  // Awaiter of a stream operation. Look() retries the operation, and resumes the coroutine if there is a result.
  class Waiting {
   public:
    virtual void Look() = 0;

   protected:
    ~Waiting() = default;
    // Calls Look() on the polling thread. Used on other threads.
    void LookAtHome(TaskContext* context) {
      arrival_.Post(
          context, [](void* self) { static_cast<Waiting*>(self)->Look(); }, this);
    }

   private:
    HomeMail arrival_;
  };

  explicit TaskContext(call::ServerCall* call)
      : ServerContext(call, call->incoming(), /*elsewhere=*/false), call_(call) {
    call->set_observer(this);
  }

  void Post(base::MailNode* node) override { call_->Post(node); }
  void Withdraw(base::MailNode* node) override { call_->Withdraw(node); }
  // A coroutine that an executor resumed is not at home, even on the polling thread: the poller does not run it in a pass.
  bool IsHere() const override {
    return executing_for != call_->incoming().engine && !call_->PolledElsewhere();
  }
  void StartTimer(base::Timer* timer, int64_t after_ns) override {
    call_->StartTimer(timer, after_ns);
  }
  void StopTimer(base::Timer* timer) override { call_->StopTimer(timer); }
  void ResumeElsewhere(std::coroutine_handle<> coroutine) override {
    // An executor may run handlers inside each other, as in ExecutorCall::Work(). *this may be destroyed when resume() returns.
    const auto* const before = std::exchange(executing_for, call_->incoming().engine);
    coroutine.resume();
    executing_for = before;
  }
  call::ServerCall* call() { return call_; }

  // Keeps the first error of the stream. If the handler returns OK, the call ends with this error.
  void set_fault(absl::Status fault) {
    if (fault_.ok()) fault_ = std::move(fault);
  }
  const absl::Status& fault() const { return fault_; }
  // Call in the catch block of an exception that left the handler. Logs the exception, and returns the status of the call.
  absl::Status Thrown() { return call_->incoming().engine->Thrown("handler", call_->incoming()); }
  void Finish(const absl::Status& status) {
    call_->set_observer(nullptr);
    call_->Finish(status.ok() ? fault_ : status);
  }

  // Awaiters that wait for the two streams; nullptr: none.
  Waiting* reader = nullptr;
  Waiting* writer = nullptr;

 private:
  // Coroutines resume in a later pass, so these functions destroy no object that is in use.
  void OnCancelled() override {
    RequestStop();
    OnReadable();
    OnWritable();
  }
  void OnReadable() override {
    if (reader != nullptr) reader->Look();
  }
  void OnWritable() override {
    if (writer != nullptr) writer->Look();
  }

  call::ServerCall* const call_;
  absl::Status fault_;
};

// Runs `handler(context)`, a Task<absl::Status>, and finishes the call with its status. Destroys the context.
template <typename Handler>
Detached RunHandler(Home* /*lives as long as this*/, TaskContext* context, Handler handler) {
  absl::Status status;
  try {
    status = co_await handler(*context);
  } catch (...) {
    status = context->Thrown();
  }
  co_await ComeHome();  // the handler may have ended on an executor
  context->Finish(status);
  delete context;
}
template <typename Handler>
void StartHandler(call::ServerCall* call, Handler handler) {
  auto* context = new TaskContext(call);
  RunHandler(context, context, std::move(handler));
}

// A call whose handler is a plain function on an executor.
template <typename Handler>
class ExecutorCall final : public ServerContext,
                           private call::ServerCall::Observer,
                           private base::MailNode {
 public:
  static void Start(call::ServerCall* call, const std::shared_ptr<ExecutorQueue>& queue,
                    Handler handler) {
    if (absl::Status full = queue->Enter(call->incoming()); !full.ok()) return call->Refuse(full);
    auto* self = new ExecutorCall(call, queue, std::move(handler));  // Answer() deletes it
    absl::Status thrown;
    try {
      queue->executor()->Run([self] { self->Work(); });
      return;
    } catch (...) {
      thrown = call->incoming().engine->Thrown("executor", call->incoming());
    }
    queue->Leave();
    call->set_observer(nullptr);
    delete self;
    call->Refuse(thrown);
  }

 private:
  ExecutorCall(call::ServerCall* call, std::shared_ptr<ExecutorQueue> queue, Handler handler)
      : ServerContext(call, call->incoming(), /*elsewhere=*/true),
        call_(call),
        queue_(std::move(queue)),
        handler_(std::move(handler)) {
    run = &ExecutorCall::Answer;
    call->set_observer(this);
  }
  void Work() {
    status_ = queue_->Begin(call_->incoming(), base::RealClock().NowNs());
    // If the caller no longer waits, the handler does not run.
    if (cancelled()) status_ = absl::CancelledError("the caller did not wait");
    refused_ = !status_.ok();
    if (!refused_) {
      // An executor may run the work inside Run(), and so inside another handler: restore the previous value.
      const auto* const before = std::exchange(internal::executing_for, call_->incoming().engine);
      status_ = RunHandler();
      internal::executing_for = before;
    }
    call_->Post(this);
  }
  absl::Status RunHandler() {
    try {
      return handler_(*this);
    } catch (...) {
      return call_->incoming().engine->Thrown("handler", call_->incoming());
    }
  }
  static void Answer(base::MailNode* node) {
    auto* self = static_cast<ExecutorCall*>(node);
    self->call_->set_observer(nullptr);
    if (self->refused_) {
      self->call_->Refuse(self->status_);
    } else {
      self->call_->Finish(self->status_);
    }
    delete self;
  }
  void OnCancelled() override { RequestStop(); }

  call::ServerCall* const call_;
  const std::shared_ptr<ExecutorQueue> queue_;
  Handler handler_;
  absl::Status status_;
  bool refused_ = false;  // the handler did not run
};

}  // namespace internal

// Reads the messages that the client of a streaming call sends. For the handler of the call.
template <typename Request>
class ServerReader {
 public:
  explicit ServerReader(internal::TaskContext* context) : context_(context) {}

  // co_await it: waits for a message, and gives true. Gives false if no message follows: the client has ended its stream, the caller
  // no longer waits (ServerContext::cancelled()), or a message is not a Request (status()). On an executor (run_on.h) the coroutine
  // returns to its home.
  auto Read(Request* message) { return Awaiter{context_, message}; }

  // Returns why Read() gave false. Call on the polling thread. OK: the client has ended its stream, and the handler has read all
  // messages. CANCELLED: the caller no longer waits. Other codes: the first error of the call's streams, for example
  // INVALID_ARGUMENT if a message is not a Request. If the handler returns OK nevertheless, the call ends with this error. A
  // handler that stores messages (in a file, in a transaction) checks the status before it commits.
  absl::Status status() const {
    if (!context_->fault().ok()) return context_->fault();
    return context_->cancelled() ? absl::CancelledError("the caller no longer waits")
                                 : absl::OkStatus();
  }

 private:
  struct Awaiter final : internal::TaskContext::Waiting {
    Awaiter(internal::TaskContext* the_context, Request* the_message)
        : context(the_context), message(the_message) {}
    Awaiter(const Awaiter&) = delete;
    Awaiter& operator=(const Awaiter&) = delete;
    ~Awaiter() {
      if (waits) context->reader = nullptr;
    }

    bool await_ready() { return context->IsHere() && Try(); }
    template <typename Promise>
    void await_suspend(std::coroutine_handle<Promise> handle) {
      resumption.Set(handle);
      if (!context->IsHere()) return LookAtHome(context);  // *this may be destroyed now
      context->reader = this;
      waits = true;
    }
    bool await_resume() { return result == call::ReadResult::kMessage; }
    void Look() override {
      waits = !Try();
      context->reader = waits ? this : nullptr;
      if (!waits) resumption.Resume();
    }
    bool Try() {
      result = context->call()->Read(message);
      if (result == call::ReadResult::kMalformed) {
        context->set_fault(call::ReadFault(
            std::string(context->call()->incoming().method->full_name), message->GetTypeName()));
      }
      return result != call::ReadResult::kNothing;
    }

    internal::TaskContext* const context;
    Request* const message;
    call::ReadResult result = call::ReadResult::kNothing;
    bool waits = false;  // this awaiter is context->reader
    Resumption resumption;
  };

  internal::TaskContext* const context_;
};

// Writes the messages that the server of a streaming call sends. For the handler of the call.
template <typename Reply>
class ServerWriter {
 public:
  explicit ServerWriter(internal::TaskContext* context) : context_(context) {}

  // co_await it: waits while the window is full. Gives true if the message is accepted for sending. Gives false if the caller no
  // longer reads (ServerContext::cancelled()), or if the message is over the limit. If the handler returns OK nevertheless, the call
  // ends with the error. On an executor (run_on.h) the coroutine returns to its home.
  auto Write(const Reply& message) { return Awaiter{context_, &message}; }

 private:
  struct Awaiter final : internal::TaskContext::Waiting {
    Awaiter(internal::TaskContext* the_context, const Reply* the_message)
        : context(the_context), message(the_message) {}
    Awaiter(const Awaiter&) = delete;
    Awaiter& operator=(const Awaiter&) = delete;
    ~Awaiter() {
      if (waits) context->writer = nullptr;
    }

    bool await_ready() { return context->IsHere() && Try(); }
    template <typename Promise>
    void await_suspend(std::coroutine_handle<Promise> handle) {
      resumption.Set(handle);
      if (!context->IsHere()) return LookAtHome(context);  // *this may be destroyed now
      context->writer = this;
      waits = true;
    }
    bool await_resume() { return sent; }
    void Look() override {
      waits = !Try();
      context->writer = waits ? this : nullptr;
      if (!waits) resumption.Resume();
    }
    bool Try() {
      const absl::Status status = context->call()->Write(*message);
      if (absl::IsResourceExhausted(status)) return false;
      sent = status.ok();
      if (!sent) context->set_fault(call::WriteFault(status));
      return true;
    }

    internal::TaskContext* const context;
    const Reply* const message;
    bool sent = false;
    bool waits = false;  // this awaiter is context->writer
    Resumption resumption;
  };

  internal::TaskContext* const context_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_DEFERRED_H_
