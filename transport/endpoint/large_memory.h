// SPDX-License-Identifier: Apache-2.0
//
// LargeMemory: registered buffers for large messages, allocated when they are needed and kept for reuse.
//
// Purpose       Take() maps memory at once. Commands register it while its user fills it. A buffer that is returned is kept for the
//               same owner: that owner knows a key for it, so it must not hold another owner's message. For another owner
//               the buffer is freed, and memory with another key is allocated.
// Ownership     The endpoint has one for lent memory and one for fetched memory. Commands outlives it, and has finished before
//               its destructor runs.
// Threads       The polling thread. User::ready is called inside Commands::Drain(), and User::room also inside Give().
// Limits        Bytes, including memory that is being registered or deregistered. If a buffer does not fit, kept buffers are freed,
//               the least recently used first. One owner gets at most half of what the others leave, or one buffer. So an owner
//               that returns nothing leaves room for the others.
#ifndef SLUICE_TRANSPORT_ENDPOINT_LARGE_MEMORY_H_
#define SLUICE_TRANSPORT_ENDPOINT_LARGE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "transport/memory/slab.h"
#include "transport/poller/commands.h"

namespace sluice::endpoint {

class LargeMemory {
 public:
  static constexpr uint32_t kNone = 0xffffffff;
  static constexpr uint32_t kFailed = 0xfffffffe;
  static constexpr uint32_t kOverShare = 0xfffffffd;
  // An owner without a share: it may take all memory.
  static constexpr uint64_t kEverybody = 0;
  static constexpr uint64_t kShareOfRest = 2;

  struct User {
    // Called when a buffer is registered, or its registration has failed.
    std::function<void(uint32_t number, const absl::Status& status)> ready;
    // Called when there may be room for a Take() that found none.
    std::function<void()> room;
  };

  LargeMemory(const verbs::VerbsApi& api, ibv_pd* pd, poller::Commands& commands,
              uint64_t limit_bytes, int access, User user);

  // Takes a buffer of at least `bytes`, which must not be over the limit. Commands register a new buffer. Returns its number, or:
  // kNone: no room. kOverShare: the owner has its share already. User::room follows both.
  // kFailed: the system has no memory; last_error() returns the cause.
  // `domain`: protection domain for new memory, the same in all calls of an owner; null: the domain of the constructor.
  uint32_t Take(uint64_t owner, uint64_t bytes, ibv_pd* domain = nullptr);
  // Returns the size of a new buffer for `bytes`.
  uint64_t SizeFor(uint64_t bytes) const;
  // Returns whether the buffer is registered.
  bool ready(uint32_t number) const { return buffers_[number].state == State::kReady; }
  std::byte* data(uint32_t number) const { return buffers_[number].slab.data(); }
  uint32_t lkey(uint32_t number) const { return buffers_[number].slab.lkey(); }
  uint32_t rkey(uint32_t number) const { return buffers_[number].slab.rkey(); }
  uint64_t owner(uint32_t number) const { return buffers_[number].owner; }
  uint64_t size_bytes(uint32_t number) const { return buffers_[number].slab.size_bytes(); }
  // Returns a buffer. It is kept for its owner if it is registered, and discarded otherwise.
  void Give(uint32_t number);
  // Frees a buffer. Its keys become invalid before its memory is unmapped.
  void Discard(uint32_t number);
  // Starts to invalidate the keys of a buffer. Its user keeps the memory until Give() or Discard().
  void Revoke(uint32_t number);
  // Returns whether the owner may read the buffer, now or when it is registered.
  bool lendable(uint32_t number) const {
    const Buffer& buffer = buffers_[number];
    return !buffer.revoked &&
           (buffer.state == State::kReady || buffer.state == State::kRegistering);
  }
  // Deregisters a buffer, and returns an object that owns its memory, for a user that outlives this object. Call it after Commands has
  // finished.
  std::shared_ptr<void> Abandon(uint32_t number);
  // Discards the buffers that are kept for this owner.
  void Forget(uint64_t owner);

  const absl::Status& last_error() const { return last_error_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t limit_bytes() const { return limit_bytes_; }
  size_t kept() const { return kept_.size(); }

 private:
  enum class State : uint8_t { kNobody, kRegistering, kReady, kRevoking, kFailed, kGoing };
  struct Buffer {
    State state = State::kNobody;
    bool discarded = false;  // to be freed when its command has ended
    bool revoked = false;
    bool taken = false;  // counted in taken_
    uint64_t owner = 0;
    ibv_pd* domain = nullptr;
    memory::Slab slab;
  };

  void Register(uint32_t number);
  bool IsOverShare(uint64_t owner, uint64_t size) const;
  uint32_t Count(uint32_t number);
  void Uncount(Buffer* buffer);

  const verbs::VerbsApi& api_;
  ibv_pd* const pd_;
  poller::Commands& commands_;
  const uint64_t limit_bytes_;
  const int access_;
  const User user_;
  std::deque<Buffer> buffers_;  // addresses are stable: a command may use a buffer
  std::vector<uint32_t> free_;
  std::deque<uint32_t> kept_;  // least recently used first
  uint64_t bytes_ = 0;
  uint64_t taken_ = 0;                                // bytes in use, of bytes_
  absl::flat_hash_map<uint64_t, uint64_t> taken_by_;  // bytes, by owner
  absl::Status last_error_;
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_LARGE_MEMORY_H_
