// SPDX-License-Identifier: Apache-2.0
//
// Slab: registered memory: a memory file, mapped shared, registered once.
//
// Purpose       One region of zeroed pages with its ibv_mr. The mapping is always shared: for a NIC this makes no difference, and a
//               software device in another process can map the same pages.
// Ownership     The creator. The protection domain outlives it. The file descriptor stays open as long as the region is registered,
//               because the device may find the file by it.
// Threads       Creation and destruction: any (they block). The memory: its users'.
#ifndef SLUICE_TRANSPORT_MEMORY_SLAB_H_
#define SLUICE_TRANSPORT_MEMORY_SLAB_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "transport/verbs/handles.h"

namespace sluice::memory {

// ErrorContext::operation of a registration that failed because the process may not lock more memory.
inline constexpr char kRegisterOperation[] = "register memory";

class Slab {
 public:
  // `access` as in man ibv_reg_mr; the size is rounded up to whole pages.
  static absl::StatusOr<Slab> Create(const verbs::VerbsApi& api, ibv_pd* pd, size_t size_bytes,
                                     int access);
  // Create() in two steps, for threads that must not block. Map() allocates memory without registering it, and is fast. Register()
  // registers the memory, and blocks. Call it once.
  static absl::StatusOr<Slab> Map(size_t size_bytes);
  absl::Status Register(const verbs::VerbsApi& api, ibv_pd* pd, int access);
  // Deregisters the memory, but does not free it. Blocks.
  void Unregister() { mr_.reset(); }
  Slab() = default;
  Slab(Slab&& other) noexcept;
  Slab& operator=(Slab&& other) noexcept;
  ~Slab();

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  uint32_t lkey() const { return mr_->lkey; }
  uint32_t rkey() const { return mr_->rkey; }

 private:
  void Free();

  int fd_ = -1;
  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
  verbs::Mr mr_;
};

}  // namespace sluice::memory

#endif  // SLUICE_TRANSPORT_MEMORY_SLAB_H_
