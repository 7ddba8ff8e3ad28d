// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/outbound_link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace sluice::softdc::shm {

MappedFile::~MappedFile() { munmap(base_, size_bytes_); }

std::unique_ptr<MappedFile> MappedFile::Map(int fd, uint64_t size_bytes) {
  struct stat info {};
  const int seals = fcntl(fd, F_GET_SEALS);
  if (fstat(fd, &info) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 || size_bytes == 0 ||
      size_bytes > static_cast<uint64_t>(info.st_size) || info.st_uid != geteuid()) {
    return nullptr;
  }
  void* base = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) return nullptr;
  return std::make_unique<MappedFile>(static_cast<std::byte*>(base), size_bytes);
}

namespace {

// Returns whether process_vm_readv and _writev fail for this process: they are not permitted, or the process
// is in a PID namespace that we cannot see. The kernel checks permission before it checks addresses.
bool KernelRefuses(pid_t pid) {
  char byte = 0;
  const iovec local{.iov_base = &byte, .iov_len = 1};
  const iovec remote{.iov_base = nullptr, .iov_len = 1};
  return process_vm_readv(pid, &local, 1, &remote, 1, 0) < 0 && errno != EFAULT;
}

PrivateCopy CopyOf(int error) {
  switch (error) {
    case 0:
      return PrivateCopy::kDone;
    case EAGAIN:
    case EINPROGRESS:  // the copy is repeated after this one has ended (Ready)
      return PrivateCopy::kAgain;
    case EACCES:
    case EFAULT:
    case EPERM:
      return PrivateCopy::kRefused;
    default:  // ESRCH, or the errno of a broken connection to the bounce server
      return PrivateCopy::kNobody;
  }
}

// Converts a result of process_vm_readv or _writev.
PrivateCopy KernelCopyOf(ssize_t copied, uint64_t length_bytes) {
  if (copied < 0) return CopyOf(errno);
  return CopyOf(static_cast<uint64_t>(copied) == length_bytes ? 0 : EFAULT);
}

}  // namespace

OutboundLink::OutboundLink(UniqueFd socket, pid_t pid, uint64_t context_id, uint32_t link_id,
                           std::unique_ptr<MappedFile> arena, ClaimJournal link_journal,
                           UniqueFd bell, bool process_vm)
    : journal(link_journal),
      socket_(std::move(socket)),
      bell_(std::move(bell)),
      pid_(pid),
      context_id_(context_id),
      link_id_(link_id),
      arena_(std::move(arena)),
      bounces_(!process_vm || KernelRefuses(pid)) {
  // The creator of the link has checked the header. The link keeps copies, so that later changes of the
  // header have no effect.
  const auto* header = reinterpret_cast<const ArenaHeader*>(arena_->At(0, sizeof(ArenaHeader)));
  const uint32_t count = header->memory_region_count;
  regions_ = reinterpret_cast<MemoryRegionEntry*>(
      arena_->At(header->memory_regions_offset, sizeof(MemoryRegionEntry) * uint64_t{count}));
  region_count_ = regions_ == nullptr ? 0 : count;
  if (bounces_) bounce_ = BounceClient::Connect(context_id_);
}

bool OutboundLink::PidIsPeers() const {
  if (dead()) return false;
  pollfd polled{.fd = socket_.get(), .events = 0, .revents = 0};
  return poll(&polled, 1, 0) == 0;
}

template <typename Copy>
int OutboundLink::Bounce(Copy copy) {
  if (bounce_ == nullptr) bounce_ = BounceClient::Connect(context_id_);
  if (bounce_ == nullptr) return ENOTCONN;
  if (!bounce_->Ready()) return EAGAIN;
  const int error = copy(*bounce_);
  if (error != 0 && error != EACCES && error != EFAULT && error != EAGAIN && error != EINPROGRESS) {
    bounce_ = BounceClient::Connect(context_id_);
  }
  return error;
}

