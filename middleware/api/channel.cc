// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/channel.h"

#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "middleware/api/address.h"
#include "middleware/api/channel_engine.h"
#include "middleware/api/channel_keep.h"
#include "middleware/api/channel_visit.h"
#include "middleware/api/lease.h"
#include "middleware/api/own_copy.h"
#include "middleware/api/resolver.h"
#include "middleware/api/runtime.h"
#include "middleware/api/stack.h"
#include "middleware/api/stop_call.h"
#include "transport/base/error.h"

namespace sluice {
namespace {

// A stop was requested before the call began.
absl::Status Stopped(const Method& method, const std::string& server) {
  return base::Error(absl::StatusCode::kCancelled, absl::StrCat(method.full_name, " cancelled"),
                     {.layer = "api",
                      .peer = server,
                      .operation = method.full_name,
                      .cause = "a stop was requested before it began",
                      .retry_safe = true});
}

// Parses addresses of the form "host:port".
absl::StatusOr<std::vector<call::ServerAddress>> ParseAll(const std::vector<std::string>& texts) {
  std::vector<call::ServerAddress> servers;
  for (const std::string& text : texts) {
    auto parsed = ParseAddress(text, /*allow_port_0=*/false);
    if (!parsed.ok()) return parsed.status();
    servers.push_back({parsed->host, parsed->port});
  }
  return servers;
}

// Sets each field by name: if the record were cleared first, GCC would generate a string instruction.
inline call::CallSpec SpecOf(const void* owner, const Method& method, const CallContext& context,
                             const google::protobuf::MessageLite* request,
                             google::protobuf::MessageLite* reply, CallDone done = nullptr,
                             void* argument = nullptr, call::Callback* callback = nullptr,
                             call::CallControl* control = nullptr,
                             call::Beside* reply_beside = nullptr) {
  return {.method = &method,
          .request = request,
          .reply = reply,
          .done = done,
          .argument = argument,
          .callback = callback,
          .timeout_ns = context.timeout_ns(),
          .deadline_ns = context.deadline_ns(),
          .wait_for_ready = context.wait_for_ready(),
          .metadata = context.metadata().wire(),
          .attachment = context.attachment(),
          .buffer = context.buffer(),
          .reply_beside = reply_beside,
          .owner = owner,
          .control = control,
          .stream = nullptr};
}

constexpr absl::string_view kFile = "file:";

ChannelTraits TraitsOf(const ChannelOptions& options, const EndpointLimits& limits) {
  ChannelTraits traits{.engine = {}, .log = options.log, .log_level = options.log_level};
  call::ClientEngineOptions& engine = traits.engine;
  engine.balancing = options.balancing;
  engine.retry.max_attempts = options.retry.max_attempts;
  engine.retry.pause_min_ns = absl::ToInt64Nanoseconds(options.retry.pause_min);
  engine.retry.pause_max_ns = absl::ToInt64Nanoseconds(options.retry.pause_max);
  engine.retry.budget = options.retry.budget;
  engine.retry.budget_per_thousand_ok = static_cast<uint32_t>(options.retry.refill * 1000);
  engine.max_outstanding_calls = options.max_outstanding_calls;
  engine.stream_window = options.stream_window;
  engine.max_message_bytes = limits.max_message_bytes;
  engine.max_large_bytes = limits.max_large_message_bytes;
  engine.connect_timeout_ns = absl::ToInt64Nanoseconds(options.connect_timeout);
  engine.backoff_min_ns = absl::ToInt64Nanoseconds(options.backoff_min);
  engine.backoff_max_ns = absl::ToInt64Nanoseconds(options.backoff_max);
  engine.max_reconnect_attempts = options.max_reconnect_attempts;
  engine.health_period_ns = absl::ToInt64Nanoseconds(options.health.period);
  engine.health_service = options.health.service;
  engine.first_failure_is_told = !options.connect_in_background;
  engine.trace_records = options.trace_records;
  return traits;
}

bool MayShare(const std::string& address, const ChannelOptions& options) {
  return options.share_connections && options.resolver == nullptr &&
         !absl::StartsWith(address, kFile);
}

// Longer than connect_timeout, so that the endpoint's own timeout ends the attempt first.
absl::Duration LongestAttempt(const ChannelOptions& options) {
  return options.connect_timeout + options.connect_timeout / 4;
}

}  // namespace

absl::Status Channel::Validate(const std::string& address, const ChannelOptions& options) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  if (options.resolver != nullptr || absl::StartsWith(address, kFile)) return absl::OkStatus();
  return ParseAll(absl::StrSplit(address, ',')).status();
}

