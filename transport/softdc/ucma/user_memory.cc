// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/ucma/user_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace sluice::softdc::ucma {
namespace {

void* Pointer(uint64_t address) { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); }

bool Forbidden() { return errno == EPERM || errno == ENOSYS; }

}  // namespace

int CopyFromUser(void* to, uint64_t from, size_t bytes) {
  if (bytes == 0) return 0;
  if (from == 0) return EFAULT;
  const iovec mine{to, bytes};
  const iovec user{Pointer(from), bytes};
  const ssize_t copied = process_vm_readv(getpid(), &mine, 1, &user, 1, 0);
  if (copied == static_cast<ssize_t>(bytes)) return 0;
  if (copied >= 0 || !Forbidden()) return EFAULT;
  std::memcpy(to, Pointer(from), bytes);
  return 0;
}

int CopyToUser(uint64_t to, const void* from, size_t bytes) {
  if (bytes == 0) return 0;
  if (to == 0) return EFAULT;
  const iovec mine{const_cast<void*>(from), bytes};
  const iovec user{Pointer(to), bytes};
  const ssize_t copied = process_vm_writev(getpid(), &mine, 1, &user, 1, 0);
  if (copied == static_cast<ssize_t>(bytes)) return 0;
  if (copied >= 0 || !Forbidden()) return EFAULT;
  std::memcpy(Pointer(to), from, bytes);
  return 0;
}

}  // namespace sluice::softdc::ucma
