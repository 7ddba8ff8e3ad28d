// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/loop/loop.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace sluice::softdc {
namespace {

constexpr uint64_t kWakeId = 1;
constexpr uint64_t kTimerId = 2;
constexpr int kEventsPerWait = 64;
constexpr int64_t kNsPerSecond = 1'000'000'000;

std::atomic<Loop*> g_loop{nullptr};
std::mutex g_start_mutex;

// Without descriptors and a thread at start-up, nothing can run, and no caller can get an error.
[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

}  // namespace

Loop& Loop::Get() {
  Loop* loop = g_loop.load(std::memory_order_acquire);
  if (loop != nullptr) return *loop;
  std::lock_guard<std::mutex> lock(g_start_mutex);
  loop = g_loop.load(std::memory_order_relaxed);
  if (loop == nullptr) {
    static const int registered = pthread_atfork(&AtForkPrepare, &AtForkParent, &AtForkChild);
    if (registered != 0) Die("softdc: pthread_atfork");
    loop = new Loop();
    loop->Start();
    g_loop.store(loop, std::memory_order_release);
  }
  return *loop;
}

int64_t Loop::NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kNsPerSecond + now.tv_nsec;
}

Loop::Loop()
    : epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      timer_fd_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!epoll_fd_ || !wake_fd_ || !timer_fd_) Die("softdc: loop descriptors");
  epoll_event wake{.events = EPOLLIN, .data = {.u64 = kWakeId}};
  epoll_event timer{.events = EPOLLIN, .data = {.u64 = kTimerId}};
  if (epoll_ctl(epoll_fd_.get(), EPOLL_CTL_ADD, wake_fd_.get(), &wake) != 0 ||
      epoll_ctl(epoll_fd_.get(), EPOLL_CTL_ADD, timer_fd_.get(), &timer) != 0) {
    Die("softdc: loop epoll_ctl");
  }
}

void Loop::Start() {
  // The program's signal handlers must not run on a thread that the program does not know.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  std::thread thread([this] { ThreadMain(); });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  pthread_setname_np(thread.native_handle(), "softdc-loop");
  thread_id_ = thread.get_id();
  thread.detach();
}

// Holds the locks across fork, so that the child gets consistent tables.
void Loop::AtForkPrepare() {
  g_start_mutex.lock();
  if (Loop* loop = g_loop.load(std::memory_order_relaxed)) loop->mutex_.lock();
}

void Loop::AtForkParent() {
  if (Loop* loop = g_loop.load(std::memory_order_relaxed)) loop->mutex_.unlock();
  g_start_mutex.unlock();
}

void Loop::AtForkChild() {
  if (Loop* loop = g_loop.load(std::memory_order_relaxed)) {
    // dup3 instead of close: the numbers stay in use, so an owner that closes its copy later closes no other
    // file.
    const int inert = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (inert >= 0) {
      for (const auto& [fd, id] : loop->watch_id_by_fd_) dup3(inert, fd, O_CLOEXEC);
      close(inert);
    }
    close(loop->epoll_fd_.get());
    close(loop->wake_fd_.get());
    close(loop->timer_fd_.get());
    loop->mutex_.unlock();
    g_loop.store(nullptr, std::memory_order_relaxed);  // the loop's thread is not in the child
  }
  g_start_mutex.unlock();
}

bool Loop::OnLoop() const { return std::this_thread::get_id() == thread_id_; }

uint64_t Loop::wakeups() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return wakeups_;
}

void Loop::Wake() {
  const uint64_t one = 1;
  // Fails only if the counter is full. The descriptor is readable then anyway.
  [[maybe_unused]] const ssize_t written = write(wake_fd_.get(), &one, sizeof(one));
}

int Loop::Watch(int fd, uint32_t epoll_events, FdCallback callback) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (watch_id_by_fd_.count(fd) != 0) return EEXIST;
  const uint64_t id = next_id_++;
  epoll_event event{.events = epoll_events, .data = {.u64 = id}};
  if (epoll_ctl(epoll_fd_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return errno;
  watch_id_by_fd_[fd] = id;
  watchers_[id] = std::make_shared<Watcher>(Watcher{fd, std::move(callback)});
  return 0;
}

int Loop::Rewatch(int fd, uint32_t epoll_events) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = watch_id_by_fd_.find(fd);
  if (found == watch_id_by_fd_.end()) return ENOENT;
  epoll_event event{.events = epoll_events, .data = {.u64 = found->second}};
  return epoll_ctl(epoll_fd_.get(), EPOLL_CTL_MOD, fd, &event) == 0 ? 0 : errno;
}

std::shared_ptr<Loop::Watcher> Loop::Remove(int fd, uint64_t* watch_id) {
  const auto found = watch_id_by_fd_.find(fd);
  if (found == watch_id_by_fd_.end()) return nullptr;
  *watch_id = found->second;
  epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, fd, nullptr);
  watch_id_by_fd_.erase(found);
  return std::move(watchers_.extract(*watch_id).mapped());
}

