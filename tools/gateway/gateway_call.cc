// SPDX-License-Identifier: Apache-2.0
#include "tools/gateway/gateway_call.h"

#include <grpc/support/time.h>

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "middleware/api/client_call.h"
#include "tools/gateway/message_bytes.h"
#include "tools/gateway/metadata_conversion.h"
#include "tools/gateway/status_conversion.h"
#include "transport/base/error.h"

namespace sluice::gateway {
namespace {

absl::Duration TimeLeft(gpr_timespec deadline) {
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) {
    return absl::InfiniteDuration();
  }
  const gpr_timespec left = gpr_time_sub(gpr_convert_clock_type(deadline, GPR_CLOCK_MONOTONIC),
                                         gpr_now(GPR_CLOCK_MONOTONIC));
  return absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
}

absl::Status ClientGone() {
  return absl::CancelledError("the gRPC client cancelled or disconnected");
}

}  // namespace

GatewayCall::GatewayCall(grpc::GenericCallbackServerContext* context, const Shared* shared)
    : grpc_(context), shared_(shared) {
  if (!shared_->calls->Admit(stop_, &place_)) {
    End(base::Error(absl::StatusCode::kResourceExhausted, absl::StrCat(grpc_->method(), " refused"),
                    {.layer = "gateway",
                     .operation = grpc_->method(),
                     .cause = absl::StrCat(shared_->calls->limit(),
                                           " calls are open at the gateway, the maximum"),
                     .remedy = "retry later, or raise --max_calls",
                     .retry_safe = true}));
    return;
  }
  Hold();
  shared_->methods->Find(grpc_->method(), [this](absl::StatusOr<const Method*> method) {
    OnMethod(std::move(method));
    Release();
  });
}

GatewayCall::~GatewayCall() {
  stream_.reset();             // nothing refers to the channel when the call no longer counts
  (void)stop_.request_stop();  // OpenCalls forgets it
  shared_->calls->Leave(place_);
}

// ---- gRPC's side

void GatewayCall::ReadRequest() {
  const std::lock_guard lock(mutex_);
  if (!finished_) StartRead(&incoming_);
}

void GatewayCall::OnReadDone(bool ok) {
  // Valid here for a failed read: gRPC marks the context before it says so.
  if (!ok && grpc_->IsCancelled()) {
    (void)stop_.request_stop();
    if (!method_->client_streams()) End(ClientGone());
    return;
  }
  const size_t bytes = ok ? incoming_.Length() : 0;
  const bool too_long = bytes > shared_->max_message_bytes;
  if (method_->client_streams()) {
    if (!ok) return stream_->WritesDone();
    if (too_long) return Fail(TooLong("a request", bytes));
    request_.set_bytes(BytesOf(incoming_));
    Hold();
    return stream_->StartWrite(request_, [this](bool written) {
      // Otherwise the call has ended, or the server does not take a message so long: the stream keeps the reason.
      if (written) {
        ReadRequest();
      } else {
        (void)stop_.request_stop();
      }
      Release();
    });
  }
  if (!ok) {
    return End(base::Error(absl::StatusCode::kInvalidArgument,
                           absl::StrCat(grpc_->method(), " has no request"),
                           {.layer = "gateway",
                            .operation = grpc_->method(),
                            .cause = "the client ended its messages before the first one, and the "
                                     "method takes one",
                            .remedy = "send one message"}));
  }
  if (too_long) return End(TooLong("the request", bytes));
  request_.set_bytes(BytesOf(incoming_));
  incoming_.Clear();
  if (!method_->server_streams()) return StartUnary();
  if (OpenStream(&request_)) BeginReplies();
}

void GatewayCall::OnSendInitialMetadataDone(bool ok) {
  if (!ok) (void)stop_.request_stop();
  ReadReply();
}

void GatewayCall::OnWriteDone(bool ok) {
  if (!ok) (void)stop_.request_stop();
  outgoing_.Clear();
  ReadReply();
}

// ---- The server's side

void GatewayCall::OnMethod(absl::StatusOr<const Method*> method) {
  if (!method.ok()) return End(method.status());
  method_ = *method;
  if (absl::EndsWith(method_->full_name, ".health.v1.Health/Watch")) {
    shared_->calls->EndWhenDraining(stop_);
  }
  if (!method_->client_streams()) return ReadRequest();
  if (!OpenStream(nullptr)) return;
  // Before the replies, after which the call may have finished.
  ReadRequest();
  BeginReplies();
}

