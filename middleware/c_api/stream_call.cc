// SPDX-License-Identifier: Apache-2.0
//
// Streams of the C API.
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/api/stream.h"
#include "middleware/c_api/call_parts.h"
#include "middleware/c_api/channel_core.h"

using sluice::RawMessage;
using sluice::c_api::BadArgument;
using sluice::c_api::CallParts;
using sluice::c_api::ChannelCore;
using sluice::c_api::Guard;
using sluice::c_api::GuardValue;
using sluice::c_api::Latch;
using sluice::c_api::NewStatus;
using sluice::internal::StreamCore;
using sluice::internal::StreamWaiter;

namespace {

// A thread that waits for a read, a write or the end of a stream.
class Waiter final : public StreamWaiter {
 public:
  void Done(bool ok) override {
    ok_ = ok;
    latch.Set();
  }
  bool ok() const { return ok_; }

  Latch latch;

 private:
  bool ok_ = false;
};

// Runs `begin(waiter)`, and waits for its result. nullopt: `timeout_ns` has passed without a result.
template <typename Begin>
std::optional<bool> Await(ChannelCore* core, StreamCore* stream, int64_t timeout_ns, Begin begin) {
  Waiter waiter;
  if (const std::optional<bool> result = begin(&waiter); result.has_value()) return result;
  if (!core->Wait(&waiter.latch, timeout_ns)) {
    stream->Forget(&waiter);
    if (!waiter.latch.IsSet()) return std::nullopt;  // the operation may have ended just now
  }
  return waiter.ok();
}

int32_t ResultOf(std::optional<bool> done) {
  if (!done.has_value()) return SLUICE_STREAM_TIMEOUT;
  return *done ? SLUICE_STREAM_DONE : SLUICE_STREAM_END;
}

}  // namespace

struct sluice_stream {
  explicit sluice_stream(std::shared_ptr<ChannelCore> the_core) : core(std::move(the_core)) {}

  // Ends the call after a write that was not accepted: the server would wait for the message. `why`: OK, if the stream knows the reason.
  void Refuse(absl::Status why) {
    if (writes_ended) return;
    {
      const std::lock_guard lock(mutex);
      if (refused.ok()) refused = std::move(why);
    }
    stream->Cancel();  // no effect if the call has ended
  }
  // Status of the call, which has ended.
  absl::Status Outcome() {
    const std::lock_guard lock(mutex);
    return absl::IsCancelled(stream->status()) && !refused.ok() ? refused : stream->status();
  }

  const std::shared_ptr<ChannelCore> core;
  CallParts parts;
  bool finished = false;
  std::atomic<bool> writes_ended = false;
  std::mutex mutex;
  absl::Status refused;              // mutex; why a write was refused
  std::optional<StreamCore> stream;  // set once; destroyed first: it uses the parts
};

