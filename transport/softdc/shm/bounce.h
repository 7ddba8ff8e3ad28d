// SPDX-License-Identifier: Apache-2.0
//
// The last way to a peer's private memory, for where the kernel refuses process_vm_readv and _writev
// (a container's system call filter, Yama, a process that made itself undumpable): the peer copies
// for us, through a buffer that both have mapped.
//
//   sender (BounceClient)                         owner (BounceServer)
//   connect to "bounce/<context id>"        ->    the Loop accepts, a thread of its own serves
//   {buffer's descriptor}                   ->    maps it
//                                           <-    {ready}
//   {write, key, address, length, turn}     ->    takes the turn, looks the key up, copies, answers 0 or an
//                                                 errno
//
// The owner may stand still. So a request waits as the turn word of the buffer, which the owner takes and
// the sender withdraws, each with one CAS: a withdrawn request is never run. The sender waits for
// kAnswerWithinMs, withdraws the request, and asks nothing more until the owner has answered that it got
// none (Ready). A request that the owner had taken already, and does not answer, may have run or not.
//
// For atomic operations it is the only way, whatever the kernel allows: it copies for others, but
// changes no word in one step.
//
// The thread is started by the first who connects; it is not the firmware thread, since two processes
// that bounce to one another from theirs would deadlock. It reaches its own memory through
// /proc/self/mem, so memory that is gone is an errno and not a crash. Strangers get nothing: the
// sender is of the same user, and the key has to cover the range.
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

inline constexpr uint64_t kBounceBytes = uint64_t{1} << 20;  // of one request
inline constexpr int kAnswerWithinMs = 50;                   // a copy takes microseconds

// What a message asks for; kBuffer is the first.
enum class BounceKind : uint32_t { kBuffer = 1, kWrite = 2, kRead = 3, kChange = 4 };

class BounceServer {
 public:
  // Serves the regions of one context. The table outlives the server.
  BounceServer(uint64_t context_id, const MemoryRegionEntry* regions);
  // Waits until the copy under way is done.
  ~BounceServer();
  BounceServer(const BounceServer&) = delete;
  BounceServer& operator=(const BounceServer&) = delete;

  // Threads of this kind in the process: they touch registered memory only.
  static int threads();

 private:
  struct Client;
  void OnConnect();
  void PauseAccepting();
  void ThreadMain();
  bool ServeOne(Client& client);

  const MemoryRegionEntry* const regions_;
  UniqueFd listening_;
  uint64_t accept_timer_ = 0;  // Loop: there are no descriptors for those who connect, until then
  UniqueFd wake_;              // eventfd: there is a new client, or it is over
  UniqueFd memory_;
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Client>> arrived_;  // mutex_
  std::thread thread_;                            // started on the Loop
};

// One link's; its lock covers all calls.
class BounceClient {
 public:
  // Null: nobody there, or no memory.
  static std::unique_ptr<BounceClient> Connect(uint64_t context_id);
  ~BounceClient();

  // False: the peer's firmware thread has not let us in yet, or the peer stands still; never blocks.
  // Whoever waited here could wait for a thread that waits for him.
  bool Ready();

  // When Ready: 0 or errno; blocks for at most twice kAnswerWithinMs for each kBounceBytes. The range lies in
  // the peer's region that `key` names. EAGAIN: the peer stands still, and nothing runs (any more) of what was
  // not done. EINPROGRESS: it stands still, and the last piece may run later. After anything but these, 0,
  // EACCES and EFAULT the client is of no use any more.
  int Write(uint32_t key, uint64_t peer_address, const std::byte* from, uint64_t length_bytes);
  int Read(uint32_t key, uint64_t peer_address, std::byte* to, uint64_t length_bytes);
  // *before: what the word held.
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