absl::Status GatewayCall::MakeContext() {
  CallContext& context = context_.emplace(TimeLeft(grpc_->raw_deadline()));
  context.set_stop_token(stop_.get_token());
  Metadata metadata;
  if (absl::Status status = FromGrpc(grpc_->client_metadata(), &metadata); !status.ok())
    return status;
  for (const auto& [key, value] : metadata.entries()) {
    if (absl::Status status = context.AddMetadata(key, value); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void GatewayCall::StartUnary() {
  if (absl::Status status = MakeContext(); !status.ok()) return End(status);
  Hold();
  const absl::Status started = StartCall(shared_->channel, *method_, *context_, request_, &reply_,
                                         [this](const absl::Status& status) {
                                           End(status);
                                           Release();
                                         });
  if (started.ok()) return;
  End(started);
  Release();
}

bool GatewayCall::OpenStream(const RawMessage* request) {
  if (absl::Status status = MakeContext(); !status.ok()) {
    End(status);
    return false;
  }
  stream_.emplace(shared_->channel, *method_, *context_, request,
                  method_->server_streams() ? nullptr : &reply_);
  return true;
}

void GatewayCall::BeginReplies() {
  Hold();
  stream_->StartReadInitialMetadata(&initial_, [this](bool sent) {
    if (sent) {
      for (const auto& [key, value] : ToGrpc(initial_)) grpc_->AddInitialMetadata(key, value);
      const std::lock_guard lock(mutex_);
      if (!finished_) StartSendInitialMetadata();
    } else {
      ReadReply();
    }
    Release();
  });
}

void GatewayCall::ReadReply() {
  if (!method_->server_streams()) return AwaitEnd();
  Hold();
  stream_->StartRead(&reply_, [this](bool ok) {
    OnReply(ok);
    Release();
  });
}

void GatewayCall::OnReply(bool ok) {
  if (!ok) return AwaitEnd();
  const size_t bytes = reply_.bytes().size();
  if (bytes > shared_->max_message_bytes) {
    Fail(TooLong("a reply", bytes));
    return AwaitEnd();
  }
  outgoing_ = BufferOf(reply_.TakeBytes());
  const std::lock_guard lock(mutex_);
  if (!finished_) StartWrite(&outgoing_);
}

void GatewayCall::AwaitEnd() {
  Hold();
  stream_->StartFinish([this](const absl::Status& status) {
    absl::Status fault;
    {
      const std::lock_guard lock(mutex_);
      fault = fault_;
    }
    End(fault.ok() ? status : fault);
    Release();
  });
}

// The call ends soon, since it is stopped, and then with `why`.
void GatewayCall::Fail(const absl::Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (fault_.ok()) fault_ = why;
  }
  (void)stop_.request_stop();
}

void GatewayCall::End(const absl::Status& status) {
  const bool replies = status.ok() && !method_->server_streams();
  const size_t bytes = replies ? reply_.bytes().size() : 0;
  if (bytes > shared_->max_message_bytes) return End(TooLong("the reply", bytes));
  const size_t attached =
      status.ok() && context_.has_value() ? context_->reply_attachment().size() : 0;
  if (attached > 0) return End(Attached(attached));
  if (absl::IsUnimplemented(status) && method_ != nullptr) {
    shared_->methods->Forget(method_->full_name);
    shared_->methods->Forget(grpc_->method());
  }
  if (context_.has_value()) {
    for (const auto& [key, value] : ToGrpc(context_->reply_metadata())) {
      grpc_->AddTrailingMetadata(key, value);
    }
  }
  grpc::Status converted = ToGrpc(status);
  // The stop was the gateway's own.
  if (absl::IsCancelled(status) && stop_.stop_requested() && shared_->calls->draining() &&
      !grpc_->IsCancelled()) {
    converted = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the gateway shuts down");
  }
  if (replies) outgoing_ = BufferOf(reply_.TakeBytes());
  const std::lock_guard lock(mutex_);
  if (std::exchange(finished_, true)) return;
  if (replies) {
    StartWriteAndFinish(&outgoing_, grpc::WriteOptions(), std::move(converted));
  } else {
    Finish(std::move(converted));
  }
}

absl::Status GatewayCall::Attached(size_t bytes) const {
  return base::Error(absl::StatusCode::kUnimplemented,
                     absl::StrCat("the reply of ", method_->full_name, " is not passed on"),
                     {.layer = "gateway",
                      .peer = shared_->channel->server(),
                      .operation = method_->full_name,
                      .cause = absl::StrCat("it has an attachment of ", bytes,
                                            " bytes, and gRPC has no attachments"),
                      .remedy = "send the bytes in the message"});
}

absl::Status GatewayCall::TooLong(const char* what, size_t bytes) const {
  return base::Error(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat(what, " of ", method_->full_name, " is too long"),
      {.layer = "gateway",
       .peer = shared_->channel->server(),
       .operation = method_->full_name,
       .cause = absl::StrCat("it has ", bytes, " bytes, the limit of the gateway is ",
                             shared_->max_message_bytes),
       .remedy = "raise --max_message"});
}

}  // namespace sluice::gateway