call::CallSpec Channel::Spec(const Method& method, const CallContext& context,
                             const google::protobuf::MessageLite* request,
                             google::protobuf::MessageLite* reply) const {
  return SpecOf(&seat_, method, context, request, reply);
}

absl::StatusOr<std::shared_ptr<Channel>> Channel::ConnectOn(std::unique_ptr<Stack> stack,
                                                            const std::string& address,
                                                            const ChannelOptions& options) {
  if (absl::Status status = Validate(address, options); !status.ok()) return status;
  Stack* const own = stack.get();
  // Only the channel holds a reference to the engine from here on, so that the engine is destroyed before the stack.
  auto made_engine =
      std::make_shared<ChannelEngine>(TraitsOf(options, options.limits), own, /*group=*/nullptr);
  ChannelEngine* const core = made_engine.get();
  std::shared_ptr<Channel> channel(
      new Channel(nullptr, std::move(stack), own, address, options, std::move(made_engine)),
      &Channel::Release);
  auto endpoint = own->CreateEndpoint(options.limits, options.authentication, {}, &core->log,
                                      core->engine.handler());
  if (!endpoint.ok()) return endpoint.status();
  core->endpoint = *std::move(endpoint);
  core->engine.Attach(core->endpoint.get());
  std::unique_ptr<LoopDescriptor> loop;
  if (options.driving == Driving::kCaller) {
    auto made = LoopDescriptor::Create(core->endpoint->fd());
    if (!made.ok()) return made.status();
    loop = *std::move(made);
  }
  channel->own_lease_ =
      std::make_unique<Lease>(call::Driven(&core->engine), core->endpoint.get(),
                              absl::ToInt64Nanoseconds(options.spin), std::move(loop));
  channel->lease_ = channel->own_lease_.get();
  const auto begun = channel->Begin(options, 1);
  if (!begun.ok()) return begun.status();
  if (options.connect_in_background) return channel;
  const call::ClientEngine& state = channel->engine_;
  const bool decided = channel->lease_->Drive(
      [&state] { return state.state() != call::ConnectionState::kConnecting; },
      absl::ToInt64Nanoseconds(LongestAttempt(options)));
  if (absl::Status status = channel->FirstAttempt(decided, *begun); !status.ok()) return status;
  return channel;
}

absl::StatusOr<std::shared_ptr<Channel>> Channel::ConnectIn(std::shared_ptr<Runtime> runtime,
                                                            const std::string& address,
                                                            const ChannelOptions& options) {
  if (absl::Status status = Validate(address, options); !status.ok()) return status;
  if (runtime == nullptr) {
    return base::Error(absl::StatusCode::kInvalidArgument, "no runtime given",
                       {.layer = "api",
                        .peer = address,
                        .operation = "connect",
                        .cause = "the pointer is null: Runtime::Create() may have failed",
                        .remedy = "check the status of Runtime::Create(), or use Connect()",
                        .retry_safe = true});
  }
  if (absl::Status status = runtime->CheckProcess(); !status.ok()) return status;
  if (runtime->lease_->HeldByMe() && !options.connect_in_background) {
    return base::Error(absl::StatusCode::kFailedPrecondition, "connection not awaited",
                       {.layer = "api",
                        .peer = address,
                        .operation = "connect",
                        .cause = "a callback of a runtime can't wait for a connection in it",
                        .remedy = "set connect_in_background, or connect on another thread",
                        .retry_safe = true});
  }
  const Runtime& in = *runtime;
  const ChannelTraits traits = TraitsOf(options, in.options_.limits);
  ChannelEngines::Joined joined;  // its reference moves to the channel, as above
  if (MayShare(address, options)) {
    joined = in.engines_->Join(address, traits);
  } else {
    joined.engine = std::make_shared<ChannelEngine>(traits, in.stack_.get(), in.group_.get());
  }
  std::shared_ptr<Channel> channel(new Channel(std::move(runtime), nullptr, in.stack_.get(),
                                               address, options, std::move(joined.engine)),
                                   &Channel::Release);
  channel->lease_ = in.lease_.get();
  const auto begun = channel->Begin(options, joined.channels);
  if (!begun.ok()) return begun.status();
  if (options.connect_in_background) return channel;
  const bool decided =
      channel->WaitForStateChange(call::ConnectionState::kConnecting, LongestAttempt(options)) !=
      call::ConnectionState::kConnecting;
  if (absl::Status status = channel->FirstAttempt(decided, *begun); !status.ok()) return status;
  return channel;
}

