// SPDX-License-Identifier: Apache-2.0
#include "transport/base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace sluice::base {

uint64_t SystemRandom::Next64() {
  if (left_ == 0) {
    // Once the pool is seeded, the kernel returns up to 256 bytes in full. A signal can interrupt only the wait for the seed.
    ssize_t got;
    do {
      got = getrandom(block_.data(), sizeof(block_), 0);
    } while (got < 0 && errno == EINTR);
    if (got != static_cast<ssize_t>(sizeof(block_))) {
      std::perror("getrandom");
      std::abort();  // without these bytes, keys would be predictable
    }
    left_ = block_.size();
  }
  return block_[--left_];
}

uint64_t SeededRandom::Next64() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace sluice::base
