// SPDX-License-Identifier: Apache-2.0
//
// Executors of tests: work that runs at once, on a thread of its own, or when the test says so.
#ifndef SLUICE_TESTS_SUPPORT_EXECUTORS_H_
#define SLUICE_TESTS_SUPPORT_EXECUTORS_H_

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "middleware/api/executor.h"

namespace sluice::testing_support {

// Runs the work on the thread that gives it.
class InlineExecutor final : public Executor {
 public:
  void Run(absl::AnyInvocable<void() &&> work) override { std::move(work)(); }
};

// Starts a thread for each piece of work. One thread calls Run(); the destructor joins all.
class ThreadExecutor final : public Executor {
 public:
  ~ThreadExecutor() override {
    for (std::thread& thread : threads_) thread.join();
  }
  void Run(absl::AnyInvocable<void() &&> work) override {
    threads_.emplace_back([work = std::move(work)]() mutable { std::move(work)(); });
  }

 private:
  std::vector<std::thread> threads_;
};

// Keeps the work until the test runs it.
class ManualExecutor final : public Executor {
 public:
  void Run(absl::AnyInvocable<void() &&> work) override {
    std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
  }
  void WaitUntilAsked() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !work_.empty(); });
  }
  // The oldest piece, on this thread; waits until there is one.
  void RunOne() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !work_.empty(); });
    auto work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    std::move(work)();
  }
  void RunAll() {
    while (waiting() != 0) RunOne();
  }
  size_t waiting() {
    std::lock_guard lock(mutex_);
    return work_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<absl::AnyInvocable<void() &&>> work_;
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_SUPPORT_EXECUTORS_H_
