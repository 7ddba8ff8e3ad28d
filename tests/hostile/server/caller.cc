// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/server/caller.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/error_detail.pb.h"  // any message will do as request and reply
#include "tests/hostile/victim.h"

namespace sluice::hostile::server {
namespace {

using Text = ErrorDetail;

constexpr int64_t kPeriodNs = 100 * kUs;
constexpr int64_t kHonestTimeoutNs = 5'000 * kMs;
constexpr int64_t kOtherTimeoutNs = 2 * kMs;
// A host looks at its timers once in a millisecond while nothing happens.
constexpr int64_t kLateNs = 3 * kMs;
constexpr uint32_t kMostOutstanding = 64;  // of a channel
constexpr uint32_t kMostBytes = 1'024;

call::ClientEngineOptions EngineOptions(uint32_t large_bytes) {
  call::ClientEngineOptions options;
  options.balancing = call::Balancing::kRoundRobin;
  options.max_outstanding_calls = 128;
  options.max_message_bytes = 2048;
  options.max_large_bytes = large_bytes == 0 ? 0 : 1 << 20;
  options.connect_timeout_ns = 50 * kMs;
  options.backoff_min_ns = kMs;
  options.backoff_max_ns = 4 * kMs;
  options.max_reconnect_attempts = 1'000'000;
  options.trace_records = 64;
  return options;
}

}  // namespace

struct Caller::Channel {
  Channel(const call::ClientEngineOptions& options, base::Clock* clock, base::Random* random)
      : engine(options, clock, random) {}

  bool honest = false;
  call::ClientEngine engine;
  std::unique_ptr<endpoint::Endpoint> endpoint;
  uint32_t outstanding = 0;
};

// A stream writes a few messages, reads whatever comes, and never waits for its end.
struct Caller::Stream final : call::ClientStream::Observer {
  void OnReadable() override {
    Text message;
    while (engine->Read(&stream, &message) == call::ReadResult::kMessage) ++read;
  }
  void OnWritable() override {
    Text message;
    message.set_cause(std::string(100, 'w'));
    for (; written < 20; ++written) {
      if (!engine->Write(&stream, message).ok()) return;
    }
    if (!std::exchange(ended, true)) engine->EndWrites(&stream);
  }