extern "C" {

sluice_status* sluice_stream_open(sluice_channel* channel, const char* method, int32_t streams,
                                  const void* request, size_t request_bytes,
                                  const sluice_call_options* options, sluice_stream** stream) {
  return Guard([&]() -> sluice_status* {
    constexpr char kFunction[] = "sluice_stream_open";
    if (stream != nullptr) *stream = nullptr;
    if (channel == nullptr || stream == nullptr)
      return NewStatus(BadArgument(kFunction, "channel or stream", "it is NULL", "set it"));
    if (streams < SLUICE_CLIENT_STREAMS || streams > SLUICE_BOTH_STREAM) {
      return NewStatus(BadArgument(kFunction, "streams", absl::StrCat("it is ", streams),
                                   "write SLUICE_CLIENT_STREAMS, SLUICE_SERVER_STREAMS or both"));
    }
    if ((streams & SLUICE_CLIENT_STREAMS) != 0 && request_bytes != 0) {
      return NewStatus(
          BadArgument(kFunction, "request",
                      absl::StrCat("it has ", request_bytes, " bytes, and the client streams"),
                      "pass NULL and size 0, and send messages with sluice_stream_write()"));
    }
    const auto used = channel->core->Use(kFunction);
    if (!used.ok()) return NewStatus(used.status());
    const auto shape = static_cast<sluice::call::Streams>(
        ((streams & SLUICE_CLIENT_STREAMS) != 0 ? sluice::frame::kFlagClientStreams : 0) |
        ((streams & SLUICE_SERVER_STREAMS) != 0 ? sluice::frame::kFlagServerStreams : 0));
    auto made = std::make_unique<sluice_stream>(channel->core);
    CallParts& parts = made->parts;
    // The stream copies the request, the attachment stays with the call.
    const absl::Status status = parts.Set({kFunction, method, request, request_bytes, options},
                                          *made->core, shape, CallParts::Keep::kCopies);
    if (!status.ok()) return NewStatus(status);
    made->stream.emplace(used->get(), parts.method(), parts.context(),
                         parts.method().client_streams() ? nullptr : &parts.request(),
                         parts.method().server_streams() ? nullptr : parts.reply());
    *stream = made.release();
    return nullptr;
  });
}

int32_t sluice_stream_read(sluice_stream* stream, int64_t timeout_ns, sluice_message** message) {
  if (message != nullptr) *message = nullptr;
  if (stream == nullptr || message == nullptr || stream->core->forked() ||
      !stream->parts.method().server_streams()) {
    return SLUICE_STREAM_END;
  }
  return GuardValue<int32_t>(SLUICE_STREAM_END, [&] {
    auto made = std::make_unique<sluice_message>();
    RawMessage bytes;
    const int32_t result =
        ResultOf(Await(stream->core.get(), &*stream->stream, timeout_ns,
                       [&](StreamWaiter* waiter) { return stream->stream->Read(&bytes, waiter); }));
    if (result != SLUICE_STREAM_DONE) return result;
    made->data = bytes.TakeBytes();
    *message = made.release();
    return result;
  });
}

int32_t sluice_stream_write(sluice_stream* stream, const void* data, size_t bytes,
                            int64_t timeout_ns) {
  if (stream == nullptr || stream->core->forked() || !stream->parts.method().client_streams())
    return SLUICE_STREAM_END;
  absl::Status why;
  const int32_t result = GuardValue<int32_t>(SLUICE_STREAM_END, [&]() -> int32_t {
    why = sluice::c_api::CheckBytes("sluice_stream_write", "data", data, bytes);
    if (!why.ok()) return SLUICE_STREAM_END;
    const auto message =
        RawMessage::Referring(std::string_view(static_cast<const char*>(data), bytes));
    return ResultOf(
        Await(stream->core.get(), &*stream->stream, timeout_ns,
              [&](StreamWaiter* waiter) { return stream->stream->Write(message, waiter); }));
  });
  if (result == SLUICE_STREAM_END) {
    GuardValue(0, [&] {
      stream->Refuse(std::move(why));
      return 0;
    });
  }
  return result;
}

void sluice_stream_end_writes(sluice_stream* stream) {
  if (stream == nullptr || stream->core->forked()) return;
  GuardValue(0, [&] {
    stream->writes_ended = true;
    stream->stream->EndWrites();
    return 0;
  });
}

int32_t sluice_stream_wait(sluice_stream* stream, int64_t timeout_ns) {
  if (stream == nullptr || stream->core->forked()) return 1;
  return GuardValue(0, [&]() -> int {
    return Await(stream->core.get(), &*stream->stream, timeout_ns,
                 [&](StreamWaiter* waiter) { return stream->stream->AwaitEnd(waiter); })
        .has_value();
  });
}

sluice_status* sluice_stream_finish(sluice_stream* stream, sluice_message** reply) {
  return Guard([&]() -> sluice_status* {
    constexpr char kFunction[] = "sluice_stream_finish";
    if (reply != nullptr) *reply = nullptr;
    if (stream == nullptr)
      return NewStatus(BadArgument(kFunction, "stream", "it is NULL", "open one"));
    if (stream->core->forked()) return NewStatus(stream->core->Use(kFunction).status());
    sluice_stream_wait(stream, SLUICE_FOREVER);
    if (std::exchange(stream->finished, true))
      return NewStatus(sluice::c_api::FinishedTwice(kFunction));
    const absl::Status status = stream->Outcome();
    if (status.ok() && reply != nullptr) *reply = stream->parts.TakeReply();
    return stream->parts.StatusOf(status);
  });
}

void sluice_stream_cancel(sluice_stream* stream) {
  if (stream == nullptr || stream->core->forked()) return;
  GuardValue(0, [&] {
    stream->stream->Cancel();
    return 0;
  });
}

void sluice_stream_free(sluice_stream* stream) {
  if (stream == nullptr || stream->core->forked()) return;
  delete stream;
}

}  // extern "C"
