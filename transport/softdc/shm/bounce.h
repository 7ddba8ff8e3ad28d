// SPDX-License-Identifier: Apache-2.0
//
// Copies to and from the private memory of a peer if the kernel refuses process_vm_readv and
// process_vm_writev. Reasons are, for example, the system call filter of a container, Yama, or a process that
// made itself undumpable. The peer does the copy, through a buffer that both processes have mapped.
//
//   sender (BounceClient)                         owner (BounceServer)
//   connect to "bounce/<context id>"        ->    the Loop accepts; a separate thread serves
//   {descriptor of the buffer}              ->    maps the buffer
//                                           <-    {ready}
//   {write, key, address, length, turn}     ->    takes the turn, looks up the key, copies, answers 0 or an
//                                                 errno
//
// The owner may be stopped or hang. A pending request is therefore the turn word of the buffer. The owner
// takes the word and the sender withdraws it, each with one CAS, so a withdrawn request never runs. The
// sender waits for kAnswerWithinMs, then withdraws the request. It sends no further request until the owner
// answers that it did not run the withdrawn request (Ready). If the owner took a request and does not answer,
// the request may or may not have run.
//
// Atomic operations on private memory always use this path: the kernel can copy for other processes, but
// cannot change a word of another process atomically.
//
// The first connection starts the thread. It is not the firmware thread: two processes that bounce to each
// other from their firmware threads would deadlock. For copies, the thread accesses its own memory through
// /proc/self/mem, so unmapped memory gives an errno instead of a crash. Access control: the sender has the
// same user, and the key must cover the range.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_BOUNCE_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_BOUNCE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/softdc/loop/unique_fd.h"
#include "transport/softdc/shm/layout.h"
#include "transport/softdc/shm/word_change.h"

namespace sluice::softdc::shm {

inline constexpr uint64_t kBounceBytes = uint64_t{1} << 20;  // maximum size of one request
inline constexpr int kAnswerWithinMs = 50;                   // a copy takes microseconds

// Type of a message. kBuffer is the first message of a connection.
enum class BounceKind : uint32_t { kBuffer = 1, kWrite = 2, kRead = 3, kChange = 4 };

class BounceServer {
 public:
  // Serves the regions of one context. The table outlives the server.
  BounceServer(uint64_t context_id, const MemoryRegionEntry* regions);
  // Blocks until the copy in progress has ended.
  ~BounceServer();
  BounceServer(const BounceServer&) = delete;
  BounceServer& operator=(const BounceServer&) = delete;

  // Returns the number of bounce threads in this process. They write to registered memory only.
  static int threads();

 private:
  struct Client;
  void OnConnect();
  void PauseAccepting();
  void ThreadMain();
  bool ServeOne(Client& client);

  const MemoryRegionEntry* const regions_;
  UniqueFd listening_;
  // Loop; not 0: accepting is paused because the process is out of descriptors
  uint64_t accept_timer_ = 0;
  UniqueFd wake_;  // eventfd: a new client arrived, or the server ends
  UniqueFd memory_;
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Client>> arrived_;  // mutex_
  std::thread thread_;                            // started on the Loop
};

// Belongs to one link. The lock of the link covers all calls.
class BounceClient {
 public:
  // Returns null if no server listens, or the buffer cannot be allocated.
  static std::unique_ptr<BounceClient> Connect(uint64_t context_id);
  ~BounceClient();

  // Returns false if the peer has not accepted the connection yet, or does not answer. Never blocks: a caller
  // that waited here could wait for a thread that waits for the caller.
  bool Ready();

  // Requires Ready(). Returns 0 or an errno. Blocks for at most twice kAnswerWithinMs for each kBounceBytes.
  // The range must lie in the region of the peer that `key` names.
  //   EAGAIN          the peer does not answer; the rest of the copy did not run and will not run
  //   EINPROGRESS     the peer does not answer; the last piece may run later
  //   EACCES, EFAULT  the peer refused the request; the client remains usable
  //   other           the client is no longer usable
  int Write(uint32_t key, uint64_t peer_address, const std::byte* from, uint64_t length_bytes);
  int Read(uint32_t key, uint64_t peer_address, std::byte* to, uint64_t length_bytes);
  // *before: value of the word before the operation.
  int Change(uint32_t key, uint64_t peer_address, const WordChange& change, uint64_t* before);

 private:
  BounceClient(UniqueFd socket, std::byte* buffer) : socket_(std::move(socket)), buffer_(buffer) {}
  int Ask(BounceKind kind, uint32_t key, uint64_t peer_address, uint64_t length_bytes);
  bool Answered() const;

  const UniqueFd socket_;
  std::byte* const buffer_;
  bool ready_ = false;
  uint64_t turn_ = 0;  // of the last request
};

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_BOUNCE_H_