absl::StatusOr<uint64_t> Channel::Begin(const ChannelOptions& options, uint32_t channels) {
  if (absl::Status status = Resolve(options.resolver); !status.ok()) return status;
  uint64_t connections = 0;
  // An attempt that fails at once may end calls of other channels. A callback does not expect that, so the next pass dials.
  const bool in_callback = lease_->HeldByMe();
  lease_->Run(&seat_, [&] {
    engine_.AllowOwners(channels);
    connections = engine_.counters().connections;
    if (engine_.state() == call::ConnectionState::kUp) return;
    if (in_callback) {
      engine_.DialSoon();
    } else {
      engine_.Dial();
    }
  });
  return connections;
}

absl::Status Channel::FirstAttempt(bool decided, uint64_t connections_before) {
  absl::Status why;
  lease_->Run(&seat_, [&] {
    // Another channel may have made this connection: it is up, or its server drains.
    const call::ConnectionState state = engine_.state();
    if (state == call::ConnectionState::kUp || state == call::ConnectionState::kDraining) return;
    if (engine_.counters().connections == connections_before) why = OwnCopy(engine_.last_error());
  });
  if (!why.ok() || decided) return why;
  return base::Error(
      absl::StatusCode::kDeadlineExceeded, "connect did not end in time",
      {.layer = "api",
       .peer = address_,
       .operation = "connect",
       .cause = "neither an answer nor an error came",
       .remedy = "look at the server; raise connect_timeout if the network is slow"});
}

Channel::Channel(std::shared_ptr<Runtime> runtime, std::unique_ptr<Stack> own_stack, Stack* stack,
                 std::string address, const ChannelOptions& options,
                 std::shared_ptr<ChannelEngine> engine)
    : runtime_(std::move(runtime)),
      own_stack_(std::move(own_stack)),
      stack_(stack),
      address_(std::move(address)),
      log_(options.log, stack_->log(), options.log_level),
      interceptors_(options.interceptors, stack_->clock(), &log_),
      core_(std::move(engine)),
      engine_(core_->engine),
      shares_(runtime_ != nullptr && MayShare(address_, options)),
      seat_(&engine_, core_->member) {}

// Outside of a visit, only the resolver's thread and the background thread run callbacks. These threads cannot wait for their own
// end. In a runtime, callbacks of other channels may drop the reference on any thread that drives.
void Channel::Release(Channel* channel) {
  // A forked child destroys nothing of its parent: the threads do not exist in the child, and the queues belong to the parent.
  if (channel->lease_ != nullptr && channel->lease_->InForkedChild()) return;
  if (Visit::LeaveItToOne(channel)) return;
  const auto end = [](void* released) {
    auto* const ending = static_cast<Channel*>(released);
    ending->End();
    internal::ChannelKeep::Drop(ending);
  };
  Lease* const lease = channel->lease_;
  if (lease != nullptr && lease->HeldByMe()) {
    if (channel->runtime_ != nullptr) return lease->RunLater(end, channel);
    if (lease->EndInBackground(end, channel)) return;
  }
  end(channel);
}

Channel::~Channel() = default;