  call::ClientEngine* engine = nullptr;
  call::ClientStream stream;
  uint32_t written = 0;
  uint32_t read = 0;
  bool ended = false;
};

struct Caller::Call {
  Caller* caller;
  Channel* channel;
  Text request;
  Text reply;
  int64_t began_ns;
  int64_t deadline_ns;
  bool timed;
  std::unique_ptr<Stream> stream;
};

Caller::Caller(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed,
               const endpoint::Options& options, const std::string& honest,
               const std::string& hostile, uint32_t large_bytes, Report* report)
    : Host(simulation, node, seed), report_(report), large_bytes_(large_bytes) {
  const As as(simulation, node);
  Open({honest}, /*honest=*/true, options);
  Open({hostile}, /*honest=*/false, options);
  Open({hostile, honest}, /*honest=*/false, options);
  OnActivity(softdc::sim::Activity::kEvent);
}

Caller::~Caller() {
  const As as(simulation_, node_);
  for (auto& channel : channels_) channel->engine.Close();
  for (auto& channel : channels_) channel->endpoint.reset();
  device_.reset();
}

void Caller::Open(const std::vector<std::string>& servers, bool honest,
                  const endpoint::Options& options) {
  channels_.push_back(std::make_unique<Channel>(EngineOptions(large_bytes_), &clock_, &random_));
  Channel& channel = *channels_.back();
  channel.honest = honest;
  auto endpoint = endpoint::CreateEndpoint(options, *device_, clock_, random_, commands_,
                                           channel.engine.handler());
  if (!endpoint.ok()) {
    report_->Break(endpoint.status().ToString());
    return;
  }
  channel.endpoint = std::move(*endpoint);
  channel.engine.Attach(channel.endpoint.get());
  std::vector<call::ServerAddress> addresses;
  for (const std::string& host : servers) addresses.push_back({host, kPort});
  channel.engine.SetServers(addresses);
  channel.engine.Dial();
}

int Caller::Poll() {
  int count = 0;
  for (auto& channel : channels_) count += channel->engine.Poll();
  return count;
}

bool Caller::PrepareToSleep() {
  bool nothing = true;
  for (auto& channel : channels_) nothing = channel->engine.PrepareToSleep() && nothing;
  return nothing;
}

int64_t Caller::SleepLimitNs() {
  int64_t least = -1;
  for (auto& channel : channels_) {
    const int64_t limit = channel->engine.SleepLimitNs();
    if (limit >= 0 && (least < 0 || limit < least)) least = limit;
  }
  return least;
}

bool Caller::up() const { return channels_.front()->engine.state() == call::ConnectionState::kUp; }

uint64_t Caller::large_steps() const {
  uint64_t steps = 0;
  for (const auto& channel : channels_) steps += channel->engine.large_steps();
  return steps;
}

void Caller::Start() {
  calling_ = true;
  After(1 + static_cast<int64_t>(random_.Below(kPeriodNs)), [this] { Tick(); });
}

void Caller::Leave() {
  const As as(simulation_, node_);
  for (auto& channel : channels_) channel->engine.SetServers({});
  OnActivity(softdc::sim::Activity::kEvent);
}

void Caller::Tick() {
  if (!calling_) return;
  After(kPeriodNs, [this] { Tick(); });
  for (auto& channel : channels_) {
    ++calls_;
    if (channel->outstanding < kMostOutstanding) Begin(*channel);
    channel->engine.Flush();
  }
  Flushed();
}

void Caller::Begin(Channel& channel) {
  const bool large = large_bytes_ != 0 && calls_ % 16 == 15;
  const bool streams = !channel.honest && calls_ % 8 == 0;
  const int64_t timeout_ns = channel.honest ? kHonestTimeoutNs : kOtherTimeoutNs;
  auto* call = new Call{.caller = this,
                        .channel = &channel,
                        .request = {},
                        .reply = {},
                        .began_ns = now_ns(),
                        .deadline_ns = now_ns() + timeout_ns,
                        .timed = channel.honest && !large,
                        .stream = nullptr};
  call->request.set_syndrome(static_cast<uint32_t>(calls_));
  const auto bytes = large ? large_bytes_ : static_cast<uint32_t>(random_.Below(kMostBytes));
  call->request.set_cause(std::string(bytes, static_cast<char>('a' + calls_ % 26)));
  call::CallSpec spec;
  spec.method = streams ? &kPipe : &kEcho;
  spec.request = streams ? nullptr : &call->request;
  spec.reply = &call->reply;
  spec.timeout_ns = timeout_ns;
  spec.wait_for_ready = true;
  spec.argument = call;
  spec.done = [](void* argument, const absl::Status& status) {
    auto* its = static_cast<Call*>(argument);
    its->caller->OnEnd(its, status);
  };
  if (streams) {
    call->stream = std::make_unique<Stream>();
    call->stream->engine = &channel.engine;
    call->stream->stream.observer = call->stream.get();
    spec.stream = &call->stream->stream;
  }
  const absl::Status started = channel.engine.Start(spec);
  if (!started.ok()) {
    if (channel.honest) report_->Break(absl::StrCat("not started: ", started.ToString()));
    delete call;
    return;
  }
  ++outstanding_;
  ++channel.outstanding;
  if (!streams) return;
  call->stream->OnReadable();
  call->stream->OnWritable();
}

void Caller::OnEnd(Call* call, const absl::Status& status) {
  --outstanding_;
  --call->channel->outstanding;
  if (now_ns() > call->deadline_ns + kLateNs) {
    report_->Break(absl::StrCat("a call ended ", now_ns() - call->deadline_ns,
                                " ns after its deadline: ", status.ToString()));
  }
  if (!call->channel->honest) {
    ++other_calls_;
    other_ok_ += status.ok();
  } else {
    ++honest_calls_;
    if (!status.ok()) {
      report_->Break(absl::StrCat("a call of host ", node_,
                                  " to the honest server failed: ", status.ToString()));
    } else if (call->reply.syndrome() != call->request.syndrome() ||
               call->reply.cause() != call->request.cause()) {
      report_->Break("an honest call was answered with other bytes");
    }
    if (call->timed) took_.push_back({call->began_ns, now_ns() - call->began_ns});
  }
  delete call;
}

}  // namespace sluice::hostile::server
