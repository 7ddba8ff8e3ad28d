// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/stream.h"

#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/api/channel_visit.h"
#include "middleware/api/lease.h"
#include "middleware/api/own_copy.h"
#include "middleware/call/stream_end.h"
#include "transport/base/error.h"

namespace sluice::internal {
namespace {

absl::Status InsideACallback() {
  return base::Error(
      absl::StatusCode::kFailedPrecondition, "stream not awaited",
      {.layer = "api",
       .operation = "stream",
       .cause = "a callback cannot wait for its channel, or for another one of its runtime",
       .remedy =
           "use StartRead(), StartWrite(), StartFinish() or co_await there, or another thread"});
}

}  // namespace

// Wakes the thread that waits.
struct StreamCore::Blocking final : StreamWaiter {
  explicit Blocking(Lease::Event* the_event) : event(the_event) {}
  void Done(bool result) override {
    ok = result;
    event->Set();
  }
  Lease::Event* const event;
  bool ok = false;
};

StreamCore::StreamCore(Channel* channel, const Method& method, CallContext& context,
                       const google::protobuf::MessageLite* request,
                       google::protobuf::MessageLite* reply)
    : channel_(channel),
      method_(method.full_name),
      request_(request == nullptr ? nullptr : request->New()) {
  if (request_ != nullptr) request_->CheckTypeAndMergeFrom(*request);
  stream_.observer = this;
  stop_.Set(context.stop_token(), channel, &control_);
  call::CallSpec spec = channel->Spec(method, context, request_.get(), reply);
  spec.reply_beside = context.ReplyBeside();
  spec.stream = &stream_;
  spec.done = &StreamCore::OnDone;
  spec.argument = this;
  spec.control = &control_;
  const absl::Status started = context.stop_token().stop_requested()
                                   ? absl::CancelledError("a stop was requested before it began")
                                   : channel_->Start(spec);
  if (started.ok()) return;
  over_ = true;
  status_ = started;
  stream_.end.SetEnd();
}

StreamCore::~StreamCore() {
  const Channel::Visit visit(channel_.get());
  bool over = false;
  channel_->lease_->Run(&channel_->seat_, [this, &over] { over = over_; });
  if (!over) channel_->CancelAndWait(&control_);
  if (gone_ == nullptr) {
    assert(reader_ == nullptr && writer_ == nullptr && opener_ == nullptr && finisher_ == nullptr);
    return;
  }
  *gone_ = true;  // this thread is in OnDone(); no other thread is
  // Each waiter may destroy other waiters, which then remove themselves with Forget().
  for (StreamWaiter** place : {&writer_, &opener_, &reader_, &finisher_}) {
    if (*place != nullptr) std::exchange(*place, nullptr)->Done(false);
  }
}

// ---- With the lease

void StreamCore::OnDone(void* argument, const absl::Status& status) {
  auto* self = static_cast<StreamCore*>(argument);
  self->over_ = true;
  self->status_ = self->fault_.ok() ? OwnCopy(status) : self->fault_;
  // Each waiter may destroy the other waiters, and *self.
  bool gone = false;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdangling-pointer"  // reset below, unless *self is destroyed
  self->gone_ = &gone;
#pragma GCC diagnostic pop
  if (self->writer_ != nullptr) std::exchange(self->writer_, nullptr)->Done(false);
  if (!gone && self->opener_ != nullptr) {
    const bool opened = self->TryInitialMetadata(self->metadata_into_).value_or(false);
    std::exchange(self->opener_, nullptr)->Done(opened);
  }
  if (!gone && self->reader_ != nullptr) {
    const bool read = self->TryRead(self->read_into_).value_or(false);
    std::exchange(self->reader_, nullptr)->Done(read);
  }
  if (!gone && self->finisher_ != nullptr) std::exchange(self->finisher_, nullptr)->Done(true);
  if (!gone) self->gone_ = nullptr;
}

std::optional<bool> StreamCore::TryRead(google::protobuf::MessageLite* message) {
  switch (channel_->engine_.Read(&stream_, message)) {
    case call::ReadResult::kMessage:
      return true;
    case call::ReadResult::kNothing:
      return std::nullopt;
    case call::ReadResult::kEnd:
      // The end of the call follows after the last message. Finish() returns its status.
      return false;
    case call::ReadResult::kMalformed:
      break;
  }
  Fault(base::Error(absl::StatusCode::kInternal,
                    absl::StrCat("message of ", method_, " can't be parsed"),
                    {.layer = "api",
                     .peer = channel_->server(),
                     .operation = method_,
                     .cause = absl::StrCat("its bytes are not a ", message->GetTypeName()),
                     .remedy = "build client and server from the same .proto"}));
  return false;
}

// Ends the call with `why`. Otherwise the server would wait for a message that does not arrive, or send messages that this side
// cannot read.
void StreamCore::Fault(absl::Status why) {
  if (!fault_.ok()) return;
  fault_ = std::move(why);
  if (over_) {
    status_ = fault_;
  } else {
    channel_->engine_.EndSoon(control_.call_id.load(), OwnCopy(fault_));
  }
}

std::optional<bool> StreamCore::TryWrite(const google::protobuf::MessageLite& message) {
  if (over_) return false;
  const absl::Status status = channel_->engine_.Write(&stream_, message);
  if (absl::IsResourceExhausted(status)) return std::nullopt;
  if (!status.ok()) Fault(call::WriteFault(status));
  return status.ok();
}

std::optional<bool> StreamCore::TryInitialMetadata(Metadata* metadata) const {
  if (!stream_.opened) return over_ ? std::optional(false) : std::nullopt;
  if (stream_.has_initial_metadata) *metadata = Metadata::FromWire(stream_.initial_metadata);
  return stream_.has_initial_metadata;
}

void StreamCore::OnOpened() {
  if (opener_ == nullptr) return;
  const std::optional<bool> result = TryInitialMetadata(metadata_into_);
  if (result.has_value()) std::exchange(opener_, nullptr)->Done(*result);
}

void StreamCore::OnReadable() {
  if (reader_ == nullptr) return;
  const std::optional<bool> result = TryRead(read_into_);
  if (result.has_value()) std::exchange(reader_, nullptr)->Done(*result);
}

void StreamCore::OnWritable() {
  if (writer_ == nullptr) return;
  const std::optional<bool> result = TryWrite(*to_write_);
  if (result.has_value()) std::exchange(writer_, nullptr)->Done(*result);
}

std::optional<bool> StreamCore::BeginInitialMetadata(Metadata* metadata, StreamWaiter* waiter) {
  const std::optional<bool> result = TryInitialMetadata(metadata);
  if (result.has_value()) return result;
  stream_.wants_opened = true;
  metadata_into_ = metadata;
  opener_ = waiter;
  return result;
}

std::optional<bool> StreamCore::BeginRead(google::protobuf::MessageLite* message,
                                          StreamWaiter* waiter) {
  const std::optional<bool> result = TryRead(message);
  if (result.has_value()) return result;
  read_into_ = message;
  reader_ = waiter;
  return result;
}

std::optional<bool> StreamCore::BeginWrite(const google::protobuf::MessageLite& message,
                                           StreamWaiter* waiter) {
  const std::optional<bool> result = TryWrite(message);
  if (result.has_value()) return result;
  to_write_ = &message;
  writer_ = waiter;
  return result;
}

std::optional<bool> StreamCore::BeginEnd(StreamWaiter* waiter) {
  if (over_) return true;
  finisher_ = waiter;
  return std::nullopt;
}

// ---- Any thread
//
// Before a function with a waiter returns, another thread may notify the waiter, whose owner may destroy this object and drop the last
// reference to the channel. So the function keeps the channel's memory, and reads no member after Run(). In a callback no other thread
// drives. In a forked child the lease runs nothing, and the stream has ended.

std::optional<bool> StreamCore::Read(google::protobuf::MessageLite* message, StreamWaiter* waiter) {
  if (channel_->lease_->InForkedChild()) return false;
  const Channel::Visit visit(channel_.get());
  const ChannelKeep kept(channel_->lease_->HeldByMe() ? nullptr : channel_.get());
  std::optional<bool> result;
  channel_->lease_->Run(&channel_->seat_, [&] { result = BeginRead(message, waiter); });
  return result;
}

std::optional<bool> StreamCore::Write(const google::protobuf::MessageLite& message,
                                      StreamWaiter* waiter) {
  if (channel_->lease_->InForkedChild()) return false;
  const Channel::Visit visit(channel_.get());
  const ChannelKeep kept(channel_->lease_->HeldByMe() ? nullptr : channel_.get());
  std::optional<bool> result;
  channel_->lease_->Run(&channel_->seat_, [&] {
    result = BeginWrite(message, waiter);
    channel_->engine_.Flush();
  });
  return result;
}

WriteAttempt StreamCore::WriteNow(const google::protobuf::MessageLite& message) {
  if (channel_->lease_->InForkedChild()) return WriteAttempt::kEnded;
  const Channel::Visit visit(channel_.get());
  const ChannelKeep kept(channel_->lease_->HeldByMe() ? nullptr : channel_.get());
  std::optional<bool> result;
  channel_->lease_->Run(&channel_->seat_, [&] {
    result = TryWrite(message);
    channel_->engine_.Flush();
  });
  if (!result.has_value()) return WriteAttempt::kWouldWait;
  return *result ? WriteAttempt::kWritten : WriteAttempt::kEnded;
}

std::optional<bool> StreamCore::ReadInitialMetadata(Metadata* metadata, StreamWaiter* waiter) {
  if (channel_->lease_->InForkedChild()) return false;
  const Channel::Visit visit(channel_.get());
  const ChannelKeep kept(channel_->lease_->HeldByMe() ? nullptr : channel_.get());
  std::optional<bool> result;
  channel_->lease_->Run(&channel_->seat_, [&] { result = BeginInitialMetadata(metadata, waiter); });
  return result;
}

std::optional<bool> StreamCore::AwaitEnd(StreamWaiter* waiter) {
  if (channel_->lease_->InForkedChild()) {
    if (!over_) status_ = Lease::RefuseInChild(&channel_->seat_, method_);
    return true;
  }
  const Channel::Visit visit(channel_.get());
  const ChannelKeep kept(channel_->lease_->HeldByMe() ? nullptr : channel_.get());
  std::optional<bool> result;
  channel_->lease_->Run(&channel_->seat_, [&] { result = BeginEnd(waiter); });
  return result;
}

void StreamCore::Forget(StreamWaiter* waiter) {
  const Channel::Visit visit(channel_.get());
  const ChannelKeep kept(channel_->lease_->HeldByMe() ? nullptr : channel_.get());
  channel_->lease_->Run(&channel_->seat_, [&] {
    for (StreamWaiter** place : {&reader_, &writer_, &opener_, &finisher_}) {
      if (*place == waiter) *place = nullptr;
    }
  });
}

void StreamCore::EndWrites() {
  const Channel::Visit visit(channel_.get());
  const ChannelKeep kept(channel_->lease_->HeldByMe() ? nullptr : channel_.get());
  channel_->lease_->Run(&channel_->seat_, [this] {
    channel_->engine_.EndWrites(&stream_);
    channel_->engine_.Flush();
  });
}

void StreamCore::Cancel() {
  const ChannelKeep kept(channel_->lease_->HeldByMe() ? nullptr : channel_.get());
  uint64_t id = 0;
  if (control_.Cancel(&id)) channel_->Cancel(id);
}

void StreamCore::Thrown(Channel* channel, uint64_t call_id) {
  const Channel::Visit visit(channel);
  const absl::Status why =
      channel->engine_.exceptions()->Take("callback of a stream", "stream", channel->server());
  if (call_id != 0)
    channel->lease_->Run(&channel->seat_, [&] { channel->engine_.EndSoon(call_id, OwnCopy(why)); });
}

// Runs `begin`, and drives the channel until the operation is done. The operation is done at the latest when the call has ended.
template <typename Begin>
bool StreamCore::Wait(Begin begin) {
  if (channel_->lease_->InForkedChild()) return false;
  const Channel::Visit visit(channel_.get());
  bool ok = false;
  std::optional<Blocking> blocking;
  channel_->lease_->Await(&channel_->seat_, [&](Lease::Event* event) {
    blocking.emplace(event);
    const std::optional<bool> result = begin(&*blocking);
    ok = result.value_or(false);
    return result.has_value();
  });
  return ok || blocking->ok;
}

bool StreamCore::WaitInitialMetadata(Metadata* metadata) {
  if (channel_->lease_->HeldByMe()) return false;
  return Wait([&](StreamWaiter* waiter) { return BeginInitialMetadata(metadata, waiter); });
}

bool StreamCore::WaitRead(google::protobuf::MessageLite* message) {
  if (channel_->lease_->HeldByMe()) return false;
  return Wait([&](StreamWaiter* waiter) { return BeginRead(message, waiter); });
}

bool StreamCore::WaitWrite(const google::protobuf::MessageLite& message) {
  if (channel_->lease_->HeldByMe()) return false;
  return Wait([&](StreamWaiter* waiter) { return BeginWrite(message, waiter); });
}

absl::Status StreamCore::WaitEnd() {
  if (channel_->lease_->InForkedChild()) {
    return over_ ? OwnCopy(status_) : Lease::RefuseInChild(&channel_->seat_, method_);
  }
  const Channel::Visit visit(channel_.get());
  if (channel_->lease_->HeldByMe()) return InsideACallback();
  Wait([&](StreamWaiter* waiter) { return BeginEnd(waiter); });
  absl::Status status;
  channel_->lease_->Run(&channel_->seat_, [&] { status = OwnCopy(status_); });
  return status;
}

}  // namespace sluice::internal
