// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/bounce.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "transport/softdc/loop/loop.h"
#include "transport/softdc/loop/messages.h"
#include "transport/softdc/loop/names.h"
#include "transport/softdc/loop/out_of_descriptors.h"
#include "transport/softdc/shm/address_map.h"

namespace sluice::softdc::shm {
namespace {

constexpr uint32_t kBounceMagic = 0x32656e62;
constexpr int kBacklog = 64;
constexpr size_t kMaxClients = 1024;
constexpr int64_t kAcceptAgainNs = 50'000'000;  // pause when no descriptor is free
constexpr uint64_t kBufferBytes =
    kBounceBytes + 4096;  // the turn word is behind the bytes of a request

struct BounceMessage {
  uint32_t magic = kBounceMagic;
  BounceKind kind = BounceKind::kBuffer;
  uint32_t key = 0;
  int32_t error = 0;  // of the answer
  uint64_t address = 0;
  uint64_t length_bytes = 0;
  uint64_t turn = 0;
};
static_assert(sizeof(BounceMessage) == 40);

// The turn word holds the number of a turn and its state.
enum class TurnState : uint64_t { kWaits = 1, kTaken = 2, kTakenBack = 3 };

constexpr uint64_t TurnWord(uint64_t turn, TurnState state) {
  return turn << 2 | static_cast<uint64_t>(state);
}

std::atomic<uint64_t>& TurnOf(std::byte* buffer) {
  return *reinterpret_cast<std::atomic<uint64_t>*>(buffer + kBounceBytes);
}

// Takes or withdraws a turn. Only one of the two sides succeeds.
bool TakeTurn(std::byte* buffer, uint64_t turn, TurnState as) {
  uint64_t waits = TurnWord(turn, TurnState::kWaits);
  return TurnOf(buffer).compare_exchange_strong(waits, TurnWord(turn, as));
}

std::string BounceName(uint64_t context_id) {
  return AbstractName("bounce", std::to_string(context_id));
}

std::byte* MapBuffer(int fd) {
  void* base = mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
}

// Returns whether the file belongs to our user, is large enough, and cannot shrink while we copy.
bool IsGoodBuffer(int fd) {
  struct stat info {};
  const int seals = fcntl(fd, F_GET_SEALS);
  return fstat(fd, &info) == 0 && info.st_uid == geteuid() && seals >= 0 &&
         (seals & F_SEAL_SHRINK) != 0 && static_cast<uint64_t>(info.st_size) >= kBufferBytes;
}

bool Covers(const MemoryRegionEntry& region, const BounceMessage& request) {
  const uint64_t into = request.address - region.address;
  return request.key != 0 && region.key.load(std::memory_order_acquire) == request.key &&
         request.address >= region.address && into <= region.length_bytes &&
         request.length_bytes <= region.length_bytes - into;
}

// Returns whether a registered word is mapped writable. ChangeWord accesses the word directly, so an unmapped
// word would crash the process. Slow. Wrong only if the program unmaps registered memory at the same moment.
bool IsWritable(uint64_t address) {
  bool writable = false;
  ForEachMapping([&](const Mapping& mapping) {
    if (mapping.end <= address) return true;
    writable = mapping.begin <= address && mapping.access[1] == 'w';
    return false;
  });
  return writable;
}

// The buffer holds the change, and after the operation the old value.
int ChangeWord(std::byte* buffer, const BounceMessage& request) {
  uint64_t before = 0;
  if (request.length_bytes != sizeof(before) || request.address % sizeof(before) != 0)
    return EACCES;
  if (!IsWritable(request.address)) return EFAULT;
  WordChange change;
  std::memcpy(&change, buffer, sizeof(change));
  before = change.ApplyTo(reinterpret_cast<uint64_t*>(request.address));
  std::memcpy(buffer, &before, sizeof(before));
  return 0;
}

std::atomic<int> g_threads{0};

}  // namespace

struct BounceServer::Client {
  UniqueFd socket;
  std::byte* buffer = nullptr;
  ~Client() {
    if (buffer != nullptr) munmap(buffer, kBufferBytes);
  }
};

int BounceServer::threads() { return g_threads.load(); }

BounceServer::BounceServer(uint64_t context_id, const MemoryRegionEntry* regions)
    : regions_(regions),
      listening_(ListenAbstract(BounceName(context_id), kBacklog)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      memory_(open("/proc/self/mem", O_RDWR | O_CLOEXEC)) {
  // Without these descriptors no sender can connect, and senders see the same failure as without a server.
  if (!listening_ || !wake_ || !memory_) return;
  Loop::Get().Watch(listening_.get(), EPOLLIN, [this](uint32_t) { OnConnect(); });
}

BounceServer::~BounceServer() {
  if (!listening_ || !wake_ || !memory_) return;
  Loop::Get().RunAndWait([this] {
    Loop::Get().Unwatch(listening_.get());
    if (accept_timer_ != 0) Loop::Get().Cancel(accept_timer_);
  });
  over_.store(true);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
}

void BounceServer::OnConnect() {
  for (;;) {
    UniqueFd socket = AcceptSameUser(listening_.get());
    if (!socket && errno == EACCES) continue;
    if (!socket) {
      if (IsOutOfDescriptors(errno)) PauseAccepting();
      return;
    }
    auto client = std::make_unique<Client>();
    client->socket = std::move(socket);
    {
      std::lock_guard lock(mutex_);
      arrived_.push_back(std::move(client));
    }
    if (!thread_.joinable()) {
      g_threads.fetch_add(1);
      thread_ =
          // The thread blocks all signals, like the Loop thread that creates it.
          std::thread([this] { ThreadMain(); });
      pthread_setname_np(thread_.native_handle(), "softdc-bounce");
    }
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  }
}

void BounceServer::PauseAccepting() {
  ReportOutOfDescriptors();
  Loop::Get().Rewatch(listening_.get(), 0);
  accept_timer_ = Loop::Get().After(kAcceptAgainNs, [this] {
    accept_timer_ = 0;
    Loop::Get().Rewatch(listening_.get(), EPOLLIN);
  });
}

void BounceServer::ThreadMain() {
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<pollfd> polled;
  while (!over_.load()) {
    polled.assign(1, {.fd = wake_.get(), .events = POLLIN, .revents = 0});
    for (const auto& client : clients) {
      polled.push_back({.fd = client->socket.get(), .events = POLLIN, .revents = 0});
    }
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    // From the back, so that an erase does not move clients that are not served yet.
    for (size_t i = clients.size(); i > 0; --i) {
      if (polled[i].revents != 0 && !ServeOne(*clients[i - 1])) {
        clients.erase(clients.begin() + static_cast<ptrdiff_t>(i - 1));
      }
    }
    uint64_t wakes;
    if (read(wake_.get(), &wakes, sizeof(wakes)) < 0) continue;
    std::lock_guard lock(mutex_);
    for (auto& client : arrived_) {
      if (clients.size() < kMaxClients) clients.push_back(std::move(client));
    }
    arrived_.clear();
  }
  g_threads.fetch_sub(1);
}

// Serves one request. Returns false if the client is gone, or its message is invalid.
bool BounceServer::ServeOne(Client& client) {
  BounceMessage message;
  std::vector<UniqueFd> fds;
  const ssize_t size =
      RecvWithFds(client.socket.get(), std::as_writable_bytes(std::span(&message, 1)), &fds);
  if (size < 0 && errno == EAGAIN) return true;
  if (size != sizeof(message) || message.magic != kBounceMagic) return false;
  if (message.kind == BounceKind::kBuffer) {
    if (client.buffer != nullptr || fds.size() != 1 || !IsGoodBuffer(fds[0].get())) return false;
    client.buffer = MapBuffer(fds[0].get());
    return client.buffer != nullptr &&
           SendWithFds(client.socket.get(), std::as_bytes(std::span(&message, 1))) == 0;
  }
  if (client.buffer == nullptr || message.length_bytes > kBounceBytes) return false;
  const uint32_t index = message.key >> 8;
  if (!TakeTurn(client.buffer, message.turn, TurnState::kTaken)) {
    message.error = ECANCELED;
    return SendWithFds(client.socket.get(), std::as_bytes(std::span(&message, 1))) == 0;
  }
  message.error = EACCES;
  if (index < kMaxMemoryRegions && Covers(regions_[index], message)) {
    if (message.kind == BounceKind::kChange) {
      message.error = ChangeWord(client.buffer, message);
      return SendWithFds(client.socket.get(), std::as_bytes(std::span(&message, 1))) == 0;
    }
    const auto offset = static_cast<off_t>(message.address);
    const ssize_t copied = message.kind == BounceKind::kWrite
                               ? pwrite(memory_.get(), client.buffer, message.length_bytes, offset)
                               : pread(memory_.get(), client.buffer, message.length_bytes, offset);
    message.error = copied == static_cast<ssize_t>(message.length_bytes) ? 0 : EFAULT;
  }
  return SendWithFds(client.socket.get(), std::as_bytes(std::span(&message, 1))) == 0;
}

std::unique_ptr<BounceClient> BounceClient::Connect(uint64_t context_id) {
  UniqueFd socket = ConnectAbstract(BounceName(context_id));
  if (!socket) return nullptr;
  const UniqueFd file(memfd_create("softdc-bounce", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ftruncate(file.get(), kBufferBytes) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return nullptr;
  }
  std::byte* buffer = MapBuffer(file.get());
  if (buffer == nullptr) return nullptr;
  const BounceMessage hello;
  const int fd = file.get();
  auto client = std::unique_ptr<BounceClient>(new BounceClient(std::move(socket), buffer));
  if (SendWithFds(client->socket_.get(), std::as_bytes(std::span(&hello, 1)), std::span(&fd, 1)) !=
      0) {
    return nullptr;
  }
  return client;
}

BounceClient::~BounceClient() { munmap(buffer_, kBufferBytes); }

bool BounceClient::Ready() {
  if (ready_) return true;
  BounceMessage message;
  const ssize_t size = RecvWithFds(socket_.get(), std::as_writable_bytes(std::span(&message, 1)));
  // The end of the connection also counts as ready: the next request then fails.
  ready_ = size >= 0 || errno != EAGAIN;
  return ready_;
}

bool BounceClient::Answered() const {
  pollfd polled{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  int ready;
  do {
    ready = poll(&polled, 1, kAnswerWithinMs);
  } while (ready < 0 && errno == EINTR);
  return ready != 0;
}

int BounceClient::Ask(BounceKind kind, uint32_t key, uint64_t peer_address, uint64_t length_bytes) {
  BounceMessage message;
  message.kind = kind;
  message.key = key;
  message.address = peer_address;
  message.length_bytes = length_bytes;
  message.turn = ++turn_;
  TurnOf(buffer_).store(TurnWord(turn_, TurnState::kWaits), std::memory_order_release);
  const int error = SendWithFds(socket_.get(), std::as_bytes(std::span(&message, 1)));
  if (error != 0) return error;
  if (!Answered()) {
    const bool taken_back = TakeTurn(buffer_, turn_, TurnState::kTakenBack);
    if (taken_back || !Answered()) {
      ready_ = false;
      return taken_back ? EAGAIN : EINPROGRESS;
    }
  }
  const ssize_t size = RecvWithFds(socket_.get(), std::as_writable_bytes(std::span(&message, 1)));
  if (size == sizeof(message) && message.magic == kBounceMagic) return message.error;
  return TakeTurn(buffer_, turn_, TurnState::kTakenBack) ? EPIPE : EINPROGRESS;
}

int BounceClient::Write(uint32_t key, uint64_t peer_address, const std::byte* from,
                        uint64_t length_bytes) {
  for (uint64_t done = 0; done < length_bytes;) {
    const uint64_t size_bytes = std::min(kBounceBytes, length_bytes - done);
    std::memcpy(buffer_, from + done, size_bytes);
    if (const int error = Ask(BounceKind::kWrite, key, peer_address + done, size_bytes);
        error != 0) {
      return error;
    }
    done += size_bytes;
  }
  return 0;
}

int BounceClient::Read(uint32_t key, uint64_t peer_address, std::byte* to, uint64_t length_bytes) {
  for (uint64_t done = 0; done < length_bytes;) {
    const uint64_t size_bytes = std::min(kBounceBytes, length_bytes - done);
    if (const int error = Ask(BounceKind::kRead, key, peer_address + done, size_bytes);
        error != 0) {
      return error;
    }
    std::memcpy(to + done, buffer_, size_bytes);
    done += size_bytes;
  }
  return 0;
}

int BounceClient::Change(uint32_t key, uint64_t peer_address, const WordChange& change,
                         uint64_t* before) {
  std::memcpy(buffer_, &change, sizeof(change));
  const int error = Ask(BounceKind::kChange, key, peer_address, sizeof(*before));
  if (error == 0) std::memcpy(before, buffer_, sizeof(*before));
  return error;
}

}  // namespace sluice::softdc::shm
