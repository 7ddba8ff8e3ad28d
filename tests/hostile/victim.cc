// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/victim.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/error_detail.pb.h"  // any message will do as request and reply
#include "transport/peer/credits.h"

namespace sluice::hostile {
namespace {

using call::ReadResult;
using call::ServerCall;
using endpoint::PeerId;
using Text = ErrorDetail;

constexpr int64_t kHoldNs = 50 * kUs;

call::ServerEngineOptions EngineOptions(uint64_t seed, call::Gate* gate) {
  call::ServerEngineOptions options;
  options.gate = gate;
  options.max_message_bytes = 2048;
  options.max_waiting_replies_per_peer = 32;
  options.max_waiting_bytes_per_peer = 256 << 10;
  options.max_concurrent_calls = 256;
  options.trace_records = 64;
  options.span_seed = seed;
  return options;
}

// A call that answers after a while, unless the receiver no longer waits for it.
class Held final : public ServerCall::Observer {
 public:
  explicit Held(ServerCall* call) : call_(call) { call->set_observer(this); }
  void OnCancelled() override { End(absl::CancelledError("nobody waits for it")); }
  void End(const absl::Status& status) {
    if (ServerCall* call = std::exchange(call_, nullptr)) call->Finish(status);
  }

 private:
  ServerCall* call_;
};

}  // namespace

// ---- Tap

void Tap::Check(PeerId peer, const char* what) {
  if (up_.contains({peer.index, peer.generation})) return;
  report_->Break(absl::StrCat("the endpoint said ", what, " of a peer that is not up"));
}

void Tap::OnPeerUp(PeerId peer, const endpoint::PeerInfo& info) {
  if (!up_.emplace(std::pair(peer.index, peer.generation), info.address).second ||
      over_.contains({peer.index, peer.generation})) {
    report_->Break("a peer came up twice");
  }
  below_->OnPeerUp(peer, info);
}

void Tap::OnPeerDown(PeerId peer, const absl::Status& why) {
  const auto it = up_.find({peer.index, peer.generation});
  if (it == up_.end()) {
    // Which may be told once.
    if (!dials_ || !over_.emplace(peer.index, peer.generation).second) {
      report_->Break("a peer went down that was not up");
    }
  } else {
    if (why.ok() || why.message().empty()) report_->Break("a peer was ended without a reason");
    CheckCredits(it->first, why);
    ends_.push_back({it->second, why});
    over_.insert(it->first);
    up_.erase(it);
  }
  below_->OnPeerDown(peer, why);
}

bool Tap::OnMessage(PeerId peer, std::span<const std::byte> bytes) {
  Check(peer, "OnMessage");
  const bool taken = below_->OnMessage(peer, bytes);
  if (window_ != 0) {
    std::deque<bool>& latest = latest_[{peer.index, peer.generation}];
    latest.push_back(taken);
    if (latest.size() > peer::ReceiveCredits::MostData(window_)) latest.pop_front();
  }
  return taken;
}

// Judges a peer that was ended for the number of its messages in one look. That look had all messages in `latest_`. The first new one
// beyond the window should have ended the peer.
void Tap::CheckCredits(const Id& id, const absl::Status& why) {
  const auto it = latest_.find(id);
  if (it == latest_.end()) return;
  const auto taken = std::count(it->second.begin(), it->second.end(), true);
  latest_.erase(it);
  const std::string flood = absl::StrCat("more than ", peer::ReceiveCredits::MostData(window_),
                                         " messages were here at one time");
  if (taken > window_ && absl::StrContains(why.message(), flood)) {
    report_->Break(absl::StrCat("the endpoint took ", taken,
                                " new messages in one look from a peer with a window of ",
                                window_));
  }
}

void Tap::OnAcknowledged(PeerId peer, uint32_t total) {
  Check(peer, "OnAcknowledged");
  below_->OnAcknowledged(peer, total);
}

bool Tap::OnResend(PeerId peer) {
  Check(peer, "OnResend");
  return below_->OnResend(peer);
}

void Tap::OnWritable(PeerId peer) {
  Check(peer, "OnWritable");
  below_->OnWritable(peer);
}

void Tap::OnLent(PeerId peer, uint32_t number, const absl::Status& status) {
  Check(peer, "OnLent");
  below_->OnLent(peer, number, status);
}

void Tap::OnFetched(PeerId peer, const absl::StatusOr<endpoint::LargeBuffer>& buffer,
                    uint32_t number) {
  Check(peer, "OnFetched");
  below_->OnFetched(peer, buffer, number);
}

size_t Tap::Up(const std::string& address) const {
  size_t count = 0;
  for (const auto& [id, its] : up_) count += absl::StartsWith(its, address);
  return count;
}

std::vector<PeerId> Tap::up() const {
  std::vector<PeerId> all;
  for (const auto& [id, its] : up_) all.push_back({id.first, id.second});
  return all;
}

// ---- Watchman

// What is freed already shows here, under a sanitizer.
void Watchman::Read(const call::Incoming& incoming) {
  for (const std::string_view text :
       {std::string_view(*incoming.peer), std::string_view(*incoming.tenant), incoming.metadata,
        std::string_view(incoming.method->full_name)}) {
    for (const char c : text) sum_ += static_cast<uint8_t>(c);
  }
  for (const std::byte b : incoming.attachment) sum_ += static_cast<uint8_t>(b);
}

absl::Status Watchman::OnCall(const call::Incoming& incoming) {
  Read(incoming);
  // Honest clients send none.
  if (!incoming.metadata.empty() && ++calls_ % 2 == 0) {
    return absl::PermissionDeniedError("not this one");
  }
  ++inside_;
  return absl::OkStatus();
}

void Watchman::OnEnd(const call::Incoming& incoming, const absl::Status&, int64_t) {
  Read(incoming);
  --inside_;
}

// ---- Victim

class Victim::Pipe final : public ServerCall::Observer {
 public:
  explicit Pipe(ServerCall* call) : call_(call) {
    call->set_observer(this);
    Go();
  }
  void OnReadable() override { Go(); }
  void OnWritable() override { Go(); }
  void OnCancelled() override { End(absl::CancelledError("nobody reads it")); }

