// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "middleware/api/end_refused.h"

namespace sluice {

ThreadPool::ThreadPool(unsigned threads) {
  if (threads == 0) threads = std::max(std::thread::hardware_concurrency(), 1u);
  threads = std::min(threads, kMaxThreads);
  threads_.reserve(threads);
  while (threads_.size() < threads) {
    try {
      threads_.emplace_back([this] { Work(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;
      break;
    }
    pthread_setname_np(threads_.back().native_handle(), "sluice-pool");
  }
}

ThreadPool::~ThreadPool() {
  for (const std::thread& thread : threads_) {
    if (thread.get_id() != std::this_thread::get_id()) continue;
    internal::EndRefused("ThreadPool", "work of its own",
                         "destroy it on a thread that is not the pool's");
  }
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  given_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Run(absl::AnyInvocable<void() &&> work) {
  std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  given_.notify_one();  // with the lock: the work may cause the end of the pool
}

size_t ThreadPool::waiting() const {
  std::lock_guard lock(mutex_);
  return queue_.size();
}

void ThreadPool::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    given_.wait(lock, [this] { return !queue_.empty() || ending_; });
    if (queue_.empty()) return;
    {
      absl::AnyInvocable<void()&&> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      // Destroy the work before the lock is taken again: its destructor may call Run().
      [&]() noexcept { std::move(work)(); }();
    }
    lock.lock();
  }
}

}  // namespace sluice
