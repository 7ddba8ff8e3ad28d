// SPDX-License-Identifier: Apache-2.0
//
// PageFile: a sparse, sealed memory file whose pages are allocated in runs. Peers map the whole file once,
// for all runs. Only touched pages use memory. Free punches a run out of the file at once, so the run reads
// as zeros when it is allocated again.
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
  // Returns null and sets errno on failure. `size_bytes` must be whole pages.
  static std::unique_ptr<PageFile> Create(uint64_t size_bytes);

  // Allocates whole pages. Returns nullopt if no run of that length is free.
  std::optional<uint64_t> Allocate(uint64_t length_bytes);
  // Frees the memory of a run at once. reuse: the run may be allocated again. Pass false if a process may
  // still write there: that place in the file is then never used again.
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
  std::map<uint64_t, uint64_t> free_;  // neighbours are merged
};

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_PAGE_FILE_H_
