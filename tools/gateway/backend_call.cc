// SPDX-License-Identifier: Apache-2.0
#include "tools/gateway/backend_call.h"

#include <chrono>
#include <utility>

#include "absl/time/time.h"
#include "tools/gateway/clamped_time.h"
#include "tools/gateway/message_bytes.h"
#include "tools/gateway/metadata_conversion.h"
#include "tools/gateway/status_conversion.h"

namespace sluice::gateway {

// What gRPC uses: it lives until OnDone(). The coroutine's hold keeps gRPC from ending the call while operations may start.
class BackendCall::State final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  void Begin(std::shared_ptr<State> self, grpc::GenericStub* stub, const std::string& method) {
    self_ = std::move(self);
    stub->PrepareBidiStreamingCall(&context_, method, grpc::StubOptions(), this);
    AddHold();
    StartCall();
  }
  void Expect(Step step) {
    const std::lock_guard lock(mutex_);
    steps_[step].done = false;
  }
  void Release() {
    if (!std::exchange(released_, true)) RemoveHold();
  }

  void OnReadInitialMetadataDone(bool ok) override { Complete(kOpened, ok); }
  void OnReadDone(bool ok) override { Complete(kRead, ok); }
  void OnWriteDone(bool ok) override { Complete(kWritten, ok); }
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<State> self = std::move(self_);
    status_ = status;
    Complete(kEnded, true);
  }

  grpc::ClientContext context_;
  grpc::ByteBuffer in_;
  grpc::ByteBuffer out_;
  grpc::Status status_;  // after kEnded

 private:
  friend class Awaiter;

  // What resumes the coroutine posts to its home, so it may run with the mutex, and the coroutine cannot go meanwhile.
  void Complete(Step step, bool ok) {
    const std::lock_guard lock(mutex_);
    steps_[step].done = true;
    steps_[step].ok = ok;
    if (Resumption* const waiter = std::exchange(steps_[step].waiter, nullptr)) waiter->Resume();
  }

  struct Progress {
    bool done = false;
    bool ok = false;
    Resumption* waiter = nullptr;
  };
  std::mutex mutex_;
  std::array<Progress, kSteps> steps_;  // mutex_
  bool released_ = false;               // the coroutine's
  std::shared_ptr<State> self_;         // until OnDone()
};

class BackendCall::Awaiter {
 public:
  Awaiter(State* state, Step step) : state_(state), step_(step) {}
  Awaiter(const Awaiter&) = delete;
  Awaiter& operator=(const Awaiter&) = delete;
  ~Awaiter() {
    const std::lock_guard lock(state_->mutex_);
    if (state_->steps_[step_].waiter == &resumption_) state_->steps_[step_].waiter = nullptr;
  }
  bool await_ready() { return false; }
  template <typename Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) {
    resumption_.Set(handle);
    const std::lock_guard lock(state_->mutex_);
    if (state_->steps_[step_].done) return false;
    state_->steps_[step_].waiter = &resumption_;
    return true;
  }
  bool await_resume() {
    const std::lock_guard lock(state_->mutex_);
    return state_->steps_[step_].ok;
  }

 private:
  State* const state_;
  const Step step_;
  Resumption resumption_;
};

BackendCall::BackendCall(grpc::GenericStub* stub, const std::string& method, ServerContext& context)
    : state_(std::make_shared<State>()) {
  for (const auto& [key, value] : ToGrpc(context.metadata())) {
    state_->context_.AddMetadata(key, value);
  }
  const absl::Duration left = context.time_left_on_arrival();
  if (left != absl::InfiniteDuration()) {
    state_->context_.set_deadline(std::chrono::system_clock::now() + ClampedTime(left));
  }
  state_->Begin(state_, stub, method);
  on_stop_.emplace(context.stop_token(), [state = state_.get()] { state->context_.TryCancel(); });
}

BackendCall::~BackendCall() {
  on_stop_.reset();
  state_->context_.TryCancel();
  state_->Release();
}

Task<const Metadata*> BackendCall::Opened() {
  State* const state = state_.get();
  if (!co_await Awaiter(state, kOpened)) co_return nullptr;
  (void)FromGrpc(state->context_.GetServerInitialMetadata(), &initial_);
  co_return &initial_;
}

Task<bool> BackendCall::Read(RawMessage* message) {
  State* const state = state_.get();
  state->Expect(kRead);
  state->StartRead(&state->in_);
  if (!co_await Awaiter(state, kRead)) co_return false;
  message->set_bytes(BytesOf(state->in_));
  state->in_.Clear();  // a large message is not held twice
  co_return true;
}

Task<bool> BackendCall::Write(const RawMessage& message) {
  State* const state = state_.get();
  state->out_ = BufferOf(std::string(message.bytes()));
  state->Expect(kWritten);
  state->StartWrite(&state->out_);
  const bool written = co_await Awaiter(state, kWritten);
  co_return written;
}

void BackendCall::WriteLast(const RawMessage& message) {
  state_->out_ = BufferOf(std::string(message.bytes()));
  state_->StartWriteLast(&state_->out_, grpc::WriteOptions());
}

void BackendCall::WritesDone() { state_->StartWritesDone(); }

void BackendCall::Cancel() { state_->context_.TryCancel(); }

Task<absl::Status> BackendCall::End(ServerContext& context) {
  State* const state = state_.get();
  state->Release();
  (void)co_await Awaiter(state, kEnded);
  Metadata metadata;
  (void)FromGrpc(state->context_.GetServerTrailingMetadata(), &metadata);
  for (const auto& [key, value] : metadata.entries()) (void)context.AddReplyMetadata(key, value);
  co_return FromGrpc(state->status_);
}

}  // namespace sluice::gateway
