// SPDX-License-Identifier: Apache-2.0
//
// PageFile: a sparse, sealed memory file whose pages are given out in runs. Peers map it whole and
// once, however many runs come and go; only touched pages count. A run that is given back is punched
// out of the file at once, and reads as zeros when it is given out again.
//
// Not thread-safe.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_PAGE_FILE_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_PAGE_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "transport/softdc/loop/unique_fd.h"

namespace sluice::softdc::shm {

class PageFile {
 public:
  // Null with errno set. `size_bytes`: whole pages.
  static std::unique_ptr<PageFile> Create(uint64_t size_bytes);

  // Whole pages. Nothing when no run of that length is free.
  std::optional<uint64_t> Allocate(uint64_t length_bytes);
  // The memory goes at once. reuse: the run may be given out again; otherwise its place in the file
  // is never used again, for when somebody may still write there.
  void Free(uint64_t offset, uint64_t length_bytes, bool reuse);

  int fd() const { return fd_.get(); }
  uint64_t size_bytes() const { return size_bytes_; }
  dev_t device() const { return device_; }
  ino_t inode() const { return inode_; }

 private:
  PageFile(UniqueFd fd, uint64_t size_bytes, dev_t device, ino_t inode);

  const UniqueFd fd_;
  const uint64_t size_bytes_;
  const dev_t device_;
  const ino_t inode_;
  std::map<uint64_t, uint64_t> free_;  // offset -> length; neighbours are joined
};

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_PAGE_FILE_H_