void Loop::Unwatch(int fd) {
  // Declared before the lock: its captures are destroyed after unlocking.
  std::shared_ptr<Watcher> watcher;
  uint64_t id = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  watcher = Remove(fd, &id);
  if (watcher == nullptr || OnLoop()) return;
  callback_done_.wait(lock, [&] { return running_watch_id_ != id; });
}

void Loop::Forget(int fd) {
  std::shared_ptr<Watcher> watcher;
  uint64_t id = 0;
  std::lock_guard<std::mutex> lock(mutex_);
  watcher = Remove(fd, &id);
}

uint64_t Loop::After(int64_t delay_ns, Task callback) {
  const int64_t deadline_ns = NowNs() + (delay_ns > 0 ? delay_ns : 0);
  std::lock_guard<std::mutex> lock(mutex_);
  if (timers_.size() >= kMaxTimers) return 0;
  const uint64_t id = next_id_++;
  const bool earliest = timers_.empty() || deadline_ns < timers_.begin()->first.first;
  timers_.emplace(std::make_pair(deadline_ns, id), std::move(callback));
  timer_deadline_by_id_[id] = deadline_ns;
  if (earliest && !OnLoop()) Wake();
  return id;
}

bool Loop::Cancel(uint64_t timer_id) {
  Task dropped;  // its captures are destroyed outside the lock
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = timer_deadline_by_id_.find(timer_id);
  if (found == timer_deadline_by_id_.end()) return false;
  auto node = timers_.extract({found->second, timer_id});
  dropped = std::move(node.mapped());
  timer_deadline_by_id_.erase(found);
  return true;
}

bool Loop::Run(Task task) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (tasks_.size() >= kMaxTasks) return false;
  tasks_.push_back(std::move(task));
  if (!wake_pending_) {
    wake_pending_ = true;
    Wake();
  }
  return true;
}

void Loop::RunAndWait(const Task& task) {
  if (OnLoop()) return task();
  // Shared, so that the loop can notify without the lock. With the lock, the caller would wake up and wait
  // for it.
  struct End {
    std::mutex mutex;
    std::condition_variable condition;
    bool come = false;
  };
  const auto end = std::make_shared<End>();
  const auto run = [&task, end] {
    task();
    {
      std::lock_guard<std::mutex> lock(end->mutex);
      end->come = true;
    }
    end->condition.notify_one();
  };
  // If the queue is full, waits for room: the caller blocks anyway.
  while (!Run(run)) std::this_thread::yield();
  std::unique_lock<std::mutex> lock(end->mutex);
  end->condition.wait(lock, [&] { return end->come; });
}

void Loop::ArmTimerFd(int64_t deadline_ns) {
  if (deadline_ns == armed_deadline_ns_) return;
  armed_deadline_ns_ = deadline_ns;
  itimerspec spec{};
  spec.it_value.tv_sec = deadline_ns / kNsPerSecond;
  spec.it_value.tv_nsec = deadline_ns % kNsPerSecond;
  timerfd_settime(timer_fd_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

void Loop::RunDueTimers() {
  const int64_t now_ns = NowNs();
  for (;;) {
    Task task;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (timers_.empty() || timers_.begin()->first.first > now_ns) return;
      auto node = timers_.extract(timers_.begin());
      timer_deadline_by_id_.erase(node.key().second);
      task = std::move(node.mapped());
    }
    task();
  }
}

void Loop::RunTasks() {
  std::deque<Task> tasks;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    wake_pending_ = false;
    tasks.swap(tasks_);
  }
  for (Task& task : tasks) task();
}

void Loop::Dispatch(uint64_t watch_id, uint32_t epoll_events) {
  std::shared_ptr<Watcher> watcher;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = watchers_.find(watch_id);
    if (found == watchers_.end()) return;  // unwatched after epoll_wait returned
    watcher = found->second;
    running_watch_id_ = watch_id;
  }
  watcher->callback(epoll_events);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    running_watch_id_ = 0;
  }
  callback_done_.notify_all();
}

void Loop::ThreadMain() {
  {
    // Waits until Start() has set thread_id_, which may happen after this thread has started.
    std::lock_guard<std::mutex> started(g_start_mutex);
  }
  epoll_event events[kEventsPerWait];
  for (;;) {
    int64_t next_ns = 0;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!timers_.empty()) next_ns = timers_.begin()->first.first;
    }
    ArmTimerFd(next_ns);
    const int count = epoll_wait(epoll_fd_.get(), events, kEventsPerWait, -1);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++wakeups_;
    }
    for (int i = 0; i < count; ++i) {
      uint64_t ignored;
      if (events[i].data.u64 == kWakeId) {
        [[maybe_unused]] const ssize_t n = read(wake_fd_.get(), &ignored, sizeof(ignored));
      } else if (events[i].data.u64 == kTimerId) {
        [[maybe_unused]] const ssize_t n = read(timer_fd_.get(), &ignored, sizeof(ignored));
        armed_deadline_ns_ = 0;
      } else {
        Dispatch(events[i].data.u64, events[i].events);
      }
    }
    RunTasks();
    RunDueTimers();
  }
}

}  // namespace sluice::softdc
