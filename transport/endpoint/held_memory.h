// SPDX-License-Identifier: Apache-2.0
//
// HeldMemory: registered memory of an endpoint in the hands of somebody who gives it back when he likes.
//
// What it is    What an endpoint lends, or has fetched, is otherwise given back inside a callback. This is a piece of it with
//               an owner of its own: move-only, given back by its destructor. Nothing is called there: a flag is set, and the
//               polling thread looks for such flags when their number has changed.
// Who owns it   Whoever has it. It may outlive the endpoint: then no device knows the memory any more, and it is unmapped
//               with the last that holds it.
// Which thread  Any, one at a time. Holds is the endpoint's, on the polling thread.
// Bound         The endpoint's large_memory_bytes.
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
  HeldMemory() = default;  // of nothing
  HeldMemory(HeldMemory&&) noexcept = default;
  HeldMemory& operator=(HeldMemory&& other) noexcept {
    if (this != &other) {
      Reset();
      record_ = std::move(other.record_);
    }
    return *this;
  }
  ~HeldMemory() { Reset(); }

  // Gives it back.
  void Reset();
  explicit operator bool() const { return record_ != nullptr; }
  std::byte* data() const { return record_->data; }
  uint64_t bytes() const { return record_->bytes; }
  uint32_t number() const { return record_->number; }  // the endpoint's own; opaque
  uint64_t owner() const { return record_->owner; }    // the peer's: it can be lent to no other

 private:
  friend class Holds;

  // Where those who give back and the endpoint meet.
  struct Board {
    std::atomic<uint64_t> returned{0};
    std::atomic<bool> wanted{false};  // the endpoint sleeps, and somebody waits for memory
    std::mutex mutex;                 // for waking, and for the endpoint's end
    std::function<void()> wake;       // mutex; empty: the endpoint is gone
  };
  struct Record {
    std::byte* data;
    uint64_t bytes;
    uint32_t number;
    uint64_t owner;
    std::shared_ptr<Board> board;
    std::atomic<bool> over{false};
    std::shared_ptr<void> kept;  // the memory itself, once the endpoint is gone
  };

  explicit HeldMemory(std::shared_ptr<Record> record) : record_(std::move(record)) {}

  std::shared_ptr<Record> record_;
};

// What of one endpoint's memory is held. A piece may be lent to its peer at the same time: it is free when both are over.
class Holds {
 public:
  // `wake` may be called by any thread until Leave() returns.
  explicit Holds(std::function<void()> wake);
  Holds(const Holds&) = delete;
  Holds& operator=(const Holds&) = delete;

  HeldMemory Hold(std::byte* data, uint64_t bytes, uint32_t number, uint64_t owner, bool lent);
  // It is of this endpoint.
  bool Owns(const HeldMemory& memory) const { return memory.record_->board == board_; }
  // Lends it once more. False: it is lent already, or somebody else's.
  bool Lend(const HeldMemory& memory);
  // It is not lent any more. True: somebody holds it still.
  bool TakeBack(uint32_t number);

  bool changed() const {
    return !entries_.empty() && board_->returned.load(std::memory_order_acquire) != seen_;
  }
  // Says which are free now, and forgets them.
  void Collect(absl::FunctionRef<void(uint32_t number)> free);
  // Before a sleep in which somebody waits for memory. False: some has come back.
  bool PrepareToSleep();

  uint64_t bytes() const { return bytes_; }
  void ForEachOf(uint64_t owner, absl::FunctionRef<void(uint32_t number)> visit) const;
  // The endpoint goes: what is still held keeps what `keep` gives for it.
  void Leave(absl::FunctionRef<std::shared_ptr<void>(uint32_t number)> keep);

 private:
  struct Entry {
    std::shared_ptr<HeldMemory::Record> record;
    bool lent = false;
  };

  const std::shared_ptr<HeldMemory::Board> board_;
  absl::flat_hash_map<uint32_t, Entry> entries_;  // by number
  uint64_t seen_ = 0;                             // of Board::returned
  uint64_t bytes_ = 0;
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_HELD_MEMORY_H_
