// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/signal_watch.h"

#include <pthread.h>
#include <semaphore.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "transport/base/error.h"

namespace sluice {
namespace {

constexpr int kSlots = 16;
constexpr int kSignals = 64;

// Slot of a watch. Never freed: a signal handler may use the slot when its watch ends.
struct Slot {
  Slot() { sem_init(&changed, /*pshared=*/0, 0); }

  std::atomic<uint64_t> signals{0};  // signal N is bit N - 1
  std::atomic<int> came{0};
  sem_t changed;
  bool taken = false;  // Table::mutex
};

struct Table {
  std::array<Slot, kSlots> slots;
  std::mutex mutex;
  struct Handled {
    int watches = 0;
    struct sigaction before;
  };
  std::array<Handled, kSignals + 1> handled;  // mutex; by signal number
  sigset_t mask;                              // mutex; of the thread that forks
};

// Created before the first signal handler is set.
Table& TheTable();

void OnSignal(int number) {
  const int error = errno;
  for (Slot& slot : TheTable().slots) {
    if ((slot.signals.load() >> (number - 1) & 1) == 0) continue;
    slot.came.store(number);
    sem_post(&slot.changed);
  }
  errno = error;
}

// Restores the handler that a signal had before. A handler that the program has set since then stays.
void Restore(int number, const struct sigaction& before) {
  struct sigaction present = {};
  if (sigaction(number, nullptr, &present) == 0 && present.sa_handler == &OnSignal) {
    sigaction(number, &before, nullptr);
  }
}

// Around fork(): the child gets a complete table, and no signal between its begin and the end of RestoreHandlers().
void BeforeFork() {
  Table& table = TheTable();
  table.mutex.lock();
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &table.mask);
}

void AfterFork() {
  Table& table = TheTable();
  const sigset_t mask = table.mask;
  table.mutex.unlock();
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

// In a forked child. Otherwise a signal that ends the child would only wake a thread that the child does not have.
void RestoreHandlers() {
  Table& table = TheTable();
  for (int number = 1; number <= kSignals; ++number) {
    Table::Handled& handled = table.handled[number];
    if (std::exchange(handled.watches, 0) > 0) Restore(number, handled.before);
  }
  for (Slot& slot : table.slots) {
    slot.signals.store(0);
    slot.taken = false;
  }
  AfterFork();
}

Table& TheTable() {
  static Table* const table = [] {
    if (pthread_atfork(&BeforeFork, &AfterFork, &RestoreHandlers) != 0) abort();  // out of memory
    return new Table;
  }();
  return *table;
}

absl::Status NoWatch(absl::StatusCode code, const std::string& cause, const char* remedy) {
  return base::Error(
      code, "signals not watched",
      {.layer = "api", .operation = "wait", .cause = cause, .remedy = remedy, .retry_safe = true});
}

}  // namespace

absl::StatusOr<std::unique_ptr<SignalWatch>> SignalWatch::Create(const std::vector<int>& signals) {
  Table& table = TheTable();
  std::unique_lock lock(table.mutex);
  int free = 0;
  while (free < kSlots && table.slots[free].taken) ++free;
  if (free == kSlots) {
    return NoWatch(
        absl::StatusCode::kResourceExhausted,
        absl::StrCat(kSlots, " threads of this process wait for signals, which is the limit"),
        "wait on fewer threads, or without signals on another way to end");
  }
  Slot& slot = table.slots[free];
  slot.taken = true;
  while (sem_trywait(&slot.changed) == 0) {
  }
  slot.came.store(0);
  std::unique_ptr<SignalWatch> watch(new SignalWatch(free));
  sigset_t let_through;
  sigemptyset(&let_through);
  for (const int number : signals) {
    Table::Handled* const handled =
        number >= 1 && number <= kSignals ? &table.handled[number] : nullptr;
    struct sigaction action = {};
    action.sa_handler = &OnSignal;
    action.sa_flags = SA_RESTART;
    sigfillset(&action.sa_mask);
    const bool set = handled != nullptr &&
                     (handled->watches > 0 || sigaction(number, &action, &handled->before) == 0);
    if (!set) {
      lock.unlock();  // ~SignalWatch() locks it
      return NoWatch(
          absl::StatusCode::kInvalidArgument, absl::StrCat("signal ", number, " can't be handled"),
          "give signals such as SIGINT and SIGTERM; SIGKILL and SIGSTOP can't be handled");
    }
    ++handled->watches;
    watch->signals_.push_back(number);
    slot.signals.fetch_or(uint64_t{1} << (number - 1));
    sigaddset(&let_through, number);
  }
  pthread_sigmask(SIG_UNBLOCK, &let_through, nullptr);
  return watch;
}

SignalWatch::SignalWatch(int slot) : slot_(slot) {
  pthread_sigmask(SIG_SETMASK, nullptr, &mask_before_);
}

SignalWatch::~SignalWatch() {
  if (creator_.InForkedChild()) return;
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  Table& table = TheTable();
  std::lock_guard lock(table.mutex);
  table.slots[slot_].signals.store(0);
  for (const int number : signals_) {
    Table::Handled& handled = table.handled[number];
    if (--handled.watches == 0) Restore(number, handled.before);
  }
  table.slots[slot_].taken = false;
}

int SignalWatch::Wait() {
  Slot& slot = TheTable().slots[slot_];
  while (sem_wait(&slot.changed) != 0) {
  }
  return slot.came.load();
}

void SignalWatch::Wake() { sem_post(&TheTable().slots[slot_].changed); }

}  // namespace sluice
