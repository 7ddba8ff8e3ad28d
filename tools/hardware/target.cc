// SPDX-License-Identifier: Apache-2.0
#include "tools/hardware/target.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "transport/base/error.h"

namespace sluice::hardware {
namespace {

constexpr size_t kReceivesAt = size_t{64} << 10;  // messages are written below
constexpr uint32_t kReceivePlaces = 32;           // shared in turn: what lands there is not read
constexpr uint32_t kMaxReceives = 4096;
constexpr uint32_t kMaxReceiveBytes = 8192;

absl::Status Errno(const char* what) {
  return base::ErrnoError(errno, what, {.layer = "hardware", .operation = what});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Memory>> Memory::Create(const Nic& nic) {
  auto memory = std::unique_ptr<Memory>(new Memory);
  // softdc's peers map a sealed file; a NIC does not mind.
  memory->fd_ = memfd_create("sluice-hardware", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory->fd_ < 0 || ftruncate(memory->fd_, kBytes) != 0 ||
      fcntl(memory->fd_, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    return Errno("memory for the probes");
  }
  void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd_, 0);
  if (at == MAP_FAILED) return Errno("memory for the probes");
  memory->data_ = static_cast<std::byte*>(at);
  auto mr = verbs::RegisterMemory(
      *nic.api, nic.pd.get(), at, kBytes,
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  if (!mr.ok()) return mr.status();
  memory->mr_ = *std::move(mr);
  return memory;
}

Memory::~Memory() {
  mr_.reset();
  if (data_ != nullptr) munmap(data_, kBytes);
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<std::unique_ptr<Target>> LocalTarget::Create(const Nic& nic,
                                                            const TargetOptions& options) {
  if (options.receives > kMaxReceives || options.receive_bytes == 0 ||
      options.receive_bytes > kMaxReceiveBytes || options.cqe == 0 || options.cqe > 65536) {
    return base::Error(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("target with receives ", options.receives, ", receive_bytes ",
                     options.receive_bytes, ", cqe ", options.cqe, ": allowed are 0 to ",
                     kMaxReceives, ", 1 to ", kMaxReceiveBytes, ", 1 to 65536"),
        {.layer = "hardware",
         .operation = "target",
         .cause = "the peer is of another release",
         .remedy = "run the same release on both hosts"});
  }
  auto target = std::unique_ptr<LocalTarget>(new LocalTarget);
  target->options_ = options;
  auto memory = Memory::Create(nic);
  if (!memory.ok()) return memory.status();
  target->memory_ = *std::move(memory);
  auto cq = verbs::CreateCq(*nic.api, nic.context.get(), options.cqe, nullptr);
  if (!cq.ok()) return cq.status();
  target->cq_ = *std::move(cq);
  auto srq = verbs::CreateSrq(
      *nic.api, nic.pd.get(),
      std::min<uint32_t>(kMaxReceives, static_cast<uint32_t>(nic.attributes.max_srq_wr)));
  if (!srq.ok()) return srq.status();
  target->srq_ = *std::move(srq);
  auto dct = verbs::CreateDct(*nic.api, nic.context.get(), nic.pd.get(), target->cq_.get(),
                              target->srq_.get(), kDcKey);
  if (!dct.ok()) return dct.status();
  target->dct_ = *std::move(dct);
  verbs::PathOptions path = nic.Path();
  if (options.other_gid) {
    int other = -1;
    for (const Gid& gid : nic.gids) {
      if (gid.index != nic.own.index && gid.roce_v1 == nic.own.roce_v1 && other < 0)
        other = gid.index;
    }
    if (other < 0) {
      return base::Error(absl::StatusCode::kFailedPrecondition, "the port has one GID only",
                         {.layer = "hardware", .operation = "target"});
    }
    path.sgid_index = static_cast<uint8_t>(other);
  }
  if (options.mtu_bytes != 0) path.mtu = MtuOf(options.mtu_bytes);
  absl::Status status = verbs::ActivateDct(*nic.api, target->dct_.get(), path,
                                           IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  if (status.ok()) status = target->PostReceives(options.receives);
  if (!status.ok()) return status;
  target->address_ = {.gid = nic.own.gid,
                      .lid = nic.port.lid,
                      .dctn = target->dct_.number(),
                      .memory = target->memory_->address(),
                      .rkey = target->memory_->mr()->rkey,
                      .cqe = static_cast<uint32_t>(target->cq_->cqe)};
  return target;
}

LocalTarget::~LocalTarget() {
  watching_ = false;
  if (watcher_.joinable()) watcher_.join();
  if (loader_.joinable()) loader_.join();
  dct_.qp.reset();
  srq_.reset();
  cq_.reset();
}

absl::Status LocalTarget::PostReceives(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i, ++next_receive_) {
    const size_t offset = kReceivesAt + next_receive_ % kReceivePlaces * kMaxReceiveBytes;
    ibv_sge sge{.addr = memory_->address() + offset,
                .length = options_.receive_bytes,
                .lkey = memory_->mr()->lkey};
    ibv_recv_wr wr{.wr_id = offset, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    if (const int error = ibv_post_srq_recv(srq_.get(), &wr, &bad); error != 0) {
      return base::ErrnoError(error, "posting a receive",
                              {.layer = "hardware", .operation = "ibv_post_srq_recv"});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Receipt>> LocalTarget::AwaitReceive(absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  while (true) {
    ibv_wc wc{};
    const int count = ibv_poll_cq(cq_.get(), 1, &wc);
    if (count < 0) {
      return base::ErrnoError(EIO, "polling the receive CQ",
                              {.layer = "hardware", .operation = "ibv_poll_cq"});
    }
    if (count == 1) return Receipt{wc.status, wc.byte_len};
    if (absl::Now() >= end) return std::nullopt;
    std::this_thread::yield();
  }
}

absl::Status LocalTarget::BeginWatch(uint32_t bytes) {
  if (watcher_.joinable() || bytes < 8 || bytes > kReceivesAt || bytes % 8 != 0) {
    return base::Error(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("watch of ", bytes, " bytes: allowed is one at a time, of 8 to ", kReceivesAt,
                     " bytes, a multiple of 8"),
        {.layer = "hardware", .operation = "watch"});
  }
  std::memset(memory_->data(), 0, bytes);
  count_ = {};
  watching_ = true;
  watcher_ = std::thread([this, bytes] { Watch(bytes); });
  loader_ = std::thread([this] { LoadMemory(); });
  return absl::OkStatus();
}

absl::StatusOr<WatchCount> LocalTarget::EndWatch() {
  watching_ = false;
  if (watcher_.joinable()) watcher_.join();
  if (loader_.joinable()) loader_.join();
  return count_;
}

void LocalTarget::Watch(uint32_t bytes) {
  auto* const words = reinterpret_cast<uint64_t*>(memory_->data());
  const size_t last = bytes / 8 - 1;
  const size_t block = last / 16 * 16;  // the memory is aligned to pages
  uint64_t before = 0;
  uint32_t idle = 0;
  while (watching_.load(std::memory_order_relaxed)) {
    const uint64_t now = std::atomic_ref<uint64_t>(words[last]).load(std::memory_order_acquire);
    if (now == before) {
      // The sender may need this CPU.
      if (++idle % 4096 == 0) std::this_thread::yield();
      continue;
    }
    before = now;
    ++count_.seen;
    // A later message may have begun: newer words are no fault.
    bool torn = false;
    bool torn_block = false;
    for (size_t i = last; i-- > 0;) {
      if (std::atomic_ref<uint64_t>(words[i]).load(std::memory_order_acquire) >= now) continue;
      torn = true;
      torn_block = torn_block || i >= block;
    }
    count_.torn += torn ? 1 : 0;
    count_.torn_blocks += torn_block ? 1 : 0;
  }
}

// More than caches hold, read and written.
void LocalTarget::LoadMemory() {
  constexpr size_t kWords = size_t{4} << 20;
  std::vector<uint64_t> load(kWords);
  for (size_t i = 0; watching_.load(std::memory_order_relaxed); i = (i + 8) % kWords) {
    load[i] += i;
    if (i % (size_t{1} << 16) == 0) std::this_thread::yield();
  }
}

}  // namespace sluice::hardware
