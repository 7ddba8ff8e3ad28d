// SPDX-License-Identifier: Apache-2.0
//
// Hold: blocks a handler until the test releases it. Safe from any thread.
#ifndef SLUICE_TESTS_SUPPORT_HOLD_H_
#define SLUICE_TESTS_SUPPORT_HOLD_H_

#include <condition_variable>
#include <mutex>

namespace sluice::testing_support {

class Hold {
 public:
  // Blocks until Release(), and returns at once after it.
  void Wait() {
    std::unique_lock lock(mutex_);
    holding_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return released_; });
  }
  // Blocks until a thread has been in Wait().
  void WaitUntilHolding() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return holding_; });
  }
  void Release() {
    std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool holding_ = false;
  bool released_ = false;
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_SUPPORT_HOLD_H_
