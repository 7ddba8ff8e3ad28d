// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/runtime.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/api/channel_engine.h"
#include "middleware/api/lease.h"
#include "middleware/api/loop_descriptor.h"
#include "middleware/api/stack.h"
#include "middleware/call/client_group.h"
#include "transport/base/error.h"

namespace sluice {

absl::StatusOr<std::shared_ptr<Runtime>> Runtime::CreateOn(std::unique_ptr<Stack> stack,
                                                           const RuntimeOptions& options) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  std::shared_ptr<Runtime> runtime(new Runtime(std::move(stack), options), &Runtime::Release);
  auto endpoint = runtime->stack_->CreateEndpoint(options.limits, options.authentication, {},
                                                  &runtime->log_, runtime->group_->handler());
  if (!endpoint.ok()) return endpoint.status();
  runtime->endpoint_ = *std::move(endpoint);
  runtime->group_->Attach(runtime->endpoint_.get());
  std::unique_ptr<LoopDescriptor> loop;
  if (options.driving == Driving::kCaller) {
    auto made = LoopDescriptor::Create(runtime->endpoint_->fd());
    if (!made.ok()) return made.status();
    loop = *std::move(made);
  }
  runtime->lease_ =
      std::make_unique<Lease>(call::Driven(runtime->group_.get()), runtime->endpoint_.get(),
                              absl::ToInt64Nanoseconds(options.spin), std::move(loop));
  return runtime;
}

Runtime::Runtime(std::unique_ptr<Stack> stack, const RuntimeOptions& options)
    : options_(options),
      process_(getpid()),
      stack_(std::move(stack)),
      log_(options.log, stack_->log(), options.log_level),
      group_(std::make_unique<call::ClientGroup>(stack_->clock())),
      engines_(std::make_unique<ChannelEngines>(stack_.get(), group_.get())) {}

// The last channel may end on the background thread, which can't wait for its own end.
void Runtime::Release(Runtime* runtime) {
  const auto end = [](void* released) { delete static_cast<Runtime*>(released); };
  Lease* const lease = runtime->lease_.get();
  if (lease != nullptr && lease->InForkedChild()) return;  // see Channel::Release()
  if (lease != nullptr && lease->OnBackgroundThread() && lease->EndInBackground(end, runtime)) {
    return;
  }
  end(runtime);
}

// No channel is left, so no callback runs here.
Runtime::~Runtime() {
  if (lease_ != nullptr) {
    lease_->EndLoop();
    lease_->Stop();
  }
  if (endpoint_ != nullptr) endpoint_->Close();
}

absl::Status Runtime::CheckProcess() const {
  if (getpid() == process_) return absl::OkStatus();
  return base::Error(absl::StatusCode::kFailedPrecondition,
                     "the runtime belongs to another process",
                     {.layer = "api",
                      .operation = "connect",
                      .cause = absl::StrCat("process ", process_, " made it, and forked this one"),
                      .remedy = "create a runtime in the child, or create it after fork()",
                      .retry_safe = true});
}

// A callback or `until` may drop the last reference.
bool Runtime::Drive(absl::FunctionRef<bool()> until, absl::Duration timeout) {
  const auto kept = shared_from_this();
  if (lease_->HeldByMe()) {
    log_.Write({.severity = LogSeverity::kError,
                .room = "api",
                .event = "drive refused",
                .message = "Drive() was called inside a callback of its runtime, which can't drive "
                           "it: return first, or drive on another thread"});
    return until();
  }
  return lease_->Drive(until, timeout == absl::InfiniteDuration()
                                  ? Lease::kForeverNs
                                  : absl::ToInt64Nanoseconds(timeout));
}

int Runtime::Poll() {
  const auto kept = shared_from_this();
  return lease_->Poll();
}

bool Runtime::PrepareToSleep() { return lease_->PrepareToSleep(); }
int Runtime::fd() const { return lease_->fd(); }
void Runtime::Wake() { endpoint_->Wake(); }
const std::string& Runtime::device_choice() const { return stack_->device_choice(); }
const verbs::CapabilityReport& Runtime::capabilities() const { return stack_->capabilities(); }

}  // namespace sluice
