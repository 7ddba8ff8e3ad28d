// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/client_call.h"

namespace sluice {
namespace {

struct CallbackCall {
  CallCallback done;
  call::CallControl control;
  internal::StopCall stop;
};

void OnDone(void* argument, const absl::Status& status) {
  const std::unique_ptr<CallbackCall> call(static_cast<CallbackCall*>(argument));
  std::move(call->done)(status);
}

// Starts a call with a stop token, or of a channel with interceptors. It needs a record on the heap.
[[gnu::noinline, gnu::cold]] absl::Status StartRecorded(
    Channel* channel, const Method& method, CallContext& context,
    const google::protobuf::MessageLite& request, google::protobuf::MessageLite* reply,
    CallCallback&& done) {
  auto call = std::make_unique<CallbackCall>();
  call->done = std::move(done);
  call->stop.Set(context.stop_token(), channel, &call->control);
  absl::Status started = channel->StartCall(method, context, request, reply, &OnDone, call.get(),
                                            &call->control, context.ReplyBeside());
  if (started.ok()) call.release();  // OnDone() owns it now
  return started;
}

}  // namespace

absl::Status StartCall(Channel* channel, const Method& method, CallContext& context,
                       const google::protobuf::MessageLite& request,
                       google::protobuf::MessageLite* reply, CallCallback&& done) {
  if (context.stop_token().stop_possible() || channel->intercepted()) [[unlikely]]
    return StartRecorded(channel, method, context, request, reply, std::move(done));
  return channel->StartCallback(method, context, request, reply, &done);
}

}  // namespace sluice
