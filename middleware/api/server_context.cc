// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/server_context.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/api/own_copy.h"
#include "middleware/call/server_call.h"
#include "middleware/call/server_engine.h"
#include "transport/base/error.h"
#include "transport/base/mailbox.h"

namespace sluice {
namespace {

// Runs `work()` on the polling thread, and blocks until it has run.
template <typename Work>
class Ask final : private base::MailNode {
 public:
  Ask(call::ServerEngine* engine, Work work) : engine_(engine), work_(std::move(work)) {
    run = [](base::MailNode* node) { static_cast<Ask*>(node)->Do(); };
  }
  void Wait() {
    engine_->Post(this);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }

 private:
  void Do() {
    work_();
    std::lock_guard lock(mutex_);  // held to the end: then the waiting thread destroys *this
    done_ = true;
    changed_.notify_one();
  }

  call::ServerEngine* const engine_;
  Work work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

}  // namespace

absl::StatusOr<Buffer> ServerContext::MakeBuffer(size_t bytes) {
  call::ServerEngine* const engine = incoming_.engine;
  if (engine == nullptr) return Buffer::Ordinary(bytes);
  // An executor may run the handler on the polling thread: inside Run(), or in the loop that polls.
  if (deferred_ == nullptr || !engine->PolledElsewhere()) {
    return engine->MakeBuffer(incoming_.from, bytes);
  }
  absl::StatusOr<Buffer> made;
  Ask(engine, [&] {
    made = engine->MakeBuffer(incoming_.from, bytes);
    if (!made.ok()) made = OwnCopy(made.status());
  }).Wait();
  return made;
}

absl::Status ServerContext::SendInitialMetadata(const Metadata& metadata) {
  if (deferred_ == nullptr || incoming_.method->streams == call::Streams::kNobody) {
    return base::Error(absl::StatusCode::kFailedPrecondition,
                       absl::StrCat("initial metadata of ", method(), " not sent"),
                       {.layer = "api",
                        .operation = method(),
                        .cause = "neither side of this method streams",
                        .remedy = "use AddReplyMetadata(), which goes with the reply"});
  }
  call::ServerEngine* const engine = incoming_.engine;
  if (!engine->PolledElsewhere()) return deferred_->SendInitialMetadata(metadata.wire());
  absl::Status sent;
  Ask(engine, [&] { sent = OwnCopy(deferred_->SendInitialMetadata(metadata.wire())); }).Wait();
  return sent;
}

}  // namespace sluice
