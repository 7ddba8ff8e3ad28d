// SPDX-License-Identifier: Apache-2.0
#include "transport/poller/commands.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
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

ThreadCommands::ThreadCommands() : event_fd_(NewEventFd()), thread_([this] { Run(); }) {}

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
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  close(event_fd_);
}

void ThreadCommands::Submit(Work work, Work done) {
  {
    std::lock_guard lock(mutex_);
    queued_.push_back({std::move(work), std::move(done)});
  }
  changed_.notify_all();
}

void ThreadCommands::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !queued_.empty(); });
    if (queued_.empty()) return;  // stopping, and all work has been done
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
  {
    std::lock_guard lock(mutex_);
    draining_.swap(finished_);
    has_finished_.store(false, std::memory_order_relaxed);
    Clear(event_fd_);
  }
  const int count = static_cast<int>(draining_.size());
  for (Work& done : draining_) done();
  draining_.clear();
  return count;
}

void ThreadCommands::Finish() {
  for (const auto& slow : slow_) {
    if (slow == nullptr) continue;
    std::lock_guard lock(slow->mutex);
    slow->queued.clear();
    ++slow->finished;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queued_.empty() && !busy_; });
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
