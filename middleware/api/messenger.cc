// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/messenger.h"

#include <poll.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "middleware/api/address.h"
#include "middleware/api/end_refused.h"
#include "middleware/api/stack.h"

namespace sluice {
namespace {

flow::FlowEngineOptions EngineOptions(const MessengerOptions& options) {
  flow::FlowEngineOptions engine;
  engine.max_flows = options.max_flows;
  engine.connect_timeout_ns = absl::ToInt64Nanoseconds(options.connect_timeout);
  return engine;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Messenger>> Messenger::CreateOn(std::unique_ptr<Stack> stack,
                                                               const MessengerOptions& options) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  std::unique_ptr<Messenger> messenger(new Messenger(std::move(stack), options));
  auto endpoint =
      messenger->stack_->CreateEndpoint(options.limits, options.authentication, options.tenants,
                                        &messenger->log_, messenger->engine_->handler());
  if (!endpoint.ok()) return endpoint.status();
  messenger->endpoint_ = *std::move(endpoint);
  messenger->engine_->Attach(messenger->endpoint_.get());
  return messenger;
}

Messenger::Messenger(std::unique_ptr<Stack> stack, const MessengerOptions& options)
    : spin_ns_(absl::ToInt64Nanoseconds(options.spin)),
      stack_(std::move(stack)),
      log_(options.log, stack_->log(), options.log_level),
      engine_(std::make_unique<flow::FlowEngine>(EngineOptions(options), stack_->clock(), &log_)) {}

Messenger::~Messenger() {
  // First: a child may have been forked while a handler ran.
  if (creator_.InForkedChild()) {
    // The queues belong to the parent, the threads do not exist here, and the engine may have been in the middle of a pass.
    (void)endpoint_.release();
    (void)engine_.release();
    (void)stack_.release();
    return;
  }
  if (in_handler_) {
    internal::EndRefused("Messenger", "a handler of its own",
                         "Close() it there, and destroy it after Poll() or Drive()");
  }
  if (endpoint_ != nullptr) Close();
}

absl::StatusOr<uint16_t> Messenger::Listen(const std::string& address) {
  if (creator_.InForkedChild()) return internal::Creator::Refuse("messenger", "listen");
  const auto parsed = ParseAddress(address, /*allow_port_0=*/true);
  if (!parsed.ok()) return parsed.status();
  return endpoint_->Listen(parsed->host, parsed->port);
}

absl::Status Messenger::Accept(const std::string& end, const FlowOptions& options,
                               Acceptor acceptor) {
  if (creator_.InForkedChild()) return internal::Creator::Refuse("messenger", "accept");
  return engine_->Accept(end, options, std::move(acceptor));
}

absl::StatusOr<Flow> Messenger::Open(const std::string& address, const std::string& end,
                                     const FlowOptions& options, FlowHandler* handler) {
  if (creator_.InForkedChild()) return internal::Creator::Refuse("messenger", "open");
  const auto parsed = ParseAddress(address, /*allow_port_0=*/false);
  if (!parsed.ok()) return parsed.status();
  return engine_->Open(parsed->host, parsed->port, end, options, handler);
}

int Messenger::Poll() {
  if (in_handler_ || creator_.InForkedChild()) return 0;
  in_handler_ = true;
  const int done = engine_->Poll();
  in_handler_ = false;
  if (close_wanted_) Close();
  return done;
}

bool Messenger::PrepareToSleep() {
  if (in_handler_ || creator_.InForkedChild()) return false;
  endpoint_->Flush();
  return !engine_->HasWork() && endpoint_->PrepareToSleep();
}

absl::Duration Messenger::SleepLimit() const {
  if (creator_.InForkedChild()) return absl::InfiniteDuration();
  const int64_t limit_ns = endpoint_->SleepLimitNs();
  return limit_ns < 0 ? absl::InfiniteDuration() : absl::Nanoseconds(limit_ns);
}

bool Messenger::Drive(absl::FunctionRef<bool()> until, absl::Duration timeout) {
  if (creator_.InForkedChild()) return false;
  if (in_handler_) return until();
  base::Clock* const clock = stack_->clock();
  const absl::Duration most = absl::Hours(24 * 365);  // an infinite timeout must not overflow
  int64_t now_ns = clock->NowNs();
  const int64_t end_ns = now_ns + absl::ToInt64Nanoseconds(std::min(timeout, most));
  int64_t idle_since_ns = now_ns;
  while (true) {
    const int done = Poll();
    if (until()) return true;
    now_ns = clock->NowNs();
    if (now_ns >= end_ns) return false;
    if (done > 0) idle_since_ns = now_ns;
    if (now_ns - idle_since_ns < spin_ns_ || !PrepareToSleep()) continue;
    const timespec limit =
        absl::ToTimespec(std::min(SleepLimit(), absl::Nanoseconds(end_ns - now_ns)));
    pollfd readable{fd(), POLLIN, 0};
    ppoll(&readable, 1, &limit, nullptr);
    idle_since_ns = clock->NowNs();
  }
}

void Messenger::Wake() {
  if (!creator_.InForkedChild()) endpoint_->Wake();
}

endpoint::Counters Messenger::endpoint_counters() const {
  return creator_.InForkedChild() ? endpoint::Counters() : endpoint_->Counts();
}

void Messenger::Close() {
  if (creator_.InForkedChild()) return;
  close_wanted_ = in_handler_;
  if (in_handler_) return;
  in_handler_ = true;
  engine_->Close();
  in_handler_ = false;
}

const std::string& Messenger::device_choice() const { return stack_->device_choice(); }
const verbs::CapabilityReport& Messenger::capabilities() const { return stack_->capabilities(); }

}  // namespace sluice
