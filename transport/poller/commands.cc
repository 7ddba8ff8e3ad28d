// SPDX-License-Identifier: Apache-2.0
#include "transport/poller/commands.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <utility>

namespace sluice::poller {
namespace {

int NewEventFd() {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) {
    std::perror("eventfd");
    std::abort();  // a process without a free descriptor at start-up can't work
  }
  return fd;
}

// write() fails only if the counter is at its limit, read() only if it is zero. Both failures are harmless.
void Signal(int fd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd, &one, sizeof(one));
}
void Clear(int fd) {
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(fd, &count, sizeof(count));
}

}  // namespace

struct ThreadCommands::SlowLane {
  std::mutex mutex;  // taken before the owner's
  std::condition_variable changed;
  std::deque<Item> queued;
  ThreadCommands* owner = nullptr;  // null: destroyed
  uint64_t finished = 0;            // number of Finish() calls: earlier work gets no `done`
};

ThreadCommands::ThreadCommands() : event_fd_(NewEventFd()) {}

ThreadCommands::~ThreadCommands() {
  for (const auto& slow : slow_) {
    if (slow == nullptr) continue;
    {
      std::lock_guard lock(slow->mutex);
      slow->owner = nullptr;
      slow->queued.clear();
    }
    slow->changed.notify_all();
  }
  RunAll();
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  close(event_fd_);
}

void ThreadCommands::Submit(Work work, Work done) {
  {
    std::lock_guard lock(mutex_);
    queued_.push_back({std::move(work), std::move(done)});
    if (in_drain_) return NeedDrain();
  }
  WakeHelper();
}

// The poller may go to sleep before its next Drain(). Requires mutex_.
void ThreadCommands::NeedDrain() {
  if (!has_finished_.exchange(true, std::memory_order_relaxed)) Signal(event_fd_);
}

void ThreadCommands::WakeHelper() {
  if (!thread_.joinable()) {
    std::lock_guard lock(mutex_);
    helpless_ = false;
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error&) {
      helpless_ = true;  // the next Submit() tries again
      return NeedDrain();
    }
  }
  changed_.notify_all();
}

void ThreadCommands::RunInDrain(bool in_drain) {
  if (in_drain_ == in_drain) return;  // only this thread changes it
  {
    std::lock_guard lock(mutex_);
    in_drain_ = in_drain;
    if (queued_.empty()) return;
    if (in_drain) return NeedDrain();
  }
  WakeHelper();
}

// Runs the oldest work that has not begun, on this thread. Returns false if there is none, or if the helper is running work: the work
// runs in order, one piece at a time.
bool ThreadCommands::RunHere(bool keep_done) {
  Item item;
  {
    std::lock_guard lock(mutex_);
    if (queued_.empty() || busy_) return false;
    item = std::move(queued_.front());
    queued_.pop_front();
    busy_ = true;
  }
  [&]() noexcept { item.work(); }();  // as on the helper, an exception ends the process
  item.work = nullptr;
  {
    std::lock_guard lock(mutex_);
    busy_ = false;
    if (keep_done) finished_.push_back(std::move(item.done));
  }
  return true;
}

// Returns when all work of Submit() has ended. Runs what has not begun.
void ThreadCommands::RunAll() {
  for (;;) {
    while (RunHere(/*keep_done=*/false)) {
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !busy_; });
    if (queued_.empty()) return;
  }
}

void ThreadCommands::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || (!queued_.empty() && !busy_ && !in_drain_); });
    if (stopping_) return;  // all work has been done
    Item item = std::move(queued_.front());
    queued_.pop_front();
    busy_ = true;
    lock.unlock();
    item.work();
    item.work = nullptr;
    lock.lock();
    busy_ = false;
    Ended(std::move(item.done));
    changed_.notify_all();
  }
}

// Requires mutex_.
void ThreadCommands::Ended(Work done) {
  finished_.push_back(std::move(done));
  has_finished_.store(true, std::memory_order_release);
  Signal(event_fd_);
}

void ThreadCommands::SubmitSlow(Work work, Work done, Slow kind) {
  std::shared_ptr<SlowLane>& slow = slow_[static_cast<size_t>(kind)];
  if (slow == nullptr) {
    slow = std::make_shared<SlowLane>();
    slow->owner = this;
    std::thread([lane = slow] { RunSlow(lane); }).detach();
  }
  {
    std::lock_guard lock(slow->mutex);
    slow->queued.push_back({std::move(work), std::move(done)});
  }
  slow->changed.notify_all();
}

void ThreadCommands::RunSlow(const std::shared_ptr<SlowLane>& lane) {
  std::unique_lock lock(lane->mutex);
  for (;;) {
    lane->changed.wait(lock, [&] { return lane->owner == nullptr || !lane->queued.empty(); });
    if (lane->owner == nullptr) return;
    Item item = std::move(lane->queued.front());
    lane->queued.pop_front();
    const uint64_t finished = lane->finished;
    lock.unlock();
    item.work();
    item.work = nullptr;
    lock.lock();
    if (lane->owner == nullptr) return;
    if (lane->finished != finished) continue;
    std::lock_guard owners(lane->owner->mutex_);
    lane->owner->Ended(std::move(item.done));
  }
}

int ThreadCommands::Drain() {
  if (!has_finished_.load(std::memory_order_acquire)) return 0;
  if (RunsHere()) RunHere(/*keep_done=*/true);
  std::vector<Work> now;  // a `done` may call Drain(), through the owner's end
  {
    std::lock_guard lock(mutex_);
    now.swap(finished_);
    Clear(event_fd_);
    // While the helper is busy, its end asks for the next Drain().
    const bool more = RunsHere() && !queued_.empty() && !busy_;
    has_finished_.store(more, std::memory_order_relaxed);
    if (more) Signal(event_fd_);
  }
  for (Work& done : now) done();
  return static_cast<int>(now.size());
}

void ThreadCommands::Finish() {
  for (const auto& slow : slow_) {
    if (slow == nullptr) continue;
    std::lock_guard lock(slow->mutex);
    slow->queued.clear();
    ++slow->finished;
  }
  RunAll();
  std::lock_guard lock(mutex_);
  in_drain_ = false;
  finished_.clear();
  has_finished_.store(false, std::memory_order_relaxed);
  Clear(event_fd_);
}

InlineCommands::InlineCommands() : event_fd_(NewEventFd()) {}

InlineCommands::~InlineCommands() { close(event_fd_); }

void InlineCommands::Submit(Work work, Work done) {
  work();
  finished_.push_back(std::move(done));
  Signal(event_fd_);
}

int InlineCommands::Drain() {
  if (finished_.empty()) return 0;
  Clear(event_fd_);
  std::vector<Work> now;
  now.swap(finished_);
  for (Work& done : now) done();
  return static_cast<int>(now.size());
}

void InlineCommands::Finish() {
  finished_.clear();
  Clear(event_fd_);
}

}  // namespace sluice::poller
