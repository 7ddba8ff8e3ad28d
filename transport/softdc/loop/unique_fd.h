// SPDX-License-Identifier: Apache-2.0
//
// UniqueFd: owns one file descriptor and closes it. Not thread-safe.
#ifndef SLUICE_TRANSPORT_SOFTDC_LOOP_UNIQUE_FD_H_
#define SLUICE_TRANSPORT_SOFTDC_LOOP_UNIQUE_FD_H_

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace sluice::softdc {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }

  // Preserves errno, so that a failing call can clean up and still report its error.
  void Reset(int fd = -1) {
    const int old = std::exchange(fd_, fd);
    if (old >= 0) {
      const int saved_errno = errno;
      close(old);
      errno = saved_errno;
    }
  }

 private:
  int fd_ = -1;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_LOOP_UNIQUE_FD_H_
