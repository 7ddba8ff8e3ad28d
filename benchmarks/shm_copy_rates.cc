// SPDX-License-Identifier: Apache-2.0
//
// shm_copy_rates: what copies of 1 MiB from private memory to another process can reach here, by
// memcpy into shared memory, by process_vm_writev into private memory, and by softdc's two copies:
// what ib_write_bw on softdc is to be measured against.
//
// Usage   shm_copy_rates
// Method  The same source and destination each time, as ib_write_bw has them. Twenty interleaved
//         repetitions of forty copies each; the line printed is the median of the repetitions, in
//         MiB/s as perftest has it. Not read by the other side.
#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "transport/softdc/shm/copy.h"

namespace {

using sluice::softdc::shm::CopyInOrder;
using sluice::softdc::shm::CopyRelaxed;

constexpr size_t kBytes = size_t{1} << 20;
constexpr int kCopies = 40, kRepetitions = 20;

std::byte* Map(int flags) {
  void* base = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    std::perror("shm_copy_rates: mmap");
    std::exit(1);
  }
  std::memset(base, 1, kBytes);
  return static_cast<std::byte*>(base);
}

struct Way {
  const char* name;
  std::function<void()> copy;
  std::vector<double> seconds = {};
};

}  // namespace

int main() {
  std::byte* const from = Map(MAP_PRIVATE);
  std::byte* const shared = Map(MAP_SHARED);
  std::byte* const there = Map(MAP_PRIVATE);
  int ready[2];
  if (pipe(ready) != 0) return 1;
  const pid_t peer = fork();
  if (peer == 0) {
    std::memset(there, 2, kBytes);  // its own pages from now on
    if (write(ready[1], "x", 1) != 1) return 1;
    for (;;) pause();
  }
  char byte;
  if (peer < 0 || read(ready[0], &byte, 1) != 1) return 1;
  bool allowed = true;
  Way ways[] = {
      {"memcpy into shared memory",
       [&] {
         std::memcpy(shared, from, kBytes);
         asm volatile("" : : "r"(shared) : "memory");
       }},
      {"CopyInOrder", [&] { CopyInOrder(shared, from, kBytes); }},
      {"CopyRelaxed", [&] { CopyRelaxed(shared, from, kBytes); }},
      {"process_vm_writev",
       [&] {
         const iovec local{.iov_base = from, .iov_len = kBytes};
         const iovec remote{.iov_base = there, .iov_len = kBytes};
         allowed &=
             process_vm_writev(peer, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(kBytes);
       }},
  };
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    for (Way& way : ways) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kCopies; ++i) way.copy();
      way.seconds.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
  }
  kill(peer, SIGKILL);
  waitpid(peer, nullptr, 0);
  if (!allowed) std::puts("process_vm_writev is not allowed here");
  for (Way& way : ways) {
    std::sort(way.seconds.begin(), way.seconds.end());
    std::printf("%-28s %8.0f MiB/s\n", way.name, kCopies / way.seconds[kRepetitions / 2]);
  }
  return 0;
}
