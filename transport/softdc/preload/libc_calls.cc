// SPDX-License-Identifier: Apache-2.0
//
// The calls with which librdmacm talks to the kernel. librdmacm opens /dev/infiniband/rdma_cm, checks with fstat that it is a character
// device, and closes it. It writes one command at a time; it requests events with a command too. These calls go to the RDMA_CM engine in
// the device library. Calls for all other paths and descriptors go to libc, at the cost of two comparisons. Waiting needs no replacement:
// the descriptor is a real one that can be polled. Attributes of the device are opened here too (path_calls.cc).
//
// After fork() the child inherits the marks of descriptors, as it inherits the descriptors.
#undef _FORTIFY_SOURCE  // its inline versions would define these functions
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

// One bit per descriptor, set if the engine owns the descriptor.
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

// Returns a descriptor, -1 with errno, or -2 if libc must open the path.
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

// Fills in the result of fstat for a descriptor of the engine. If the kernel has RDMA_CM, it tells librdmacm the number of the device. The
// descriptor must then have the same number.
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
  // Unmark first, because another thread may get the number as soon as it is free.
  Unmark(fd);
  return Ucma<UcmaClose>("softdc_ucma_close")(fd);
}

}  // extern "C"
