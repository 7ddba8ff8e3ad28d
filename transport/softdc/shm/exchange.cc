// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/exchange.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "transport/softdc/loop/loop.h"
#include "transport/softdc/loop/unique_fd.h"
#include "transport/softdc/shm/bounce.h"

namespace sluice::softdc::shm {
namespace {

constexpr int kCallerAndFirmware = 2;

// Calls the kernel directly, not the functions of libc: programs install hooks there to watch their address
// space. The hook of UCX forwards only four of the five arguments of mremap, so the new address is lost. A
// hook may also call malloc while the range is protected.
void* RawMmap(uint64_t length_bytes, int flags, int fd, uint64_t file_offset) {
  return reinterpret_cast<void*>(syscall(SYS_mmap, nullptr, length_bytes, PROT_READ | PROT_WRITE,
                                         flags, fd, static_cast<off_t>(file_offset)));
}
int RawMunmap(void* address, uint64_t length_bytes) {
  return static_cast<int>(syscall(SYS_munmap, address, length_bytes));
}
int RawMadvise(void* address, uint64_t length_bytes, int advice) {
  return static_cast<int>(syscall(SYS_madvise, address, length_bytes, advice));
}
void* RawMremap(void* from, uint64_t length_bytes, void* to) {
  return reinterpret_cast<void*>(
      syscall(SYS_mremap, from, length_bytes, length_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to));
}

bool HasOtherThreads() {
  std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir("/proc/self/task"), &closedir);
  if (tasks == nullptr) return true;
  int threads = 0;
  while (const dirent* entry = readdir(tasks.get())) threads += entry->d_name[0] != '.' ? 1 : 0;
  return threads > kCallerAndFirmware + BounceServer::threads();
}

// Blocks writes to the range until the returned descriptor is closed. Returns an empty descriptor and sets
// errno if this is not permitted.
UniqueFd StopWrites(uint64_t begin, uint64_t end, WriterPolicy policy) {
  UniqueFd fd(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
  if (!fd && policy == WriterPolicy::kUserWritesOnly) {
    fd = UniqueFd(
        static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY)));
  }
  if (!fd) return fd;
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
  uffdio_register range{};
  range.range = {.start = begin, .len = end - begin};
  range.mode = UFFDIO_REGISTER_MODE_WP;
  uffdio_writeprotect protect{};
  protect.range = range.range;
  protect.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  // A page that was never touched has no entry that can be protected yet, so it is populated first.
  if (ioctl(fd.get(), UFFDIO_API, &api) != 0 || ioctl(fd.get(), UFFDIO_REGISTER, &range) != 0 ||
      RawMadvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ) != 0 ||
      ioctl(fd.get(), UFFDIO_WRITEPROTECT, &protect) != 0) {
    const int error = errno;
    fd.Reset();
    errno = error;
  }
  return fd;
}

int MapScratch(uint64_t length_bytes, const NewPages& pages, void** scratch) {
  const int flags = pages.fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  *scratch = RawMmap(length_bytes, flags, pages.fd, pages.file_offset);
  return *scratch == MAP_FAILED ? errno : 0;
}

// Allocates the pages first, when no thread waits yet. A lack of memory then gives an errno here, and not
// SIGBUS in the copy. Must not call malloc while the range is protected: a thread that waits for the range
// may hold the lock of malloc.
int Exchange(uint64_t begin, uint64_t end, const NewPages& pages,
             std::optional<WriterPolicy> others) {
  const uint64_t length_bytes = end - begin;
  auto* const place = reinterpret_cast<void*>(begin);
  void* scratch = nullptr;
  if (const int error = MapScratch(length_bytes, pages, &scratch); error != 0) return error;
  int error = RawMadvise(scratch, length_bytes, MADV_POPULATE_WRITE) != 0 ? errno : 0;
  UniqueFd stopped;
  if (error == 0 && others) {
    stopped = StopWrites(begin, end, *others);
    if (!stopped) error = errno;
  }
  if (error == 0) {
    std::memcpy(scratch, place, length_bytes);
    if (RawMremap(scratch, length_bytes, place) == MAP_FAILED) error = errno;
  }
  if (error != 0) RawMunmap(scratch, length_bytes);
  return error;
}

}  // namespace

int ExchangePages(uint64_t begin, uint64_t end, const NewPages& pages, WriterPolicy policy) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  Loop::Get().RunAndWait([&] {
    error = Exchange(begin, end, pages, HasOtherThreads() ? std::optional(policy) : std::nullopt);
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

int ExchangePagesAfterFork(uint64_t begin, uint64_t end, const NewPages& pages) {
  return Exchange(begin, end, pages, /*others=*/std::nullopt);
}

}  // namespace sluice::softdc::shm
