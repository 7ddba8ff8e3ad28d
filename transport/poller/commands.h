// SPDX-License-Identifier: Apache-2.0
//
// Commands: runs calls that may block in kernel, firmware or a name server, so that a poller never blocks.
//
// Purpose       A queue of work, run in order, one piece at a time. Work that may wait for another host has queues of its own, one
//               for each kind. When a piece of work has ended, its `done` waits until the polling thread calls Drain().
// Ownership     The creator. One Commands serves one poller, and outlives it.
// Threads       Submit(), SubmitSlow(), RunInDrain(), Drain(), Finish(): the polling thread. The implementation selects the thread that runs
//               the work. The work uses only data that no other thread uses until `done`.
// Limits        None. Callers limit the work: each peer has at most a few pieces of work in progress.
#ifndef SLUICE_TRANSPORT_POLLER_COMMANDS_H_
#define SLUICE_TRANSPORT_POLLER_COMMANDS_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace sluice::poller {

// Kind of slow work. Each kind has its own queue, so that a name server that hangs does not delay the reading of files.
enum class Slow : uint8_t { kNames, kSecrets };

class Commands {
 public:
  using Work = absl::AnyInvocable<void()>;

  virtual ~Commands() = default;
  virtual void Submit(Work work, Work done) = 0;
  // Like Submit(), for work that may wait for another host, such as a name server. Does not delay work of
  // Submit(). Finish() does not wait for it, so the work may only use data that it owns.
  virtual void SubmitSlow(Work work, Work done, Slow /*kind*/ = Slow::kNames) {
    Submit(std::move(work), std::move(done));
  }
  // True: from now on, Drain() runs the work of Submit() itself, one piece for each call, so it may block. Use while nobody needs the
  // poller: two switches between threads cost more than most work. False (the initial state, also after Finish()): Drain() does not
  // block. Work that is under way ends where it is. No effect if the implementation has no helper.
  virtual void RunInDrain(bool /*in_drain*/) {}
  // Runs `done` of all work that has ended, and returns its number. Cheap if there is none.
  virtual int Drain() = 0;
  // Waits until all work has ended, except slow work. Slow work that has not begun is dropped. Slow work
  // in progress continues. No `done` of earlier work runs after it.
  virtual void Finish() = 0;
  // Returns a descriptor that is readable when Drain() has work; -1 if the implementation has none.
  virtual int fd() const = 0;
};

// Production: one helper thread that sleeps when there is no work, and one more thread for each kind of slow work. Each is started with
// the first work for it. If the system has no thread for the helper, Drain() runs the work until it has. The destructor does not wait for
// slow work: these threads end after their present work.
class ThreadCommands final : public Commands {
 public:
  ThreadCommands();
  ~ThreadCommands() override;
  void Submit(Work work, Work done) override;
  void SubmitSlow(Work work, Work done, Slow kind = Slow::kNames) override;
  void RunInDrain(bool in_drain) override;
  int Drain() override;
  void Finish() override;
  int fd() const override { return event_fd_; }

 private:
  struct SlowLane;
  struct Item {
    Work work;
    Work done;
  };

  void Run();
  void WakeHelper();
  bool RunsHere() const { return in_drain_ || helpless_; }
  void NeedDrain();
  bool RunHere(bool keep_done);
  void RunAll();
  static void RunSlow(const std::shared_ptr<SlowLane>& lane);
  void Ended(Work done);

  const int event_fd_;
  std::atomic<bool> has_finished_{false};  // Drain() has something to do
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queued_;                        // mutex_
  std::vector<Work> finished_;                     // mutex_
  bool busy_ = false;                              // mutex_: work is running
  bool in_drain_ = false;                          // mutex_
  bool helpless_ = false;                          // mutex_: no thread could be made for the helper
  bool stopping_ = false;                          // mutex_
  std::array<std::shared_ptr<SlowLane>, 2> slow_;  // by kind
  std::thread thread_;  // started by WakeHelper(). Last: it uses everything above
};

// Tests and single-threaded tools: the work runs inside Submit(), `done` at the next Drain().
class InlineCommands final : public Commands {
 public:
  InlineCommands();
  ~InlineCommands() override;
  void Submit(Work work, Work done) override;
  int Drain() override;
  void Finish() override;
  int fd() const override { return event_fd_; }

 private:
  const int event_fd_;
  std::vector<Work> finished_;
};

}  // namespace sluice::poller

#endif  // SLUICE_TRANSPORT_POLLER_COMMANDS_H_
