// SPDX-License-Identifier: Apache-2.0
//
// Handlers that have not ended when they return: coroutines on the polling thread, plain functions on an executor. Used by MethodBinder
// (service.h).
//
// Ownership     The frame of the coroutine, or the function object on the executor, has the context of the call. The context gets events
//               of its ServerCall until the reply is given.
// Threads       The polling thread, except for the function on the executor.
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

// The context of a coroutine, and its home.
class TaskContext final : public ServerContext, public Home, private call::ServerCall::Observer {
 public:
  // The part of a coroutine that waits for its stream. Look() resumes the coroutine if it can continue.
  class Waiting {
   public:
    virtual void Look() = 0;

   protected:
    ~Waiting() = default;
    // On another thread than the polling one. Calls Look() on the polling thread.
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
  // What an executor resumed is not at home, whatever its thread: it is in no pass.
  bool IsHere() const override {
    return executing_for != call_->incoming().engine && !call_->PolledElsewhere();
  }
  void StartTimer(base::Timer* timer, int64_t after_ns) override {
    call_->StartTimer(timer, after_ns);
  }
  void StopTimer(base::Timer* timer) override { call_->StopTimer(timer); }
  void ResumeElsewhere(std::coroutine_handle<> coroutine) override {
    // As in ExecutorCall::Work(). This context may be gone when resume() returns.
    const auto* const before = std::exchange(executing_for, call_->incoming().engine);
    coroutine.resume();
    executing_for = before;
  }
  call::ServerCall* call() { return call_; }

  // The first thing that is wrong with the stream; it becomes the answer of a handler that found nothing wrong.
  void set_fault(absl::Status fault) {
    if (fault_.ok()) fault_ = std::move(fault);
  }
  const absl::Status& fault() const { return fault_; }
  // In the catch block of an exception that left the handler.
  absl::Status Thrown() { return call_->incoming().engine->Thrown("handler", call_->incoming()); }
  void Finish(const absl::Status& status) {
    call_->set_observer(nullptr);
    call_->Finish(status.ok() ? fault_ : status);
  }

  // One of each at a time.
  Waiting* reader = nullptr;
  Waiting* writer = nullptr;

 private:
  // Waiting coroutines continue in the next pass: no object ends here while it runs.
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

// Runs `handler(context)`, a Task<absl::Status>, and answers.
template <typename Handler>
Detached RunHandler(Home* /*lives as long as this*/, TaskContext* context, Handler handler) {
  absl::Status status;
  try {
    status = co_await handler(*context);
  } catch (...) {
    status = context->Thrown();
  }
  co_await ComeHome();  // it may have ended on an executor
  context->Finish(status);
  delete context;
}
template <typename Handler>
void StartHandler(call::ServerCall* call, Handler handler) {
  auto* context = new TaskContext(call);
  RunHandler(context, context, std::move(handler));
}

// A plain function on an executor.
template <typename Handler>
class ExecutorCall final : public ServerContext,
                           private call::ServerCall::Observer,
                           private base::MailNode {
 public:
  static void Start(call::ServerCall* call, const std::shared_ptr<ExecutorQueue>& queue,
                    Handler handler) {
    if (absl::Status full = queue->Enter(call->incoming()); !full.ok()) return call->Refuse(full);
    auto* self = new ExecutorCall(call, queue, std::move(handler));  // until Answer()
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
    // The caller no longer waits: the handler need not begin.
    if (cancelled()) status_ = absl::CancelledError("the caller did not wait");
    refused_ = !status_.ok();
    if (!refused_) {
      // A handler may run another one's here: an executor may do so in Run().
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
  bool refused_ = false;  // its handler has not run
};

}  // namespace internal

// What the client of a streaming call sends: its handler's, on the polling thread.
template <typename Request>
class ServerReader {
 public:
  explicit ServerReader(internal::TaskContext* context) : context_(context) {}

  // co_await reader.Read(&message): true: there is a message. False: no message follows, because the client has ended its
  // stream, or the caller no longer waits (ServerContext::cancelled()). From an executor (run_on.h) the coroutine comes home.
  auto Read(Request* message) { return Awaiter{context_, message}; }

  // After Read() was false, on the polling thread. OK: the client has ended its stream, and all of it was read. CANCELLED: the caller no
  // longer waits. Anything else: an error in the stream, such as INVALID_ARGUMENT for a message that is not a Request; if the handler
  // returns OK, the call ends with it. A handler that keeps what it read (a file, a transaction) asks for it first.
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
      if (!context->IsHere()) return LookAtHome(context);  // this may be gone now
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
    bool waits = false;  // it is the context's reader
    Resumption resumption;
  };

  internal::TaskContext* const context_;
};

// What the server of a streaming call sends: its handler's, on the polling thread.
template <typename Reply>
class ServerWriter {
 public:
  explicit ServerWriter(internal::TaskContext* context) : context_(context) {}

  // co_await writer.Write(message): waits for room in the window. True: the message is on its way. False: the caller no longer reads
  // (ServerContext::cancelled()), or it is over the limit, which then is the call's error. From an executor (run_on.h) the
  // coroutine comes home.
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
      if (!context->IsHere()) return LookAtHome(context);  // this may be gone now
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
    bool waits = false;  // it is the context's writer
    Resumption resumption;
  };

  internal::TaskContext* const context_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_DEFERRED_H_