void Channel::End() {
  if (runtime_ != nullptr) return LeaveRuntime();
  // End the loop first: the resolver's thread may wait for it.
  if (lease_ != nullptr) lease_->EndLoop();
  if (resolver_ != nullptr) resolver_->Stop();
  if (lease_ != nullptr) {
    lease_->Stop();
    // Other threads may be in streams, in coroutines that are destroyed, and in request_stop().
    lease_->Hold(&seat_, [this] { engine_.Close(); });
  } else if (core_->endpoint != nullptr) {
    engine_.Close();
  }
}

void Channel::LeaveRuntime() {
  StopResolver();
  bool last = true;
  lease_->Await(&seat_, [&](Lease::Event* event) {
    last = !shares_ || runtime_->engines_->Leave(address_, core_.get());
    if (!last) {
      seat_.StartNoMore();
      engine_.EndCallsOf(&seat_);
      return true;
    }
    // The engine returns the resources of the endpoint in a pass, when its peers are down.
    engine_.Close();
    if (core_->member->gone()) return true;
    core_->member->WhenGone([event] { event->Set(); });
    return false;
  });
  lease_->Run(&seat_, [&] { lease_->Leave(&seat_, last); });
}

// The resolver's thread may wait for the loop, which is this thread. Therefore another thread stops the resolver while this thread
// drives.
void Channel::StopResolver() {
  if (resolver_ == nullptr) return;
  if (!lease_->PolledHere()) return resolver_->Stop();
  std::atomic<bool> stopped{false};
  std::thread stopping([&] {
    resolver_->Stop();
    stopped.store(true);
    core_->endpoint->Wake();
  });
  lease_->Drive([&stopped] { return stopped.load(); }, Lease::kForeverNs);
  stopping.join();
}

absl::Status Channel::Resolve(std::shared_ptr<Resolver> resolver) {
  if (resolver == nullptr && absl::StartsWith(address_, kFile)) {
    resolver = std::make_shared<FileResolver>(address_.substr(kFile.size()));
  }
  if (resolver == nullptr) return UseServers(absl::StrSplit(address_, ','));
  absl::Status started = resolver->Start(
      [this](const std::vector<std::string>& servers) { return UseServers(servers); });
  if (started.ok()) resolver_ = std::move(resolver);
  return started;
}

absl::Status Channel::SetServers(const std::vector<std::string>& addresses) {
  const Visit visit(this);
  if (shares_) {
    return base::Error(
        absl::StatusCode::kFailedPrecondition, "servers not changed",
        {.layer = "api",
         .peer = address_,
         .operation = "set servers",
         .cause = "channels of the runtime to the same address share their connections",
         .remedy = "set share_connections of this channel to false",
         .retry_safe = true});
  }
  return UseServers(addresses);
}

absl::Status Channel::UseServers(const std::vector<std::string>& addresses) {
  auto servers = ParseAll(addresses);
  if (!servers.ok()) return servers.status();
  lease_->Run(&seat_, [&] { engine_.SetServers(*servers); });
  return absl::OkStatus();
}

absl::Status Channel::Call(const Method& method, CallContext& context,
                           const google::protobuf::MessageLite& request,
                           google::protobuf::MessageLite* reply) {
  const Visit visit(this);
  call::CallSpec spec = SpecOf(&seat_, method, context, &request, reply, nullptr, nullptr, nullptr,
                               nullptr, context.ReplyBeside());
  if (interceptors_.empty() && !context.stop_token().stop_possible()) [[likely]]
    return lease_->Call(&seat_, &spec);
  const auto run = [this](call::CallSpec one) { return lease_->Call(&seat_, &one); };
  const auto call = [&] {
    return interceptors_.empty() ? lease_->Call(&seat_, &spec)
                                 : interceptors_.Run(spec, address_, run);
  };
  if (!context.stop_token().stop_possible()) return call();
  if (context.stop_token().stop_requested()) return Stopped(method, server());
  call::CallControl control;
  spec.control = &control;
  const internal::StopCall stop(context.stop_token(), this, &control);
  return call();
}

