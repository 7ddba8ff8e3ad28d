// SPDX-License-Identifier: Apache-2.0
#include "middleware/c_api/channel_core.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "transport/base/error.h"

namespace sluice::c_api {
namespace {

using std::chrono::nanoseconds;
using SteadyClock = std::chrono::steady_clock;

// A thread that waits while another thread polls: first waits for the lease for kTryNs, then on the latch for kLookNs.
constexpr int64_t kTryNs = 64'000;
constexpr int64_t kLookNs = 10'000'000;
// Maximum time of one Drive(). After it, another thread can take the lease.
constexpr int64_t kLongestTurnNs = 8'000'000;

// Longer timeouts are infinite.
constexpr int64_t kLongestNs = int64_t{1} << 61;

// Period in which a thread that waits for a connection checks whether the channel was closed.
constexpr absl::Duration kConnectTurn = absl::Milliseconds(100);
// Pauses between attempts to connect that AwaitConnection() starts after the channel's own attempts (max_reconnect_attempts). The
// values are the same as in Channel::WaitUntilConnected().
constexpr absl::Duration kMinPause = absl::Milliseconds(10);
constexpr absl::Duration kMaxPause = absl::Seconds(1);

absl::Duration TimeoutOf(int64_t timeout_ns) {
  return timeout_ns == SLUICE_FOREVER ? absl::InfiniteDuration() : absl::Nanoseconds(timeout_ns);
}

}  // namespace

void Latch::Set() {
  const std::lock_guard lock(mutex_);
  set_ = true;
  changed_.notify_all();  // with the mutex: a thread that sees set_ may destroy the latch
}

bool Latch::IsSet() {
  const std::lock_guard lock(mutex_);
  return set_;
}

bool Latch::WaitFor(int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  if (timeout_ns >= kLongestNs) {
    changed_.wait(lock, [this] { return set_; });
    return true;
  }
  return changed_.wait_for(lock, nanoseconds(std::max<int64_t>(0, timeout_ns)),
                           [this] { return set_; });
}

ChannelCore::ChannelCore(std::shared_ptr<Channel> channel)
    : process_(getpid()), device_(channel->device_choice()), channel_(std::move(channel)) {}

std::shared_ptr<Channel> ChannelCore::Get() {
  const std::lock_guard lock(mutex_);
  return channel_;
}

absl::StatusOr<std::shared_ptr<Channel>> ChannelCore::Use(std::string_view function) {
  if (forked()) {
    return base::Error(
        absl::StatusCode::kFailedPrecondition, "the channel belongs to another process",
        {.layer = "c_api",
         .operation = function,
         .cause = absl::StrCat("process ", process_, " connected it, and forked this one"),
         .remedy = "connect in the child",
         .retry_safe = true});
  }
  std::shared_ptr<Channel> channel = Get();
  if (channel != nullptr) return channel;
  return base::Error(absl::StatusCode::kFailedPrecondition, "the channel is closed",
                     {.layer = "c_api",
                      .operation = function,
                      .cause = "sluice_channel_close() was called before",
                      .remedy = "connect a new channel",
                      .retry_safe = true});
}

void ChannelCore::Close() {
  std::shared_ptr<Channel> last;
  {
    const std::lock_guard lock(mutex_);
    last = std::move(channel_);
  }
  closing_.request_stop();
}

absl::Status ChannelCore::AwaitConnection(std::string_view function, absl::Duration timeout) {
  const auto since = SteadyClock::now();
  const auto left = [&] { return timeout - absl::FromChrono(SteadyClock::now() - since); };
  for (absl::Duration pause = kMinPause;; pause = std::min(2 * pause, kMaxPause)) {
    const auto used = Use(function);
    if (!used.ok()) return used.status();
    // Does not block; an idle channel starts to connect.
    const absl::Status status = (*used)->WaitUntilConnected(absl::ZeroDuration());
    if (!absl::IsDeadlineExceeded(status) || left() <= absl::ZeroDuration()) return status;
    absl::Duration idle = pause;
    while (left() > absl::ZeroDuration() && !closing_.stop_requested()) {
      const ConnectionState state = (*used)->connection_state();
      const bool rests = state == ConnectionState::kIdle;
      if (state == ConnectionState::kUp || (rests && idle <= absl::ZeroDuration())) break;
      absl::Duration turn = std::min(left(), kConnectTurn);
      if (rests) {
        turn = std::min(turn, idle);
        idle -= turn;
      }
      (*used)->WaitForStateChange(state, turn);
    }
  }
}

bool ChannelCore::Wait(Latch* latch, int64_t timeout_ns,
                       std::optional<absl::FunctionRef<void()>> begin) {
  timeout_ns = std::max<int64_t>(0, timeout_ns);
  const auto begin_once = [&begin] {
    if (begin.has_value()) std::exchange(begin, std::nullopt).value()();
  };
  const auto since = SteadyClock::now();
  const auto left_ns = [&]() -> int64_t {
    if (timeout_ns >= kLongestNs) return kLongestNs;
    const int64_t passed_ns =
        std::chrono::duration_cast<nanoseconds>(SteadyClock::now() - since).count();
    return timeout_ns - passed_ns;
  };
  int64_t turn_ns = kTryNs;
  for (;;) {
    if (!begin.has_value() && latch->IsSet()) return true;
    const int64_t left = left_ns();
    if (left <= 0) {
      begin_once();
      return false;
    }
    const std::shared_ptr<Channel> channel = Get();
    // The channel is closed: its calls have ended, or end soon.
    if (channel == nullptr) {
      begin_once();
      return latch->WaitFor(left);
    }
    bool polled = false;
    const bool set = channel->Drive(
        [&] {
          polled = true;
          begin_once();
          return latch->IsSet();
        },
        absl::Nanoseconds(std::min(left, turn_ns)));
    begin_once();
    if (set) return true;
    if (polled) {
      turn_ns = std::min(8 * turn_ns, kLongestTurnNs);
      continue;
    }
    turn_ns = kTryNs;
    if (latch->WaitFor(std::min(left_ns(), kLookNs))) return true;
  }
}

}  // namespace sluice::c_api