 private:
  void Go() {
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
          return End(absl::InvalidArgumentError("not a message of this stream"));
        case ReadResult::kMessage:
          waiting_ = true;
      }
    }
  }
  void End(const absl::Status& status) {
    call_->Finish(status);
    delete this;
  }

  ServerCall* const call_;
  Text message_;
  bool waiting_ = false;  // what was read is not written yet
};

Victim::Victim(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed,
               const endpoint::Options& options, bool interceptors, Report* report)
    : Host(simulation, node, seed),
      has_interceptors_(interceptors),
      engine_(EngineOptions(seed, interceptors ? &watchman_ : nullptr), &clock_, nullptr),
      tap_(engine_.handler(), report) {
  call::MethodHandler echo;
  echo.method = &kEcho;
  echo.service = this;
  echo.run = [](void*, const call::Incoming&, const google::protobuf::MessageLite& request,
                google::protobuf::MessageLite* reply) {
    reply->CheckTypeAndMergeFrom(request);
    return absl::OkStatus();
  };
  echo.request = std::make_unique<Text>();
  echo.reply = std::make_unique<Text>();
  if (!engine_.Register(std::move(echo)).ok()) report->Break("Echo was not registered");
  Serve(kHold, [](Victim* self, ServerCall* call) { self->Hold(call); });
  Serve(kPipe, [](Victim*, ServerCall* call) { new Pipe(call); });
  const As as(simulation, node);
  auto endpoint = endpoint::CreateEndpoint(options, *device_, clock_, random_, commands_, &tap_);
  if (!endpoint.ok()) {
    report->Break(endpoint.status().ToString());
    return;
  }
  endpoint_ = std::move(*endpoint);
  engine_.Attach(endpoint_.get());
  const auto port = endpoint_->Listen("*", kPort);
  if (!port.ok()) report->Break(port.status().ToString());
}

Victim::~Victim() {
  const As as(simulation_, node_);
  engine_.Close();
  endpoint_.reset();
  device_.reset();
}

void Victim::Serve(const call::Method& method, void (*start)(Victim*, ServerCall*)) {
  call::MethodHandler handler;
  handler.method = &method;
  handler.start = [this, start](ServerCall* call) { start(this, call); };
  handler.request = std::make_unique<Text>();
  handler.reply = std::make_unique<Text>();
  const absl::Status registered = engine_.Register(std::move(handler));
  (void)registered;  // its callers would notice
}

void Victim::Hold(ServerCall* call) {
  call->reply()->CheckTypeAndMergeFrom(call->request());
  // It stays until then, whatever becomes of its call.
  After(kHoldNs, [this, held = std::make_shared<Held>(call)] {
    held->End(absl::OkStatus());
    endpoint_->Flush();
    Flushed();
  });
}

void Victim::Leave() {
  const As as(simulation_, node_);
  for (const PeerId peer : tap_.up()) endpoint_->Disconnect(peer);
  OnActivity(softdc::sim::Activity::kEvent);
}

}  // namespace sluice::hostile