absl::Status Channel::StartCall(const Method& method, const CallContext& context,
                                const google::protobuf::MessageLite& request,
                                google::protobuf::MessageLite* reply, CallDone done, void* argument,
                                call::CallControl* control, call::Beside* reply_beside) {
  const call::CallSpec spec = SpecOf(&seat_, method, context, &request, reply, done, argument,
                                     nullptr, control, reply_beside);
  if (context.stop_token().stop_requested()) return Stopped(method, server());
  return Start(spec);
}

absl::Status Channel::Start(const call::CallSpec& spec) {
  // No callback runs inside a start, so the channel cannot end there.
  if (interceptors_.empty() && lease_->HeldByMe()) return lease_->StartHeld(&seat_, spec);
  const Visit visit(this);
  // Before this returns, the call may end on the background thread, and its callback may drop the last reference.
  const internal::ChannelKeep kept(lease_->HeldByMe() ? nullptr : this);
  if (interceptors_.empty()) return lease_->Start(&seat_, spec);
  return interceptors_.Start(
      spec, address_, [this](const call::CallSpec& one) { return lease_->Start(&seat_, one); });
}

absl::Status Channel::StartCallback(const Method& method, CallContext& context,
                                    const google::protobuf::MessageLite& request,
                                    google::protobuf::MessageLite* reply, call::Callback* done) {
  const call::CallSpec spec = SpecOf(&seat_, method, context, &request, reply, nullptr, nullptr,
                                     done, nullptr, context.ReplyBeside());
  // No callback runs inside a start, so the channel cannot end there.
  if (lease_->HeldByMe()) return lease_->StartHeld(&seat_, spec);
  const Visit visit(this);
  const internal::ChannelKeep kept(this);
  return lease_->Start(&seat_, spec);
}

absl::StatusOr<Buffer> Channel::MakeBuffer(size_t bytes) {
  const Visit visit(this);
  absl::StatusOr<Buffer> buffer;
  lease_->Run(&seat_, [&] {
    auto made = engine_.MakeBuffer(bytes);
    if (made.ok()) {
      buffer = *std::move(made);
    } else {
      buffer = OwnCopy(made.status());
    }
  });
  return buffer;
}

void Channel::Cancel(uint64_t call_id) {
  const Visit visit(this);
  lease_->Cancel(&seat_, call_id);
}

void Channel::CancelAndWait(call::CallControl* control) {
  const Visit visit(this);
  lease_->CancelAndWait(&seat_, control);
}

bool Channel::Drive(absl::FunctionRef<bool()> until, absl::Duration timeout) {
  const Visit visit(this);
  if (lease_->HeldByMe()) {
    log_.Write({.severity = LogSeverity::kError,
                .room = "api",
                .event = "drive refused",
                .peer = address_,
                .message = "Drive() was called inside a callback of its channel, which can't drive "
                           "it: return first, or drive on another thread"});
    return until();
  }
  return lease_->Drive(until, timeout == absl::InfiniteDuration()
                                  ? Lease::kForeverNs
                                  : absl::ToInt64Nanoseconds(timeout));
}

int Channel::Poll() {
  const Visit visit(this);
  return lease_->Poll();
}

bool Channel::PrepareToSleep() {
  const Visit visit(this);
  return lease_->PrepareToSleep();
}

int Channel::fd() const { return lease_->fd(); }
void Channel::Wake() { core_->endpoint->Wake(); }

ChannelSnapshot Channel::Snapshot(absl::Duration patience) {
  const Visit visit(this);
  return TakeSnapshot(patience);
}

const std::string& Channel::device_choice() const { return stack_->device_choice(); }
const verbs::CapabilityReport& Channel::capabilities() const { return stack_->capabilities(); }

call::ClientCounters Channel::counters() {
  const Visit visit(this);
  call::ClientCounters counters;
  lease_->Run(&seat_, [&] { counters = engine_.counters(); });
  return counters;
}

endpoint::Counters Channel::endpoint_counters() {
  const Visit visit(this);
  endpoint::Counters counters;
  lease_->Run(&seat_, [&] { counters = core_->endpoint->Counts(); });
  return counters;
}

}  // namespace sluice
