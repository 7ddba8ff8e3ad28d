// SPDX-License-Identifier: Apache-2.0
//
// Calls of the C API without streams.
#include <memory>
#include <utility>

#include "middleware/api/channel_keep.h"
#include "middleware/api/own_copy.h"
#include "middleware/api/stop_call.h"
#include "middleware/c_api/call_parts.h"
#include "middleware/c_api/channel_core.h"
#include "transport/base/error.h"

using sluice::c_api::BadArgument;
using sluice::c_api::CallArguments;
using sluice::c_api::CallParts;
using sluice::c_api::ChannelCore;
using sluice::c_api::Guard;
using sluice::c_api::GuardValue;
using sluice::c_api::Latch;
using sluice::c_api::NewStatus;

// A call that was started.
struct sluice_call {
  sluice_call(std::shared_ptr<ChannelCore> the_core, sluice::Channel* channel)
      : core(std::move(the_core)), kept(channel) {}
  ~sluice_call() {
    // When it returns, OnDone() is not running and will not run. The call may have ended before.
    if (!ended.IsSet()) kept->CancelAndWait(&control);
  }

  static void OnDone(void* argument, const absl::Status& status) {
    auto* const self = static_cast<sluice_call*>(argument);
    self->status = sluice::OwnCopy(status);
    self->ended.Set();
  }

  const std::shared_ptr<ChannelCore> core;
  const sluice::internal::ChannelKeep kept;
  CallParts parts;
  sluice::call::CallControl control;
  absl::Status status;  // valid after the call has ended
  Latch ended;
  bool finished = false;
  sluice::internal::StopCall stop;  // destroyed first: it may cancel the call
};

extern "C" {

sluice_status* sluice_call_unary(sluice_channel* channel, const char* method, const void* request,
                                 size_t request_bytes, const sluice_call_options* options,
                                 sluice_message** reply) {
  return Guard([&]() -> sluice_status* {
    constexpr char kFunction[] = "sluice_call_unary";
    if (reply != nullptr) *reply = nullptr;
    if (channel == nullptr)
      return NewStatus(BadArgument(kFunction, "channel", "it is NULL", "connect one"));
    const std::shared_ptr<ChannelCore> core = channel->core;
    const auto used = core->Use(kFunction);
    if (!used.ok()) return NewStatus(used.status());
    CallParts parts;
    absl::Status status = parts.Set({kFunction, method, request, request_bytes, options}, *core,
                                    sluice::call::Streams::kNobody, CallParts::Keep::kReferences);
    if (!status.ok()) return NewStatus(status);
    status = (*used)->Call(parts.method(), parts.context(), parts.request(), parts.reply());
    if (status.ok() && reply != nullptr) *reply = parts.TakeReply();
    return parts.StatusOf(status);
  });
}

sluice_status* sluice_call_start(sluice_channel* channel, const char* method, const void* request,
                                 size_t request_bytes, const sluice_call_options* options,
                                 int64_t wait_ns, sluice_call** call) {
  return Guard([&]() -> sluice_status* {
    constexpr char kFunction[] = "sluice_call_start";
    if (call != nullptr) *call = nullptr;
    if (channel == nullptr || call == nullptr)
      return NewStatus(BadArgument(kFunction, "channel or call", "it is NULL", "set it"));
    const auto used = channel->core->Use(kFunction);
    if (!used.ok()) return NewStatus(used.status());
    auto made = std::make_unique<sluice_call>(channel->core, used->get());
    CallParts& parts = made->parts;
    absl::Status status =
        parts.Set({kFunction, method, request, request_bytes, options}, *made->core,
                  sluice::call::Streams::kNobody, CallParts::Keep::kCopies);
    if (!status.ok()) {
      made->ended.Set();
      return NewStatus(status);
    }
    made->stop.Set(parts.context().stop_token(), used->get(), &made->control);
    const auto start = [&] {
      status = (*used)->StartCall(parts.method(), parts.context(), parts.request(), parts.reply(),
                                  &sluice_call::OnDone, made.get(), &made->control,
                                  parts.context().ReplyBeside());
      if (!status.ok()) sluice_call::OnDone(made.get(), status);
    };
    if (wait_ns > 0) {
      made->core->Wait(&made->ended, wait_ns, start);
    } else {
      start();
    }
    *call = made.release();
    return nullptr;
  });
}

int32_t sluice_call_wait(sluice_call* call, int64_t timeout_ns) {
  if (call == nullptr || call->core->forked()) return 1;
  return GuardValue(0, [&]() -> int { return call->core->Wait(&call->ended, timeout_ns); });
}

sluice_status* sluice_call_finish(sluice_call* call, sluice_message** reply) {
  return Guard([&]() -> sluice_status* {
    constexpr char kFunction[] = "sluice_call_finish";
    if (reply != nullptr) *reply = nullptr;
    if (call == nullptr)
      return NewStatus(BadArgument(kFunction, "call", "it is NULL", "start one"));
    if (call->core->forked()) return NewStatus(call->core->Use(kFunction).status());
    call->core->Wait(&call->ended, SLUICE_FOREVER);
    if (std::exchange(call->finished, true))
      return NewStatus(sluice::c_api::FinishedTwice(kFunction));
    if (call->status.ok() && reply != nullptr) *reply = call->parts.TakeReply();
    return call->parts.StatusOf(call->status);
  });
}

void sluice_call_cancel(sluice_call* call) {
  if (call == nullptr || call->core->forked()) return;
  GuardValue(0, [&] {
    uint64_t id = 0;
    if (call->control.Cancel(&id)) call->kept->Cancel(id);
    return 0;
  });
}

void sluice_call_free(sluice_call* call) {
  if (call == nullptr || call->core->forked()) return;
  delete call;
}

}  // extern "C"
