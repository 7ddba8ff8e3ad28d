// SPDX-License-Identifier: Apache-2.0
#include "tests/nodes/outgoing.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/hostile/payload.h"
#include "tests/nodes/client.h"

namespace sluice::nodes {

using call::ReadResult;
using call::Streams;
using hostile::BytesOf;
using hostile::kMs;
using hostile::kUs;

constexpr int64_t kLongNs = 3'000 * kMs;

Outgoing::Outgoing(Client* client, uint64_t serial) : client_(client), serial_(serial) {
  const Habits& habits = client->plan_.habits;
  base::SeededRandom& dice = client->dice_;
  constexpr const call::Method* kUnary[] = {&kEcho, &kEcho, &kRead, &kHold};
  constexpr const call::Method* kStreams[] = {&kDown, &kUp, &kPipe};
  const bool streams = client->One(habits.stream_ppm);
  method_ = streams ? kStreams[dice.Below(3)] : kUnary[dice.Below(4)];
  label_ = {.serial = serial, .refused = client->One(habits.refuse_ppm)};
  metadata_ = Encode(label_);
  fails_ = !method_->client_streams() && client->One(habits.fail_ppm);
  if (fails_) request_.set_layer(kFails);
  request_.set_syndrome(static_cast<uint32_t>(serial));
  count_ = static_cast<uint32_t>(dice.Below(40));
  if (streams) request_.set_vendor_code(count_);
  const bool large = habits.large_bytes != 0 && dice.Below(8) == 0;
  request_.set_cause(
      BytesOf(serial, large ? habits.large_bytes : static_cast<uint32_t>(dice.Below(1'024))));
  if (!streams && client->One(habits.attachments_ppm)) {
    const uint32_t most = habits.large_bytes == 0 ? 400 : habits.large_bytes;
    attachment_ = BytesOf(serial + 1, 1 + static_cast<uint32_t>(dice.Below(most)));
    // With a request that fits beside it.
    if (habits.large_bytes == 0) request_.set_cause(BytesOf(serial, 100));
  }
  short_deadline_ = client->One(habits.short_deadline_ppm);
}

absl::Status Outgoing::Start() {
  call::CallSpec spec;
  spec.method = method_;
  spec.request = &request_;
  spec.reply = &reply_;
  spec.metadata = metadata_;
  const int64_t timeout_ns =
      short_deadline_ ? 5 * kUs + static_cast<int64_t>(client_->dice_.Below(300 * kUs)) : kLongNs;
  spec.timeout_ns = timeout_ns;
  deadline_ns_ = client_->now_ns() + timeout_ns;
  spec.wait_for_ready = client_->dice_.Below(4) != 0;
  spec.reply_beside = &beside_;
  if (!attachment_.empty()) {
    if (client_->dice_.Below(2) == 0) {
      auto buffer = client_->engine_->MakeBuffer(attachment_.size());
      if (buffer.ok()) {
        buffer_ = std::move(*buffer);
        std::copy(attachment_.begin(), attachment_.end(), reinterpret_cast<char*>(buffer_.data()));
        spec.buffer = &buffer_;
        spec.attachment = buffer_.bytes();
      }
    }
    if (spec.buffer == nullptr) {
      spec.attachment = {reinterpret_cast<const std::byte*>(attachment_.data()),
                         attachment_.size()};
    }
  }
  if (client_->One(client_->plan_.habits.cancel_first_ppm)) {
    spec.control = &control_;
    cancelled_ = true;
    uint64_t id = 0;
    control_.Cancel(&id);
  }
  if (method_->streams != Streams::kNobody) {
    stream_.observer = this;
    spec.stream = &stream_;
  }
  spec.argument = this;
  spec.done = [](void* argument, const absl::Status& status) {
    auto* self = static_cast<Outgoing*>(argument);
    self->client_->OnEnd(self, status);
  };
  const absl::Status started = client_->engine_->Start(spec, &id_);
  if (!started.ok() || spec.stream == nullptr) return started;
  OnReadable();
  if (method_->client_streams()) OnWritable();
  return started;
}

void Outgoing::Cancel() {
  cancelled_ = true;
  client_->engine_->Cancel(id_);  // this is gone
}

bool Outgoing::Explains(const absl::Status& status) const {
  const Plan& plan = client_->plan_;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return !label_.refused && !fails_;
    case absl::StatusCode::kCancelled:
      return cancelled_ || client_->closing_;
    case absl::StatusCode::kDeadlineExceeded:
      return short_deadline_ || plan.has_faults;
    case absl::StatusCode::kUnavailable:
      return plan.disruptive || client_->leaving_;
    case absl::StatusCode::kResourceExhausted:
      return plan.habits.large_bytes != 0;
    case absl::StatusCode::kAborted:
      return fails_;
    case absl::StatusCode::kPermissionDenied:
      return label_.refused;  // by the interceptor
    default:
      return false;
  }
}

void Outgoing::OnReadable() {
  Text message;
  while (client_->engine_->Read(&stream_, &message) == ReadResult::kMessage) {
    if (message.syndrome() != read_) {
      client_->ledger_->Break(absl::StrCat("message ", message.syndrome(), " of stream ", serial_,
                                           " came for ", read_));
    }
    if (method_ == &kDown &&
        message.cause() !=
            BytesOf(serial_ + read_, static_cast<uint32_t>(message.cause().size()))) {
      client_->ledger_->Break(absl::StrCat("stream ", serial_, " brought other bytes"));
    }
    ++read_;
  }
}

void Outgoing::OnWritable() {
  for (; written_ != count_; ++written_) {
    Text message;
    message.set_syndrome(written_);
    const uint32_t large = client_->plan_.habits.large_bytes;
    message.set_cause(BytesOf(written_, large != 0 && written_ % 8 == 3 ? large : written_ % 64));
    if (!client_->engine_->Write(&stream_, message).ok()) return;  // later, or its end says why
  }
  if (!std::exchange(end_said_, true)) client_->engine_->EndWrites(&stream_);
}

void Outgoing::Judge() {
  Ledger* const ledger = client_->ledger_;
  if (method_->streams == Streams::kNobody) {
    if (reply_.syndrome() != request_.syndrome() || reply_.cause() != request_.cause()) {
      ledger->Break(absl::StrCat("call ", serial_, " was answered with other bytes"));
    }
    if (beside_.attachment.text() != attachment_) {
      ledger->Break(absl::StrCat("call ", serial_, " has an attachment of ",
                                 beside_.attachment.size(), " bytes for ", attachment_.size()));
    }
    return;
  }
  const uint32_t expected = method_ == &kUp ? 0 : count_;
  if (method_->client_streams() && written_ != count_) {
    ledger->Break(absl::StrCat("stream ", serial_, " ended before it was written"));
  }
  if (read_ != expected || (method_ == &kUp && reply_.vendor_code() != count_)) {
    ledger->Break(absl::StrCat("of stream ", serial_, " came ", read_, " messages, of ", count_,
                               "; its reply says ", reply_.vendor_code()));
  }
}

}  // namespace sluice::nodes
