// SPDX-License-Identifier: Apache-2.0
//
// Memory shared with child processes for the tests of transport/softdc/shm; zeroed, page-aligned.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_SHM_SHARED_AREA_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_SHM_SHARED_AREA_H_

#include <gtest/gtest.h>
#include <sys/mman.h>

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

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_SHM_SHARED_AREA_H_
