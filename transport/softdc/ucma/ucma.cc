// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/ucma/ucma.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "transport/softdc/cm/process_engine.h"
#include "transport/softdc/ucma/commands.h"

namespace sluice::softdc::ucma {
namespace {

using cm::Channel;

class Descriptors {
 public:
  static Descriptors& Get() {
    static Descriptors* const descriptors = new Descriptors();  // outlives static destructors
    return *descriptors;
  }

  bool Has(int fd) {
    if (fd < 0) return false;
    if (static_cast<size_t>(fd) < kMarked) {
      return (Word(fd).load(std::memory_order_acquire) & Bit(fd)) != 0;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    return channels_.count(fd) != 0;
  }

  void Add(int fd, std::shared_ptr<Channel> channel) {
    std::lock_guard<std::mutex> lock(mutex_);
    channels_[fd] = std::move(channel);
    if (static_cast<size_t>(fd) < kMarked) Word(fd).fetch_or(Bit(fd), std::memory_order_release);
  }

  // Returns 0 or an errno. EBADF: not a descriptor of this interface. ENODEV: opened before a fork.
  int Find(int fd, std::shared_ptr<Channel>* channel) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = channels_.find(fd);
    if (found == channels_.end()) return EBADF;
    *channel = found->second;
    return *channel != nullptr ? 0 : ENODEV;
  }

  // Removes a descriptor. Returns false if there is none. `channel` is empty if the descriptor was opened
  // before a fork.
  bool Remove(int fd, std::shared_ptr<Channel>* channel) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = channels_.find(fd);
    if (found == channels_.end()) return false;
    *channel = std::move(found->second);
    channels_.erase(found);
    if (static_cast<size_t>(fd) < kMarked) {
      Word(fd).fetch_and(~Bit(fd), std::memory_order_release);
    }
    return true;
  }

 private:
  static constexpr size_t kMarked = 1 << 16;

  Descriptors() { pthread_atfork(&BeforeFork, &AfterForkInParent, &AfterForkInChild); }

  static void BeforeFork() { Get().mutex_.lock(); }
  static void AfterForkInParent() { Get().mutex_.unlock(); }
  static void AfterForkInChild() {
    // The objects belong to the parent's engine, so they are leaked. The descriptors stay open until the
    // child closes them.
    for (auto& [fd, channel] : Get().channels_) {
      new std::shared_ptr<Channel>(std::move(channel));
      channel = nullptr;
    }
    Get().mutex_.unlock();
  }

  std::atomic<uint64_t>& Word(int fd) { return marks_[static_cast<size_t>(fd) / 64]; }
  static uint64_t Bit(int fd) { return uint64_t{1} << (fd % 64); }

  std::mutex mutex_;
  std::unordered_map<int, std::shared_ptr<Channel>> channels_;
  std::array<std::atomic<uint64_t>, kMarked / 64> marks_{};
};

// Disables cancellation: a thread that is cancelled inside a command would leave locks held.
class NotCancellable {
 public:
  NotCancellable() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NotCancellable() { pthread_setcancelstate(before_, nullptr); }

 private:
  int before_ = 0;
};

int Run(Channel* channel, const void* command, size_t length) {
  const NotCancellable here;
  return Execute(channel, reinterpret_cast<uintptr_t>(command), length, [](int fd) {
    std::shared_ptr<Channel> found;
    Descriptors::Get().Find(fd, &found);
    return found;
  });
}

}  // namespace

int Open() {
  const NotCancellable here;
  std::shared_ptr<Channel> channel;
  if (const int error = cm::ProcessEngine()->OpenChannel(&channel); error != 0) {
    errno = error;
    return -1;
  }
  const int fd = channel->fd();
  Descriptors::Get().Add(fd, std::move(channel));
  return fd;
}

bool Owns(int fd) { return Descriptors::Get().Has(fd); }

ssize_t Write(int fd, const void* command, size_t length) {
  std::shared_ptr<Channel> channel;
  int error = Descriptors::Get().Find(fd, &channel);
  if (error == 0) error = Run(channel.get(), command, length);
  while (error == EAGAIN) {  // only GET_EVENT returns it
    error = channel->Await();
    if (error != 0) break;
    error = Run(channel.get(), command, length);
  }
  if (error == 0) return static_cast<ssize_t>(length);
  errno = error;
  return -1;
}

int Close(int fd) {
  const NotCancellable here;
  std::shared_ptr<Channel> channel;
  if (!Descriptors::Get().Remove(fd, &channel)) {
    errno = EBADF;
    return -1;
  }
  if (channel == nullptr) return close(fd);
  channel->engine()->CloseChannel(channel.get());
  return 0;  // a thread that waits for an event keeps the descriptor open until then
}

}  // namespace sluice::softdc::ucma
