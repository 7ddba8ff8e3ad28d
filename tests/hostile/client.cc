// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/client.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/error_detail.pb.h"
#include "tests/hostile/payload.h"
#include "tests/hostile/victim.h"

namespace sluice::hostile {
namespace {

using call::ReadResult;
using Text = ErrorDetail;

constexpr int64_t kTimeoutNs = 5'000 * kMs;
constexpr uint32_t kMostOutstanding = 64;

call::ClientEngineOptions EngineOptions(const std::string& server, uint32_t large_bytes) {
  call::ClientEngineOptions options;
  options.host = server;
  options.port = kPort;
  options.max_outstanding_calls = 128;
  options.max_message_bytes = 2048;
  options.max_large_bytes = large_bytes == 0 ? 0 : 1 << 20;
  options.connect_timeout_ns = 2'000 * kMs;
  options.backoff_min_ns = kMs;
  options.backoff_max_ns = 4 * kMs;
  options.max_reconnect_attempts = 1'000'000;
  options.trace_records = 64;
  return options;
}

}  // namespace

struct Client::Call {
  Client* client;
  Text request;
  Text reply;
  int64_t began_ns;
  bool timed;
  bool over = false;
};

Client::Client(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed,
               const endpoint::Options& options, const std::string& server, uint32_t large_bytes,
               int64_t period_ns, Report* report)
    : Host(simulation, node, seed),
      report_(report),
      large_bytes_(large_bytes),
      period_ns_(period_ns),
      engine_(EngineOptions(server, large_bytes), &clock_, &random_) {
  const As as(simulation, node);
  auto endpoint =
      endpoint::CreateEndpoint(options, *device_, clock_, random_, commands_, engine_.handler());
  if (!endpoint.ok()) {
    report->Break(endpoint.status().ToString());
    return;
  }
  endpoint_ = std::move(*endpoint);
  engine_.Attach(endpoint_.get());
  engine_.Dial();
  OnActivity(softdc::sim::Activity::kEvent);
}

Client::~Client() {
  const As as(simulation_, node_);
  engine_.Close();
  endpoint_.reset();
  device_.reset();
}

bool Client::up() const { return engine_.state() == call::ConnectionState::kUp; }

void Client::Start() {
  calling_ = true;
  After(1 + static_cast<int64_t>(random_.Below(period_ns_)), [this] {
    OpenStream();
    Tick();
  });
}

void Client::Finish() {
  const As as(simulation_, node_);
  calling_ = false;
  WriteNext();
  engine_.Flush();
  Flushed();
}

void Client::Leave() {
  const As as(simulation_, node_);
  engine_.SetServers({});
  OnActivity(softdc::sim::Activity::kEvent);
}

void Client::Tick() {
  if (!calling_) return;
  After(period_ns_, [this] { Tick(); });
  if (outstanding_ < kMostOutstanding) {
    const auto bytes = static_cast<uint32_t>(random_.Below(1'024));
    const bool large = large_bytes_ != 0 && calls_ % 16 == 15;
    if (large) {
      Begin(kEcho, large_bytes_, /*timed=*/false);
    } else if (calls_ % 8 == 7) {
      Begin(kHold, bytes, /*timed=*/false);
    } else {
      Begin(kEcho, bytes, /*timed=*/true);
    }
  }
  ++due_;
  WriteNext();
  engine_.Flush();
  Flushed();
}

void Client::Begin(const call::Method& method, uint32_t bytes, bool timed) {
  auto* call =
      new Call{.client = this, .request = {}, .reply = {}, .began_ns = now_ns(), .timed = timed};
  call->request.set_syndrome(static_cast<uint32_t>(calls_));
  call->request.set_cause(BytesOf(node_ * 1'000'003 + calls_, bytes));
  ++calls_;
  call::CallSpec spec;
  spec.method = &method;
  spec.request = &call->request;
  spec.reply = &call->reply;
  spec.timeout_ns = kTimeoutNs;
  spec.wait_for_ready = true;
  spec.argument = call;
  spec.done = [](void* argument, const absl::Status& status) {
    auto* its = static_cast<Call*>(argument);
    its->client->OnEnd(its, status);
  };
  const absl::Status started = engine_.Start(spec);
  if (!started.ok()) {
    report_->Break(absl::StrCat("an honest call was not started: ", started.ToString()));
    delete call;
    return;
  }
  ++outstanding_;
}

void Client::OnEnd(Call* call, const absl::Status& status) {
  ++ended_;
  --outstanding_;
  if (!status.ok()) {
    report_->Break(
        absl::StrCat("an honest call from host ", node_, " failed: ", status.ToString()));
  } else if (call->reply.syndrome() != call->request.syndrome() ||
             call->reply.cause() != call->request.cause()) {
    report_->Break("an honest call was answered with other bytes");
  }
  if (call->timed && status.ok()) took_.push_back({call->began_ns, now_ns() - call->began_ns});
  delete call;
}

// ---- The stream

void Client::OpenStream() {
  stream_.observer = this;
  call::CallSpec spec;
  spec.method = &kPipe;
  spec.reply = &stream_reply_;
  spec.timeout_ns = call::kNoDeadlineNs;
  spec.wait_for_ready = true;
  spec.stream = &stream_;
  spec.argument = this;
  spec.done = [](void* argument, const absl::Status& status) {
    static_cast<Client*>(argument)->OnStreamEnd(status);
  };
  const absl::Status started = engine_.Start(spec);
  if (!started.ok()) return report_->Break(absl::StrCat("no stream: ", started.ToString()));
  stream_open_ = true;
  OnReadable();
}

void Client::WriteNext() {
  if (!stream_open_ || end_said_) return;
  for (; written_ != due_; ++written_) {
    Text message;
    message.set_syndrome(written_);
    const absl::Status status = engine_.Write(&stream_, message);
    if (absl::IsResourceExhausted(status)) return;
    if (!status.ok()) return;  // its end says why
  }
  if (calling_) return;
  end_said_ = true;
  engine_.EndWrites(&stream_);
}

void Client::OnReadable() {
  Text message;
  while (engine_.Read(&stream_, &message) == ReadResult::kMessage) {
    if (message.syndrome() != expected_) {
      report_->Break(
          absl::StrCat("number ", message.syndrome(), " of an honest stream came for ", expected_));
    }
    expected_ = message.syndrome() + 1;
  }
}

void Client::OnStreamEnd(const absl::Status& status) {
  OnReadable();
  stream_open_ = false;
  if (!status.ok()) {
    report_->Break(absl::StrCat("the stream of host ", node_, " failed: ", status.ToString()));
  } else if (expected_ != written_) {
    report_->Break(
        absl::StrCat("of an honest stream ", written_ - expected_, " messages are missing"));
  }
}

}  // namespace sluice::hostile
