// SPDX-License-Identifier: Apache-2.0
//
// RecordTable: records by index that never move. The table grows by kBlock records and never shrinks. A record costs only its own
// size: no pointer, no allocation of its own.
//
// Threads       One.
#ifndef SLUICE_TRANSPORT_BASE_RECORD_TABLE_H_
#define SLUICE_TRANSPORT_BASE_RECORD_TABLE_H_

#include <cstddef>
#include <memory>
#include <vector>

namespace sluice::base {

template <typename T>
class RecordTable {
 public:
  static constexpr size_t kBlock = 32;

  // Constness is shallow: the caller can change a record of a const table.
  T& operator[](size_t index) const { return blocks_[index / kBlock][index % kBlock]; }
  size_t size() const { return size_; }

  // Appends a record and returns it.
  T& Add() {
    if (size_ % kBlock == 0) blocks_.push_back(std::make_unique<T[]>(kBlock));
    return (*this)[size_++];
  }

 private:
  std::vector<std::unique_ptr<T[]>> blocks_;
  size_t size_ = 0;
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_RECORD_TABLE_H_
