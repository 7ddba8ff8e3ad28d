// SPDX-License-Identifier: Apache-2.0
//
// HeldMemory: registered memory of an endpoint whose holder releases it at any time.
//
// Purpose       Lent and fetched memory of an endpoint is otherwise released inside a callback. A
//               HeldMemory is a move-only piece of it that its destructor releases. The destructor
//               only sets a flag; the polling thread looks for flags when their number has changed.
// Ownership     The holder owns it. It may outlive the endpoint: then the memory is deregistered,
//               and unmapped with the last holder.
// Threads       HeldMemory: any, one at a time. Holds: the polling thread.
// Limits        The endpoint's large_memory_bytes.
#ifndef SLUICE_TRANSPORT_ENDPOINT_HELD_MEMORY_H_
#define SLUICE_TRANSPORT_ENDPOINT_HELD_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"

namespace sluice::endpoint {

class HeldMemory {
 public:
  HeldMemory() = default;  // empty
  HeldMemory(HeldMemory&&) noexcept = default;
  HeldMemory& operator=(HeldMemory&& other) noexcept {
    if (this != &other) {
      Reset();
      record_ = std::move(other.record_);
    }
    return *this;
  }
  ~HeldMemory() { Reset(); }

  // Releases the memory.
  void Reset();
  explicit operator bool() const { return record_ != nullptr; }
  std::byte* data() const { return record_->data; }
  uint64_t bytes() const { return record_->bytes; }
  uint32_t number() const { return record_->number; }  // used by the endpoint; opaque
  uint64_t owner() const { return record_->owner; }    // the peer; only it can read the memory

 private:
  friend class Holds;

  // State shared by holders and endpoint.
  struct Board {
    std::atomic<uint64_t> returned{0};  // number of released pieces
    std::atomic<bool> wanted{false};    // the endpoint sleeps, and a caller waits for memory
    std::mutex mutex;                   // held while `wake` is called or cleared
    std::function<void()> wake;         // guarded by `mutex`; empty: the endpoint has ended
  };
  struct Record {
    std::byte* data;
    uint64_t bytes;
    uint32_t number;
    uint64_t owner;
    std::shared_ptr<Board> board;
    std::atomic<bool> over{false};  // the holder has released the memory
    std::shared_ptr<void> kept;     // owns the memory after the endpoint's end
  };

  explicit HeldMemory(std::shared_ptr<Record> record) : record_(std::move(record)) {}

  std::shared_ptr<Record> record_;
};

// The held memory of one endpoint. A piece may be lent to its peer at the same time: it is free
// when both have ended.
class Holds {
 public:
  // `wake` may be called by any thread until Leave() returns.
  explicit Holds(std::function<void()> wake);
  Holds(const Holds&) = delete;
  Holds& operator=(const Holds&) = delete;

  HeldMemory Hold(std::byte* data, uint64_t bytes, uint32_t number, uint64_t owner, bool lent);
  // Returns whether the memory belongs to this endpoint.
  bool Owns(const HeldMemory& memory) const { return memory.record_->board == board_; }
  // Lends the memory again. False: it is lent already, or is not this endpoint's.
  bool Lend(const HeldMemory& memory);
  // Ends a loan. True: the memory is still held.
  bool EndLoan(uint32_t number);

  bool changed() const {
    return !entries_.empty() && board_->returned.load(std::memory_order_acquire) != seen_;
  }
  // Calls `free` for each piece that is free now, and removes it.
  void Collect(absl::FunctionRef<void(uint32_t number)> free);
  // Call before a sleep while a caller waits for memory. False: memory was released meanwhile.
  bool PrepareToSleep();

  uint64_t bytes() const { return bytes_; }
  void ForEachOf(uint64_t owner, absl::FunctionRef<void(uint32_t number)> visit) const;
  // The endpoint ends: each held piece keeps the object that `keep` returns for it.
  void Leave(absl::FunctionRef<std::shared_ptr<void>(uint32_t number)> keep);

 private:
  struct Entry {
    std::shared_ptr<HeldMemory::Record> record;
    bool lent = false;
  };

  const std::shared_ptr<HeldMemory::Board> board_;
  absl::flat_hash_map<uint32_t, Entry> entries_;  // by number
  uint64_t seen_ = 0;                             // value of Board::returned at the last Collect()
  uint64_t bytes_ = 0;
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_HELD_MEMORY_H_
