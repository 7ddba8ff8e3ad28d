// SPDX-License-Identifier: Apache-2.0
//
// Memory shared with child processes for the tests of transport/softdc/shm; zeroed, page-aligned.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_SHM_SHARED_AREA_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_SHM_SHARED_AREA_H_

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>

namespace sluice::softdc::shm {

class SharedArea {
 public:
  explicit SharedArea(size_t size_bytes) : size_bytes_(size_bytes) {
    data_ = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~SharedArea() { munmap(data_, size_bytes_); }
  SharedArea(const SharedArea&) = delete;
  SharedArea& operator=(const SharedArea&) = delete;

  void* data() const { return data_; }
  char* bytes() const { return static_cast<char*>(data_); }
  size_t size() const { return size_bytes_; }

 private:
  void* data_;
  size_t size_bytes_;
};

// The same over a file, which can tell how much of it was touched.
class SparseArea {
 public:
  explicit SparseArea(size_t size_bytes)
      : size_bytes_(size_bytes), fd_(memfd_create("sparse-area", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(size_bytes)), 0);
    data_ = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~SparseArea() {
    munmap(data_, size_bytes_);
    close(fd_);
  }
  SparseArea(const SparseArea&) = delete;
  SparseArea& operator=(const SparseArea&) = delete;

  void* data() const { return data_; }
  size_t size() const { return size_bytes_; }
  size_t TouchedBytes() const {
    struct stat info {};
    EXPECT_EQ(fstat(fd_, &info), 0);
    return static_cast<size_t>(info.st_blocks) * 512;
  }

 private:
  size_t size_bytes_;
  int fd_;
  void* data_;
};

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_SHM_SHARED_AREA_H_
