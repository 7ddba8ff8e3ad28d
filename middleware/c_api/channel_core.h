// SPDX-License-Identifier: Apache-2.0
//
// ChannelCore: the channel behind a sluice_channel, and behind the calls and streams that were started with it.
//
// Purpose       A channel that any thread may close while other threads use it. Each function keeps a reference to the channel while it
//               runs. The last function that leaves a closed channel ends it.
// Ownership     Shared by the channel's handle and the handles of its calls and streams.
// Threads       Any.
// Fork          A channel does not work in a forked child, which has no threads of the channel. If forked() is true, functions of the C
//               API leave the handles unchanged.
#ifndef SLUICE_MIDDLEWARE_C_API_CHANNEL_CORE_H_
#define SLUICE_MIDDLEWARE_C_API_CHANNEL_CORE_H_

#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "middleware/api/channel.h"
#include "middleware/api/config.h"
#include "middleware/c_api/objects.h"

namespace sluice::c_api {

// An event that is set once, by the thread that drives the channel. It may be destroyed when another thread has seen it set.
class Latch {
 public:
  void Set();
  bool IsSet();
  // Returns whether it is set. `timeout_ns`: SLUICE_FOREVER waits until it is.
  bool WaitFor(int64_t timeout_ns);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

class ChannelCore {
 public:
  explicit ChannelCore(std::shared_ptr<Channel> channel);
  ChannelCore(const ChannelCore&) = delete;
  ChannelCore& operator=(const ChannelCore&) = delete;

  // Returns a reference for the time of one function. `function`: its name, for the error text.
  // FAILED_PRECONDITION: the channel is closed, or belongs to another process.
  absl::StatusOr<std::shared_ptr<Channel>> Use(std::string_view function);
  bool forked() const { return getpid() != process_; }
  // Closes the channel. Its calls end with CANCELLED.
  void Close();
  // A stop is requested when the channel is closed.
  std::stop_token closing() const { return closing_.get_token(); }
  const std::string& device() const { return device_; }

  // Waits until a server is connected. DEADLINE_EXCEEDED: `timeout` has passed. FAILED_PRECONDITION: as Use(), also if the channel is
  // closed meanwhile.
  absl::Status AwaitConnection(std::string_view function, absl::Duration timeout);
  // Waits until the latch is set, and polls for the channel meanwhile if no other thread does. Returns whether it is set.
  // `timeout_ns`: zero or less does not wait.
  // `begin`: optional; starts the operation that sets the latch. If this thread polls, it runs `begin` too, so that no other thread
  // must wake.
  bool Wait(Latch* latch, int64_t timeout_ns,
            std::optional<absl::FunctionRef<void()>> begin = std::nullopt);

 private:
  std::shared_ptr<Channel> Get();

  const pid_t process_;
  const std::string device_;
  std::stop_source closing_;
  std::mutex mutex_;
  std::shared_ptr<Channel> channel_;  // mutex_; nullptr: closed
};

}  // namespace sluice::c_api

struct sluice_channel {
  std::shared_ptr<sluice::c_api::ChannelCore> core;
};

struct sluice_options {
  sluice::Config config;
};

#endif  // SLUICE_MIDDLEWARE_C_API_CHANNEL_CORE_H_
