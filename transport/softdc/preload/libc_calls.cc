// SPDX-License-Identifier: Apache-2.0
//
// The calls with which librdmacm talks to the kernel: /dev/infiniband/rdma_cm is opened, said to be a character
// device, written to (a command at a time, events are asked for with one too) and closed. These go to the RDMA_CM
// engine in the device library; every other path and descriptor goes on to libc, for the price of two comparisons.
// Waiting needs nothing: the descriptor handed out is a real one that polls. Attributes of the device are opened as well
// (path_calls.cc).
//
// After fork() the marks of the parent's descriptors are inherited as the descriptors are.
#undef _FORTIFY_SOURCE  // its inline versions of these functions would be definitions of them
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstring>

#include "transport/softdc/preload/load.h"
#include "transport/softdc/preload/next_call.h"

namespace {

constexpr char kCmDevice[] = "/dev/infiniband/rdma_cm";
constexpr int kMaxMarked = 1 << 16;

// A bit for each descriptor that is the engine's.
uint64_t marks[kMaxMarked / 64];

bool Marked(int fd) {
  if (fd < 0 || fd >= kMaxMarked) return false;
  return (__atomic_load_n(&marks[fd / 64], __ATOMIC_RELAXED) >> (fd % 64) & 1) != 0;
}

bool Mark(int fd) {
  if (fd < 0 || fd >= kMaxMarked) return false;
  __atomic_fetch_or(&marks[fd / 64], uint64_t{1} << (fd % 64), __ATOMIC_RELAXED);
  return true;
}

void Unmark(int fd) {
  __atomic_fetch_and(&marks[fd / 64], ~(uint64_t{1} << (fd % 64)), __ATOMIC_RELAXED);
}

using UcmaOpen = int();
using UcmaWrite = ssize_t(int fd, const void* bytes, size_t count);
using UcmaClose = int(int fd);

template <typename Function>
Function* Ucma(const char* name) {
  return reinterpret_cast<Function*>(softdc_preload_function(name));
}

// The descriptor, -1 with errno, or -2: not the engine's business.
int TryOpen(const char* path, int flags) {
  if (path == nullptr || std::strcmp(path, kCmDevice) != 0) {
    return softdc_open_device_file(path, flags);
  }
  auto* ucma_open = Ucma<UcmaOpen>("softdc_ucma_open");
  if (ucma_open == nullptr) return -2;
  const int fd = ucma_open();
  if (fd < 0 || Mark(fd)) return fd;
  Ucma<UcmaClose>("softdc_ucma_close")(fd);
  errno = EMFILE;
  return -1;
}

// What fstat says about one of ours. A kernel with RDMA_CM of its own tells librdmacm the device's number, which then
// has to be that.
void FillStat(struct stat* out) {
  struct stat device;
  if (stat(kCmDevice, &device) != 0) return;
  out->st_mode = device.st_mode;
  out->st_rdev = device.st_rdev;
}

mode_t ModeOf(int flags, va_list arguments) {
  const bool creates = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return creates ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

extern "C" {

SOFTDC_EXPORTED int open(const char* path, int flags, ...) {
  static int (*next)(const char*, int, ...);
  const int fd = TryOpen(path, flags);
  if (fd != -2) return fd;
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Next(&next, "open")(path, flags, mode);
}

SOFTDC_EXPORTED int open64(const char* path, int flags, ...) {
  static int (*next)(const char*, int, ...);
  const int fd = TryOpen(path, flags);
  if (fd != -2) return fd;
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Next(&next, "open64")(path, flags, mode);
}

SOFTDC_EXPORTED int openat(int folder, const char* path, int flags, ...) {
  static int (*next)(int, const char*, int, ...);
  const int fd = TryOpen(path, flags);
  if (fd != -2) return fd;
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Next(&next, "openat")(folder, path, flags, mode);
}

SOFTDC_EXPORTED int openat64(int folder, const char* path, int flags, ...) {
  static int (*next)(int, const char*, int, ...);
  const int fd = TryOpen(path, flags);
  if (fd != -2) return fd;
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Next(&next, "openat64")(folder, path, flags, mode);
}

SOFTDC_EXPORTED int fstat(int fd, struct stat* out) noexcept {
  static int (*next)(int, struct stat*);
  const int result = Next(&next, "fstat")(fd, out);
  if (result == 0 && Marked(fd)) FillStat(out);
  return result;
}

SOFTDC_EXPORTED int fstat64(int fd, struct stat64* out) noexcept {
  static_assert(sizeof(struct stat) == sizeof(struct stat64), "one layout on 64-bit systems");
  return fstat(fd, reinterpret_cast<struct stat*>(out));
}

SOFTDC_EXPORTED ssize_t write(int fd, const void* bytes, size_t count) {
  static ssize_t (*next)(int, const void*, size_t);
  if (Marked(fd)) return Ucma<UcmaWrite>("softdc_ucma_write")(fd, bytes, count);
  return Next(&next, "write")(fd, bytes, count);
}

SOFTDC_EXPORTED int close(int fd) {
  static int (*next)(int);
  if (!Marked(fd)) return Next(&next, "close")(fd);
  // First, as the number may be somebody else's as soon as it is free.
  Unmark(fd);
  return Ucma<UcmaClose>("softdc_ucma_close")(fd);
}

}  // extern "C"
