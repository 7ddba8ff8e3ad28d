// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/page_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iterator>
#include <utility>

namespace sluice::softdc::shm {

std::unique_ptr<PageFile> PageFile::Create(uint64_t size_bytes) {
  UniqueFd fd(memfd_create("softdc-pages", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  struct stat info {};
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
      fstat(fd.get(), &info) != 0) {
    return nullptr;
  }
  return std::unique_ptr<PageFile>(
      new PageFile(std::move(fd), size_bytes, info.st_dev, info.st_ino));
}

PageFile::PageFile(UniqueFd fd, uint64_t size_bytes, dev_t device, ino_t inode)
    : fd_(std::move(fd)), size_bytes_(size_bytes), device_(device), inode_(inode) {
  free_[0] = size_bytes;
}

std::optional<uint64_t> PageFile::Allocate(uint64_t length_bytes) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [offset, room_bytes] = *it;
    if (room_bytes < length_bytes) continue;
    free_.erase(it);
    if (room_bytes > length_bytes) free_[offset + length_bytes] = room_bytes - length_bytes;
    return offset;
  }
  return std::nullopt;
}

void PageFile::Free(uint64_t offset, uint64_t length_bytes, bool reuse) {
  const int punched = fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                static_cast<off_t>(offset), static_cast<off_t>(length_bytes));
  // Pages that could not be freed would contain old bytes at the next allocation.
  if (punched != 0 || !reuse) return;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + length_bytes) {
    length_bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += length_bytes;
      return;
    }
  }
  free_[offset] = length_bytes;
}

}  // namespace sluice::softdc::shm
