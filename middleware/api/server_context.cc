// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/server_context.h"

#include <condition_variable>
#include <mutex>

#include "middleware/api/own_copy.h"
#include "middleware/call/server_engine.h"
#include "transport/base/mailbox.h"

namespace sluice {
namespace {

// Asks the polling thread, and waits.
class BufferAsk final : private base::MailNode {
 public:
  BufferAsk(const call::Incoming& incoming, size_t bytes) : incoming_(incoming), bytes_(bytes) {
    run = [](base::MailNode* node) { static_cast<BufferAsk*>(node)->Make(); };
  }
  absl::StatusOr<Buffer> Wait() {
    incoming_.engine->Post(this);
    std::unique_lock lock(mutex_);
    made_.wait(lock, [this] { return done_; });
    return std::move(buffer_);
  }

 private:
  void Make() {
    auto buffer = incoming_.engine->MakeBuffer(incoming_.from, bytes_);
    std::lock_guard lock(mutex_);  // to its end: who waits takes all this along
    if (buffer.ok()) {
      buffer_ = *std::move(buffer);
    } else {
      buffer_ = OwnCopy(buffer.status());
    }
    done_ = true;
    made_.notify_one();
  }

  const call::Incoming& incoming_;
  const size_t bytes_;
  std::mutex mutex_;
  std::condition_variable made_;
  bool done_ = false;
  absl::StatusOr<Buffer> buffer_;
};

}  // namespace

absl::StatusOr<Buffer> ServerContext::MakeBuffer(size_t bytes) {
  if (incoming_.engine == nullptr) return Buffer::Ordinary(bytes);
  // An executor may run what it is given at once, or in the loop that polls.
  if (can_stop_ && incoming_.engine->PolledElsewhere()) return BufferAsk(incoming_, bytes).Wait();
  return incoming_.engine->MakeBuffer(incoming_.from, bytes);
}

}  // namespace sluice
