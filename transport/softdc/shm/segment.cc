// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/segment.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "transport/softdc/shm/address_map.h"

namespace sluice::softdc::shm {
namespace {

constexpr int kLikelyDescriptors = 4;

// Opens the file of the descriptor with this name again. Returns -1 if it is not the given file, or the file
// is not sealed against shrinking.
int OpenIfFile(const std::string& name, dev_t device, ino_t inode, uint64_t* file_bytes) {
  const std::string path = "/proc/self/fd/" + name;
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || info.st_dev != device || info.st_ino != inode) return -1;
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return -1;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (fstat(fd, &info) == 0 && info.st_dev == device && info.st_ino == inode && seals >= 0 &&
      (seals & F_SEAL_SHRINK) != 0) {
    *file_bytes = static_cast<uint64_t>(info.st_size);
    return fd;
  }
  close(fd);
  return -1;
}

// Returns a new descriptor for that file, or -1 if there is none or the file is not sealed against shrinking.
// Uses the names in /proc, because another thread may close or reuse a descriptor at any time.
int OpenFile(dev_t device, ino_t inode, uint64_t* file_bytes) {
  std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir("/proc/self/fd"), &closedir);
  if (dir == nullptr) return -1;
  // A program usually registers the file soon after it created it. Both descriptors got the lowest free
  // number, so the file's number is just below.
  const int lowest_free = dirfd(dir.get());
  for (int fd = lowest_free - 1; fd >= 0 && fd >= lowest_free - kLikelyDescriptors; --fd) {
    const int found = OpenIfFile(std::to_string(fd), device, inode, file_bytes);
    if (found >= 0) return found;
  }
  std::vector<std::string> names;
  while (const dirent* entry = readdir(dir.get())) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  // Tries the last names first.
  std::reverse(names.begin(), names.end());
  for (const std::string& name : names) {
    const int found = OpenIfFile(name, device, inode, file_bytes);
    if (found >= 0) return found;
  }
  return -1;
}

}  // namespace

std::optional<SharedRange> FindSharedRange(const void* address, size_t length_bytes) {
  const uint64_t begin = reinterpret_cast<uint64_t>(address);
  const uint64_t end = begin + length_bytes;
  std::optional<SharedRange> found;
  ForEachMapping([&](const Mapping& m) {
    if (m.end <= begin) return true;
    if (m.begin <= begin && end <= m.end && m.access[0] == 'r' && m.access[3] == 's' &&
        m.inode != 0) {
      found = SharedRange{
          .device = m.device, .inode = m.inode, .file_offset = m.file_offset + (begin - m.begin)};
    }
    return false;
  });
  if (!found) return std::nullopt;
  found->fd = OpenFile(found->device, found->inode, &found->file_bytes);
  if (found->fd < 0) return std::nullopt;
  if (found->file_offset > found->file_bytes ||
      length_bytes > found->file_bytes - found->file_offset) {
    close(found->fd);
    return std::nullopt;
  }
  return found;
}

bool IsPresent(const void* address, size_t length_bytes) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t begin = reinterpret_cast<uint64_t>(address) & ~(page - 1);
  const uint64_t end = reinterpret_cast<uint64_t>(address) + length_bytes;
  // ENOMEM if a part is not mapped. MS_ASYNC writes nothing back.
  return msync(reinterpret_cast<void*>(begin), end - begin, MS_ASYNC) == 0;
}

bool IsMapped(const void* address, size_t length_bytes) {
  uint64_t next = reinterpret_cast<uint64_t>(address);
  const uint64_t end = next + length_bytes;
  ForEachMapping([&](const Mapping& m) {
    if (m.end <= next) return true;
    if (m.begin > next || m.access[0] != 'r') return false;
    next = m.end;
    return next < end;
  });
  return next >= end;
}

}  // namespace sluice::softdc::shm