using sluice::c_api::BadArgument;
using sluice::c_api::ChannelCore;
using sluice::c_api::Guard;
using sluice::c_api::GuardValue;
using sluice::c_api::NewStatus;

extern "C" {

sluice_options* sluice_options_new() {
  return GuardValue<sluice_options*>(nullptr, [] { return new sluice_options; });
}

sluice_status* sluice_options_set(sluice_options* options, const char* name, const char* value) {
  return Guard([&]() -> sluice_status* {
    constexpr char kFunction[] = "sluice_options_set";
    if (options == nullptr || name == nullptr || value == nullptr) {
      return NewStatus(BadArgument(kFunction, "options, name or value", "it is NULL", "set it"));
    }
    const std::string text = value;
    if (std::string_view(name) == "connect_in_background") {
      if (text != "true" && text != "false") {
        return NewStatus(BadArgument(kFunction, "value", absl::StrCat("it is \"", text, "\""),
                                     "write true or false"));
      }
      options->config.channel.connect_in_background = text == "true";
      return nullptr;
    }
    return NewStatus(
        options->config.Set(absl::StrCat("channel.", name), text, sluice::Config::Source::kFlag));
  });
}

void sluice_options_free(sluice_options* options) { delete options; }

sluice_status* sluice_channel_connect(const char* address, const sluice_options* options,
                                      sluice_channel** channel) {
  return Guard([&]() -> sluice_status* {
    if (channel != nullptr) *channel = nullptr;
    if (address == nullptr || channel == nullptr) {
      return NewStatus(
          BadArgument("sluice_channel_connect", "address or channel", "it is NULL", "set it"));
    }
    auto connected = sluice::Channel::Connect(
        address, options == nullptr ? sluice::ChannelOptions() : options->config.channel);
    if (!connected.ok()) return NewStatus(connected.status());
    *channel = new sluice_channel{std::make_shared<ChannelCore>(*std::move(connected))};
    return nullptr;
  });
}

sluice_status* sluice_channel_wait_connected(sluice_channel* channel, int64_t timeout_ns) {
  return Guard([&]() -> sluice_status* {
    constexpr char kFunction[] = "sluice_channel_wait_connected";
    if (channel == nullptr)
      return NewStatus(BadArgument(kFunction, "channel", "it is NULL", "connect one"));
    const std::shared_ptr<ChannelCore> core = channel->core;
    return NewStatus(core->AwaitConnection(kFunction, sluice::c_api::TimeoutOf(timeout_ns)));
  });
}

const char* sluice_channel_device(const sluice_channel* channel) {
  return channel == nullptr ? "" : channel->core->device().c_str();
}

void sluice_channel_close(sluice_channel* channel) {
  if (channel == nullptr || channel->core->forked()) return;
  GuardValue(0, [&] {
    channel->core->Close();
    return 0;
  });
}

void sluice_channel_free(sluice_channel* channel) {
  // In a forked child, the channel has no threads, so it cannot be ended.
  if (channel == nullptr || channel->core->forked()) return;
  sluice_channel_close(channel);
  delete channel;
}

}  // extern "C"
