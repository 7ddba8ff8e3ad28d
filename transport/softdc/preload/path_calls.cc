// SPDX-License-Identifier: Apache-2.0
//
// The calls of libc that ask about a file by its path. Programs look for a device's files before they look for the device. UCX checks that
// it may read and write /dev/infiniband/u<device>, and reads the types of addresses and the vendor below /sys/class/infiniband. These files
// exist in the device library only (device_files.h). If a real file with that path exists, as with a kernel that has RDMA, the real file is
// used. An open of an attribute of the device is the exception: it always goes to the device library.
#undef _FORTIFY_SOURCE  // its inline versions would define these functions
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "transport/softdc/preload/load.h"
#include "transport/softdc/preload/next_call.h"

namespace {

constexpr char kDeviceFolder[] = "/dev/infiniband/";
constexpr char kAttributeFolder[] = "/sys/class/infiniband/";
constexpr unsigned kVerbsMajor = 231;
constexpr unsigned kVerbsMinor = 192;
constexpr unsigned kMiscMajor = 10;
constexpr off_t kAttributeBytes = 4096;  // as sysfs reports for every attribute

enum Kind { kNone, kCharacterDevice, kFolder, kText };  // DeviceFileKind

template <size_t kBytes>
bool StartsWith(const char* path, const char (&prefix)[kBytes]) {
  return std::strncmp(path, prefix, kBytes - 1) == 0;
}

Kind KindOf(const char* path) {
  if (path == nullptr || path[0] != '/' ||
      (!StartsWith(path, kDeviceFolder) && !StartsWith(path, kAttributeFolder))) {
    return kNone;
  }
  auto* kind_of =
      reinterpret_cast<int (*)(const char*)>(softdc_preload_function("softdc_device_file_kind"));
  return kind_of == nullptr ? kNone : static_cast<Kind>(kind_of(path));
}

// Fills in the result of stat for a file that only the device library has. Returns false if it has no such file.
bool FillStat(const char* path, struct stat* out) {
  const Kind kind = KindOf(path);
  if (kind == kNone) return false;
  *out = {};
  out->st_nlink = 1;
  switch (kind) {
    case kCharacterDevice:
      out->st_mode = S_IFCHR | 0666;
      out->st_rdev = std::strstr(path, "rdma_cm") != nullptr ? makedev(kMiscMajor, 0)
                                                             : makedev(kVerbsMajor, kVerbsMinor);
      break;
    case kFolder:
      out->st_mode = S_IFDIR | 0755;
      break;
    default:
      out->st_mode = S_IFREG | 0444;
      out->st_size = kAttributeBytes;
      break;
  }
  return true;
}

using StatCall = int(const char*, struct stat*);

int Stat(StatCall** cache, const char* name, const char* path, struct stat* out) {
  const int result = Next(cache, name)(path, out);
  if (result == 0 || errno != ENOENT) return result;
  if (FillStat(path, out)) return 0;
  errno = ENOENT;
  return -1;
}

FILE* Open(FILE* (**cache)(const char*, const char*), const char* name, const char* path,
           const char* mode) {
  const int fd = softdc_open_device_file(
      path, mode[0] == 'r' && std::strchr(mode, '+') == nullptr ? O_RDONLY | O_CLOEXEC : O_RDWR);
  if (fd == -2) return Next(cache, name)(path, mode);
  return fd < 0 ? nullptr : fdopen(fd, "r");
}

}  // namespace

extern "C" {

int softdc_open_device_file(const char* path, int flags) {
  if (KindOf(path) != kText) return -2;
  auto* open_file = reinterpret_cast<int (*)(const char*, int)>(
      softdc_preload_function("softdc_device_file_open"));
  return open_file == nullptr ? -2 : open_file(path, flags);
}

SOFTDC_EXPORTED int stat(const char* path, struct stat* out) noexcept {
  static StatCall* next;
  return Stat(&next, "stat", path, out);
}

SOFTDC_EXPORTED int lstat(const char* path, struct stat* out) noexcept {
  static StatCall* next;
  return Stat(&next, "lstat", path, out);
}

SOFTDC_EXPORTED int stat64(const char* path, struct stat64* out) noexcept {
  static_assert(sizeof(struct stat) == sizeof(struct stat64), "one layout on 64-bit systems");
  return stat(path, reinterpret_cast<struct stat*>(out));
}

SOFTDC_EXPORTED int lstat64(const char* path, struct stat64* out) noexcept {
  return lstat(path, reinterpret_cast<struct stat*>(out));
}

SOFTDC_EXPORTED int access(const char* path, int mode) noexcept {
  static int (*next)(const char*, int);
  const int result = Next(&next, "access")(path, mode);
  const int error = errno;
  if (result == 0) return result;
  const Kind kind = KindOf(path);
  const bool denied =
      (kind != kCharacterDevice && (mode & W_OK) != 0) || (kind != kFolder && (mode & X_OK) != 0);
  errno = kind == kNone ? error : EACCES;
  return kind == kNone || denied ? -1 : 0;
}

SOFTDC_EXPORTED FILE* fopen(const char* path, const char* mode) {
  static FILE* (*next)(const char*, const char*);
  return Open(&next, "fopen", path, mode);
}

SOFTDC_EXPORTED FILE* fopen64(const char* path, const char* mode) {
  static FILE* (*next)(const char*, const char*);
  return Open(&next, "fopen64", path, mode);
}

}  // extern "C"
