// SPDX-License-Identifier: Apache-2.0
#include "tests/nodes/task.h"

#include <string>

#include "tests/hostile/payload.h"
#include "tests/nodes/server.h"

namespace sluice::nodes {

using call::ReadResult;
using hostile::kUs;

Task::Task(Server* server, call::ServerCall* call, uint64_t number)
    : server_(server),
      call_(call),
      number_(number),
      serial_(LabelOf(call->incoming().metadata).serial) {
  call->set_observer(this);
}

void Task::Start() {
  server_->ledger().Ran(serial_, call_->handler().method->idempotent);
  if (call_->handler().method == &kHold) {
    return server_->EndLater(number_, 10 * kUs + server_->Draw(90 * kUs));
  }
  Go();
}

void Task::OnCancelled() {
  over_ = true;
  if (server_->Draw(2) == 0) return End(call_->why_cancelled());
  server_->EndLater(number_, server_->Draw(200 * kUs));
}

void Task::End(const absl::Status& its) {
  const absl::Status status = over_ && its.ok() ? call_->why_cancelled() : its;
  const Text& request = call_->request().GetTypeName() == Text().GetTypeName()
                            ? static_cast<const Text&>(call_->request())
                            : Text::default_instance();
  if (status.ok() && request.layer() == kFails) {
    call_->Finish(absl::AbortedError(request.layer()));
  } else {
    if (call_->handler().method == &kHold) {
      call_->reply()->CheckTypeAndMergeFrom(call_->request());
      server_->Attach(call_->incoming());
    }
    if (call_->handler().method == &kUp) {
      auto* reply = static_cast<Text*>(call_->reply());
      reply->set_vendor_code(read_);
    }
    call_->Finish(status);
  }
  server_->Forget(number_);  // this is gone
}

void Task::Go() {
  if (over_) return;
  const call::Method* method = call_->handler().method;
  if (method == &kDown) return Send();
  if (method == &kUp) return Take();
  if (method == &kPipe) return Echo();
}

void Task::Send() {
  const auto& request = static_cast<const Text&>(call_->request());
  for (; written_ != request.vendor_code(); ++written_) {
    Text message;
    message.set_syndrome(written_);
    message.set_cause(hostile::BytesOf(serial_ + written_, server_->SizeOf(written_)));
    const absl::Status status = call_->Write(message);
    if (absl::IsResourceExhausted(status)) return;
    if (!status.ok()) return End(status);
  }
  End(absl::OkStatus());
}

void Task::Take() {
  for (;;) {
    switch (call_->Read(&message_)) {
      case ReadResult::kNothing:
        return;
      case ReadResult::kEnd:
        return End(absl::OkStatus());
      case ReadResult::kMalformed:
        server_->ledger().Break("a server read a malformed message of a stream");
        return End(absl::InvalidArgumentError("malformed"));
      case ReadResult::kMessage:
        if (message_.syndrome() != read_++) {
          server_->ledger().Break(absl::StrCat("message ", message_.syndrome(), " of stream ",
                                               serial_, " came for ", read_ - 1));
        }
    }
  }
}

void Task::Echo() {
  for (;;) {
    if (waiting_) {
      const absl::Status status = call_->Write(message_);
      if (absl::IsResourceExhausted(status)) return;
      if (!status.ok()) return End(status);
      waiting_ = false;
    }
    switch (call_->Read(&message_)) {
      case ReadResult::kNothing:
        return;
      case ReadResult::kEnd:
        return End(absl::OkStatus());
      case ReadResult::kMalformed:
        server_->ledger().Break("a server read a malformed message of a stream");
        return End(absl::InvalidArgumentError("malformed"));
      case ReadResult::kMessage:
        waiting_ = true;
    }
  }
}

}  // namespace sluice::nodes
