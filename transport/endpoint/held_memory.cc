// SPDX-License-Identifier: Apache-2.0
#include "transport/endpoint/held_memory.h"

#include <vector>

namespace sluice::endpoint {

void HeldMemory::Reset() {
  if (record_ == nullptr) return;
  const std::shared_ptr<Record> record = std::move(record_);
  Board& board = *record->board;
  record->over.store(true, std::memory_order_release);
  // Ordered with `wanted`: the endpoint either sees the release before it sleeps, or is woken.
  board.returned.fetch_add(1, std::memory_order_seq_cst);
  if (!board.wanted.load(std::memory_order_seq_cst) || !board.wanted.exchange(false)) return;
  std::lock_guard lock(board.mutex);
  if (board.wake) board.wake();
}

Holds::Holds(std::function<void()> wake) : board_(std::make_shared<HeldMemory::Board>()) {
  board_->wake = std::move(wake);
}

HeldMemory Holds::Hold(std::byte* data, uint64_t bytes, uint32_t number, uint64_t owner,
                       bool lent) {
  auto record = std::make_shared<HeldMemory::Record>();
  record->data = data;
  record->bytes = bytes;
  record->number = number;
  record->owner = owner;
  record->board = board_;
  entries_[number] = {record, lent};
  bytes_ += bytes;
  return HeldMemory(std::move(record));
}

bool Holds::Lend(const HeldMemory& memory) {
  if (!Owns(memory)) return false;
  return !std::exchange(entries_.at(memory.number()).lent, true);
}

bool Holds::EndLoan(uint32_t number) {
  const auto entry = entries_.find(number);
  if (entry == entries_.end()) return false;
  entry->second.lent = false;
  if (!entry->second.record->over.load(std::memory_order_acquire)) return true;
  bytes_ -= entry->second.record->bytes;
  entries_.erase(entry);
  return false;
}

void Holds::Collect(absl::FunctionRef<void(uint32_t number)> free) {
  seen_ = board_->returned.load(std::memory_order_seq_cst);
  std::vector<uint32_t> over;
  for (const auto& [number, entry] : entries_) {
    if (!entry.lent && entry.record->over.load(std::memory_order_acquire)) over.push_back(number);
  }
  for (const uint32_t number : over) {
    bytes_ -= entries_.at(number).record->bytes;
    entries_.erase(number);
    free(number);
  }
}

bool Holds::PrepareToSleep() {
  if (entries_.empty()) return true;
  board_->wanted.store(true, std::memory_order_seq_cst);
  if (board_->returned.load(std::memory_order_seq_cst) == seen_) return true;
  board_->wanted.store(false, std::memory_order_relaxed);
  return false;
}

void Holds::ForEachOf(uint64_t owner, absl::FunctionRef<void(uint32_t number)> visit) const {
  for (const auto& [number, entry] : entries_) {
    if (entry.record->owner == owner) visit(number);
  }
}

void Holds::Leave(absl::FunctionRef<std::shared_ptr<void>(uint32_t number)> keep) {
  for (const auto& [number, entry] : entries_) entry.record->kept = keep(number);
  entries_.clear();
  bytes_ = 0;
  std::lock_guard lock(board_->mutex);
  board_->wake = nullptr;
}

}  // namespace sluice::endpoint
