// SPDX-License-Identifier: Apache-2.0
#include "tools/gateway/forwarded_service.h"

#include <coroutine>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "transport/base/error.h"

namespace sluice::gateway {
namespace {

// The home of the coroutine that awaits it.
struct HomeOfThis {
  Home* home = nullptr;
  bool await_ready() { return false; }
  template <typename Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) {
    home = handle.promise().home;
    return false;
  }
  Home* await_resume() { return home; }
};

// A task that runs beside the coroutine that owns it, at the same home, and ends with it: its destructor destroys the task where
// it waits.
class Beside {
 public:
  struct promise_type {
    Home* home;
    template <typename... Rest>
    explicit promise_type(Home* the_home, Rest&&...) : home(the_home) {}
    Beside get_return_object() {
      return Beside(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  Beside(Beside&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}  // clang 14
  ~Beside() {
    if (handle_) handle_.destroy();
  }

 private:
  explicit Beside(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

// Passes the messages of the client on until it ends them, or the server ends the call.
Beside PassRequests(Home*, BackendCall* call, ServerContext* context,
                    ServerReader<RawMessage> reader) {
  RawMessage message;
  while (co_await reader.Read(&message)) {
    if (!co_await call->Write(message)) co_return;
  }
  // Half a stream is not the whole: a client that is gone cancels the call.
  if (context->cancelled()) {
    call->Cancel();
  } else {
    call->WritesDone();
  }
}

}  // namespace

ForwardedService::ForwardedService(grpc::GenericStub* stub, std::string name,
                                   const std::string& grpc_name,
                                   const google::protobuf::ServiceDescriptorProto& descriptor)
    : name_(std::move(name)) {
  for (const auto& method : descriptor.method()) {
    const auto streams =
        static_cast<call::Streams>((method.client_streaming() ? frame::kFlagClientStreams : 0) |
                                   (method.server_streaming() ? frame::kFlagServerStreams : 0));
    methods_.emplace_back(stub, absl::StrCat("/", name_, "/", method.name()),
                          absl::StrCat("/", grpc_name, "/", method.name()), streams,
                          method.options().idempotency_level() !=
                              google::protobuf::MethodOptions::IDEMPOTENCY_UNKNOWN);
  }
}

void ForwardedService::Bind(MethodBinder& binder) {
  for (Forward& one : methods_) {
    const Method& method = one.method();
    switch (method.streams) {
      case call::Streams::kNobody:
        binder.BindTask<Forward, RawMessage, RawMessage, &Forward::Unary>(method, &one);
        break;
      case call::Streams::kServer:
        binder.BindTask<Forward, RawMessage, RawMessage, &Forward::ServerStream>(method, &one);
        break;
      case call::Streams::kClient:
        binder.BindTask<Forward, RawMessage, RawMessage, &Forward::ClientStream>(method, &one);
        break;
      case call::Streams::kBoth:
        binder.BindTask<Forward, RawMessage, RawMessage, &Forward::Both>(method, &one);
        break;
    }
  }
}

Task<absl::Status> ForwardedService::Forward::Unary(ServerContext& context,
                                                    const RawMessage& request, RawMessage* reply) {
  if (absl::Status status = CheckAttachment(context); !status.ok()) co_return status;
  BackendCall call(stub_, grpc_name_, context);
  call.WriteLast(request);
  const Replies replies = co_await TakeReply(&call, context, reply);
  const absl::Status status = co_await EndOf(&call, context, replies);
  co_return status;
}

Task<absl::Status> ForwardedService::Forward::ServerStream(ServerContext& context,
                                                           const RawMessage& request,
                                                           ServerWriter<RawMessage> writer) {
  if (absl::Status status = CheckAttachment(context); !status.ok()) co_return status;
  BackendCall call(stub_, grpc_name_, context);
  call.WriteLast(request);
  const bool passed = co_await PassReplies(&call, context, writer);
  const absl::Status status = co_await call.End(context);
  co_return passed ? status : absl::OkStatus();
}

Task<absl::Status> ForwardedService::Forward::ClientStream(ServerContext& context,
                                                           ServerReader<RawMessage> reader,
                                                           RawMessage* reply) {
  if (absl::Status status = CheckAttachment(context); !status.ok()) co_return status;
  BackendCall call(stub_, grpc_name_, context);
  Home* const home = co_await HomeOfThis();
  Replies replies = Replies::kNone;
  {
    const Beside requests = PassRequests(home, &call, &context, reader);
    replies = co_await TakeReply(&call, context, reply);
  }
  const absl::Status status = co_await EndOf(&call, context, replies);
  co_return status;
}

Task<absl::Status> ForwardedService::Forward::Both(ServerContext& context,
                                                   ServerReader<RawMessage> reader,
                                                   ServerWriter<RawMessage> writer) {
  if (absl::Status status = CheckAttachment(context); !status.ok()) co_return status;
  BackendCall call(stub_, grpc_name_, context);
  Home* const home = co_await HomeOfThis();
  bool passed = false;
  {
    const Beside requests = PassRequests(home, &call, &context, reader);
    passed = co_await PassReplies(&call, context, writer);
  }
  const absl::Status status = co_await call.End(context);
  co_return passed ? status : absl::OkStatus();
}

Task<bool> ForwardedService::Forward::PassReplies(BackendCall* call, ServerContext& context,
                                                  ServerWriter<RawMessage> writer) {
  const Metadata* const initial = co_await call->Opened();
  // An error of it would be the end of the call, which the next step reports.
  if (initial != nullptr && !initial->entries().empty())
    (void)context.SendInitialMetadata(*initial);
  RawMessage message;
  while (co_await call->Read(&message)) {
    if (co_await writer.Write(message)) continue;
    call->Cancel();
    co_return false;
  }
  co_return true;
}

Task<ForwardedService::Forward::Replies> ForwardedService::Forward::TakeReply(
    BackendCall* call, ServerContext& context, RawMessage* reply) {
  const Metadata* const initial = co_await call->Opened();
  if (initial != nullptr && method_.client_streams() && !initial->entries().empty()) {
    (void)context.SendInitialMetadata(*initial);
  } else if (initial != nullptr) {
    for (const auto& [key, value] : initial->entries()) (void)context.AddReplyMetadata(key, value);
  }
  if (!co_await call->Read(reply)) co_return Replies::kNone;
  // The server may wait for more requests after its reply.
  RawMessage second;
  if (!co_await call->Read(&second)) co_return Replies::kOne;
  call->Cancel();
  co_return Replies::kMore;
}

Task<absl::Status> ForwardedService::Forward::EndOf(BackendCall* call, ServerContext& context,
                                                    Replies replies) {
  const absl::Status status = co_await call->End(context);
  if (replies == Replies::kMore) co_return ManyReplies();
  co_return status.ok() && replies == Replies::kNone ? NoReply() : status;
}

absl::Status ForwardedService::Forward::CheckAttachment(const ServerContext& context) const {
  if (context.attachment().empty()) return absl::OkStatus();
  return base::Error(absl::StatusCode::kUnimplemented,
                     absl::StrCat("the request of ", name_, " is not passed on"),
                     {.layer = "gateway",
                      .operation = name_,
                      .cause = absl::StrCat("it has an attachment of ", context.attachment().size(),
                                            " bytes, and gRPC has no attachments"),
                      .remedy = "send the bytes in the message"});
}

absl::Status ForwardedService::Forward::NoReply() const {
  return base::Error(absl::StatusCode::kInternal, absl::StrCat(name_, " has no reply"),
                     {.layer = "gateway",
                      .operation = name_,
                      .cause = "the gRPC server ended the call with OK and without a message",
                      .remedy = "give the gateway the descriptors that the server has"});
}

absl::Status ForwardedService::Forward::ManyReplies() const {
  return base::Error(
      absl::StatusCode::kInternal, absl::StrCat(name_, " has several replies"),
      {.layer = "gateway",
       .operation = name_,
       .cause = "the gRPC server sent a second message, and the method has one reply",
       .remedy = "give the gateway the descriptors that the server has"});
}

}  // namespace sluice::gateway
