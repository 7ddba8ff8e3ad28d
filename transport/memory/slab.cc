// SPDX-License-Identifier: Apache-2.0
#include "transport/memory/slab.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "transport/base/error.h"

namespace sluice::memory {
namespace {

absl::Status Failed(int error_number, const char* call) {
  return base::ErrnoError(error_number, call,
                          {.layer = "memory",
                           .operation = "allocate registered memory",
                           .cause = "this process or this host is out of memory or descriptors",
                           .remedy = "configure fewer or smaller buffers, or raise `ulimit -n`"});
}

// The kernel pins memory that a NIC registers, up to RLIMIT_MEMLOCK in total.
absl::Status NotLocked(size_t size_bytes) {
  rlimit limit = {};
  std::string known = "which RLIMIT_MEMLOCK limits";
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    known = limit.rlim_cur == RLIM_INFINITY
                ? "RLIMIT_MEMLOCK is unlimited, so the host or the device has no more"
                : "RLIMIT_MEMLOCK is " + std::to_string(limit.rlim_cur >> 10) +
                      " KiB, and holds for all that the user has registered";
  }
  return base::Error(
      absl::StatusCode::kResourceExhausted,
      "registering " + std::to_string(size_bytes) + " bytes of memory failed with ENOMEM",
      {.layer = "memory",
       .operation = kRegisterOperation,
       .cause = "a NIC locks registered memory: " + known,
       .remedy = "raise the limit (ulimit -l, LimitMEMLOCK in a unit), or lower "
                 "limits.receive_buffers and limits.max_message_bytes",
       .syndrome = ENOMEM});
}

}  // namespace

absl::StatusOr<Slab> Slab::Create(const verbs::VerbsApi& api, ibv_pd* pd, size_t size_bytes,
                                  int access) {
  auto slab = Map(size_bytes);
  if (!slab.ok()) return slab;
  const absl::Status status = slab->Register(api, pd, access);
  if (!status.ok()) return status;
  return slab;
}

absl::StatusOr<Slab> Slab::Map(size_t size_bytes) {
  const size_t page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  Slab slab;
  slab.size_bytes_ = (size_bytes + page_bytes - 1) / page_bytes * page_bytes;
  slab.fd_ = memfd_create("sluice-slab", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (slab.fd_ < 0) return Failed(errno, "memfd_create");
  if (ftruncate(slab.fd_, static_cast<off_t>(slab.size_bytes_)) != 0) {
    return Failed(errno, "ftruncate");
  }
  // A process that maps the file can rely on its size: no later truncate causes SIGBUS.
  if (fcntl(slab.fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return Failed(errno, "fcntl(F_ADD_SEALS)");
  }
  void* mapped = mmap(nullptr, slab.size_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, slab.fd_, 0);
  if (mapped == MAP_FAILED) return Failed(errno, "mmap");
  slab.data_ = static_cast<std::byte*>(mapped);
  return slab;
}

absl::Status Slab::Register(const verbs::VerbsApi& api, ibv_pd* pd, int access) {
  auto mr = verbs::RegisterMemory(api, pd, data_, size_bytes_, access);
  if (!mr.ok()) {
    const auto detail = base::DetailOf(mr.status());
    const bool not_locked = detail.has_value() && detail->syndrome() == ENOMEM;
    return not_locked ? NotLocked(size_bytes_) : mr.status();
  }
  mr_ = std::move(*mr);
  return absl::OkStatus();
}

Slab::Slab(Slab&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      mr_(std::move(other.mr_)) {}

Slab& Slab::operator=(Slab&& other) noexcept {
  if (this != &other) {
    Free();
    fd_ = std::exchange(other.fd_, -1);
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
    mr_ = std::move(other.mr_);
  }
  return *this;
}

Slab::~Slab() { Free(); }

void Slab::Free() {
  mr_.reset();  // before the memory is unmapped
  if (data_ != nullptr) munmap(std::exchange(data_, nullptr), size_bytes_);
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

}  // namespace sluice::memory
