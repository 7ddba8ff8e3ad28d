// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "middleware/api/end_refused.h"
#include "middleware/api/fork_count.h"

namespace sluice {

struct ThreadPool::State {
  void Work();

  std::mutex mutex;
  std::condition_variable given;
  std::deque<absl::AnyInvocable<void() &&>> queue;  // mutex
  bool ending = false;                              // mutex
  std::vector<std::thread> threads;
  internal::Creator creator;
};

ThreadPool::ThreadPool(unsigned threads) : state_(std::make_unique<State>()) {
  if (threads == 0) threads = std::max(std::thread::hardware_concurrency(), 1u);
  threads = std::min(threads, kMaxThreads);
  std::vector<std::thread>& made = state_->threads;
  made.reserve(threads);
  while (made.size() < threads) {
    try {
      made.emplace_back([state = state_.get()] { state->Work(); });
    } catch (const std::system_error&) {
      if (made.empty()) throw;
      break;
    }
    pthread_setname_np(made.back().native_handle(), "sluice-pool");
  }
}

ThreadPool::~ThreadPool() {
  if (state_->creator.InForkedChild()) {
    (void)
        state_.release();  // its lock and condition may be in use by threads that the child has not
    return;
  }
  for (const std::thread& thread : state_->threads) {
    if (thread.get_id() != std::this_thread::get_id()) continue;
    internal::EndRefused("ThreadPool", "work of its own",
                         "destroy it on a thread that is not the pool's");
  }
  {
    std::lock_guard lock(state_->mutex);
    state_->ending = true;
  }
  state_->given.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

void ThreadPool::Run(absl::AnyInvocable<void() &&> work) {
  if (state_->creator.InForkedChild()) return;
  std::lock_guard lock(state_->mutex);
  state_->queue.push_back(std::move(work));
  state_->given.notify_one();  // with the lock: the work may cause the end of the pool
}

size_t ThreadPool::threads() const {
  return state_->creator.InForkedChild() ? 0 : state_->threads.size();
}

size_t ThreadPool::waiting() const {
  if (state_->creator.InForkedChild()) return 0;
  std::lock_guard lock(state_->mutex);
  return state_->queue.size();
}

void ThreadPool::State::Work() {
  std::unique_lock lock(mutex);
  for (;;) {
    given.wait(lock, [this] { return !queue.empty() || ending; });
    if (queue.empty()) return;
    {
      absl::AnyInvocable<void()&&> work = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      // Destroy the work before the lock is taken again: its destructor may call Run().
      [&]() noexcept { std::move(work)(); }();
    }
    lock.lock();
  }
}

}  // namespace sluice