PrivateCopy OutboundLink::WritePrivate(const RemotePlace& place, uint64_t into,
                                       const std::byte* from, uint64_t length_bytes) {
  const uint64_t peer_address = place.peer_address + into;
  if (!bounces_) {
    if (!PidIsPeers()) return PrivateCopy::kNobody;
    const iovec local{.iov_base = const_cast<std::byte*>(from), .iov_len = length_bytes};
    const iovec remote{.iov_base = reinterpret_cast<void*>(peer_address), .iov_len = length_bytes};
    return KernelCopyOf(process_vm_writev(pid_, &local, 1, &remote, 1, 0), length_bytes);
  }
  return CopyOf(Bounce([&](BounceClient& bounce) {
    return bounce.Write(place.key, peer_address, from, length_bytes);
  }));
}

PrivateCopy OutboundLink::ReadPrivate(const RemotePlace& place, uint64_t into, std::byte* to,
                                      uint64_t length_bytes) {
  const uint64_t peer_address = place.peer_address + into;
  if (!bounces_) {
    if (!PidIsPeers()) return PrivateCopy::kNobody;
    const iovec local{.iov_base = to, .iov_len = length_bytes};
    const iovec remote{.iov_base = reinterpret_cast<void*>(peer_address), .iov_len = length_bytes};
    return KernelCopyOf(process_vm_readv(pid_, &local, 1, &remote, 1, 0), length_bytes);
  }
  return CopyOf(Bounce([&](BounceClient& bounce) {
    return bounce.Read(place.key, peer_address, to, length_bytes);
  }));
}

PrivateCopy OutboundLink::ChangePrivate(const RemotePlace& place, const WordChange& change,
                                        uint64_t* before) {
  // The owner does the operation, even if the kernel does our copies.
  const int error = Bounce([&](BounceClient& bounce) {
    return bounce.Change(place.key, place.peer_address, change, before);
  });
  return error == EINPROGRESS ? PrivateCopy::kMaybe : CopyOf(error);
}

void OutboundLink::RingFirmware() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(bell_.get(), &one, sizeof(one));
}

void OutboundLink::MarkDead() {
  dead_.store(true, std::memory_order_release);
  // The end of the socket tells the owner that we claim nothing more. So wait until a poster that holds the
  // lock has finished.
  SpinLockHolder hold(lock);
  socket_.Reset();
}

void OutboundLink::AddSegment(uint32_t segment, std::unique_ptr<MappedFile> file) {
  if (segment == kPrivateSegment || segment >= kMaxPeerSegments) return;
  segments_[segment].store(file.get(), std::memory_order_release);
  files_.push_back(std::move(file));
}

RemoteCq* OutboundLink::AddRemoteCq(const ControlMessage& answer, uint64_t armed_offset,
                                    UniqueFd event_fd, std::unique_ptr<RemoteCq>* replaced) {
  const auto it = remote_cqs_.find(answer.cq_id);
  if (it != remote_cqs_.end() && it->second->ring_offset == answer.ring_offset) {
    return it->second.get();
  }
  std::byte* ring = arena_->At(answer.ring_offset, answer.size_bytes);
  std::byte* armed = arena_->At(armed_offset, ArmedWord::Bytes());
  if (ring == nullptr || armed == nullptr) return nullptr;
  auto producer = CqeProducer::Attach(ring, answer.size_bytes);
  auto word = ArmedWord::Attach(armed, ArmedWord::Bytes());
  if (!producer || !word) return nullptr;
  std::unique_ptr<RemoteCq>& cq = remote_cqs_[answer.cq_id];
  *replaced =
      std::exchange(cq, std::make_unique<RemoteCq>(RemoteCq{.ring_offset = answer.ring_offset,
                                                            .ring = *producer,
                                                            .armed = *word,
                                                            .event_fd = std::move(event_fd)}));
  return cq.get();
}

void OutboundLink::DropRemoteCqs(const std::unordered_set<const RemoteCq*>& used,
                                 std::vector<std::unique_ptr<RemoteCq>>* dropped) {
  for (auto it = remote_cqs_.begin(); it != remote_cqs_.end();) {
    if (used.contains(it->second.get())) {
      ++it;
      continue;
    }
    dropped->push_back(std::move(it->second));
    it = remote_cqs_.erase(it);
  }
}

}  // namespace sluice::softdc::shm
