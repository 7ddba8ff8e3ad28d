// SPDX-License-Identifier: Apache-2.0
//
// ZeroedArray: an array whose elements begin as zero bytes. A large array takes memory only when its elements are accessed.
//
// Ownership     The creator.
// Threads       One at a time.
// Errors        std::bad_alloc if the address space is exhausted.
#ifndef SLUICE_TRANSPORT_BASE_ZEROED_ARRAY_H_
#define SLUICE_TRANSPORT_BASE_ZEROED_ARRAY_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>

namespace sluice::base {

template <typename T>
class ZeroedArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  explicit ZeroedArray(size_t size) : bytes_(size * sizeof(T)) {
    void* memory = mapped() ? mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                            : std::calloc(size, sizeof(T));
    if (memory == nullptr || memory == MAP_FAILED) throw std::bad_alloc();
    elements_ = static_cast<T*>(memory);
  }
  ~ZeroedArray() {
    if (mapped()) {
      munmap(elements_, bytes_);
    } else {
      std::free(elements_);
    }
  }
  ZeroedArray(const ZeroedArray&) = delete;
  ZeroedArray& operator=(const ZeroedArray&) = delete;

  T& operator[](size_t index) { return elements_[index]; }
  const T& operator[](size_t index) const { return elements_[index]; }
  void Clear() {
    if (mapped() && madvise(elements_, bytes_, MADV_DONTNEED) == 0) return;
    std::memset(static_cast<void*>(elements_), 0, bytes_);
  }

 private:
  static constexpr size_t kMappedBytes = 64 * 1024;
  bool mapped() const { return bytes_ >= kMappedBytes; }

  const size_t bytes_;
  T* elements_;
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_ZEROED_ARRAY_H_
