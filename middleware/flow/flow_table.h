// SPDX-License-Identifier: Apache-2.0
//
// FlowTable: the flows of one engine, and the lists that they are in.
//
// Purpose       Places in large blocks that never move. A place has a generation, so that a handle to an ended flow finds no flow. A
//               list is a pair of indexes; its links are in the places.
// Ownership     FlowEngine.
// Threads       The polling thread.
// Limits        `capacity` places, kIdleFlowBytes of memory each.
#ifndef SLUICE_MIDDLEWARE_FLOW_FLOW_TABLE_H_
#define SLUICE_MIDDLEWARE_FLOW_FLOW_TABLE_H_

#include <cassert>
#include <cstdint>
#include <memory>
#include <vector>

#include "middleware/flow/flow.h"
#include "middleware/flow/flow_state.h"

namespace sluice::flow {

inline constexpr uint32_t kNone = UINT32_MAX;

// Control messages of a flow that this end sends when it has a credit of the peer, in this order.
enum Owed : uint8_t { kOweOpen = 1, kOweAccept = 2, kOweWindow = 4, kOweClose = 8 };

struct Links {
  uint32_t previous = kNone;
  uint32_t next = kNone;
};

struct Record {
  FlowHandler* handler = nullptr;  // nullptr: none, or OnClosed() was called
  // Numbers of messages. The wire carries the lower 32 bits of the sums.
  uint64_t sent = 0;
  uint64_t delivered = 0;
  uint64_t received = 0;
  uint32_t consumed = 0;
  uint32_t window = 0;      // from the options; the other end may send consumed + window
  uint32_t told = 0;        // this sum, as last sent to the other end
  uint32_t send_limit = 0;  // this sum of the other end, as last received
  uint32_t generation = 1;
  uint32_t connection = kNone;  // PeerId::index
  uint32_t remote = kNone;      // index of the flow at the other end
  Links of_connection;          // or in the free list (next)
  Links in_line;
  FlowState state = FlowState::kFree;
  Priority priority = Priority::kNormal;
  uint8_t owed = 0;                 // bits of Owed
  bool linked : 1 = false;          // in a line
  bool waits_for_turn : 1 = false;  // in a line to write, counted by the connection
  bool waits_for_window : 1 = false;
  bool touched : 1 = false;  // delivered has grown, OnDelivered() is due
  bool refused : 1 = false;  // never open: the peer does not know the index
  bool manual_consume : 1 = false;
  bool report_delivery : 1 = false;

  bool has_window() const { return send_limit != static_cast<uint32_t>(sent); }
  FlowTotals totals() const { return {sent, delivered, received}; }
};

inline constexpr size_t kIdleFlowBytes = sizeof(Record);
static_assert(kIdleFlowBytes <= 88);

class FlowTable {
 public:
  explicit FlowTable(uint32_t capacity) : capacity_(capacity) {}

  // Returns the index of a record with initial values, except its generation. Returns kNone if the table is full.
  uint32_t Take() {
    if (free_ == kNone && !Grow()) return kNone;
    const uint32_t index = free_;
    Record& record = (*this)[index];
    free_ = record.of_connection.next;
    record.of_connection = {};
    ++used_;
    return index;
  }
  void Release(uint32_t index) {
    Record& record = (*this)[index];
    assert(record.state == FlowState::kFree && !record.linked);
    const uint32_t generation = record.generation + 1;
    record = {};
    record.generation = generation;
    record.of_connection.next = free_;
    free_ = index;
    --used_;
  }

  Record& operator[](uint32_t index) { return pieces_[index / kPiece][index % kPiece]; }
  const Record& operator[](uint32_t index) const { return pieces_[index / kPiece][index % kPiece]; }
  // Returns nullptr if there is no such flow. Takes any number.
  Record* Find(uint32_t index) {
    if (index / kPiece >= pieces_.size()) return nullptr;
    Record& record = (*this)[index];
    return record.state == FlowState::kFree ? nullptr : &record;
  }
  Record* Find(uint32_t index, uint32_t generation) {
    Record* record = Find(index);
    return record == nullptr || record->generation != generation ? nullptr : record;
  }

  uint32_t used() const { return used_; }
  size_t memory_bytes() const { return pieces_.size() * kPiece * sizeof(Record); }

 private:
  static constexpr uint32_t kPiece = 1024;

  bool Grow() {
    const auto first = static_cast<uint32_t>(pieces_.size()) * kPiece;
    if (first >= capacity_) return false;
    pieces_.push_back(std::make_unique<Record[]>(kPiece));
    for (uint32_t i = kPiece; i > 0; --i) {
      (*this)[first + i - 1].of_connection.next = free_;
      free_ = first + i - 1;
    }
    return true;
  }

  const uint32_t capacity_;  // the last piece is complete, so there may be more places
  std::vector<std::unique_ptr<Record[]>> pieces_;
  uint32_t free_ = kNone;
  uint32_t used_ = 0;
};

// List of flows through one of the links of their records.
template <Links Record::*kLinks>
class FlowList {
 public:
  bool empty() const { return first_ == kNone; }
  uint32_t first() const { return first_; }
  void PushBack(FlowTable& table, uint32_t index) {
    table[index].*kLinks = {last_, kNone};
    (last_ == kNone ? first_ : (table[last_].*kLinks).next) = index;
    last_ = index;
  }
  void PushFront(FlowTable& table, uint32_t index) {
    table[index].*kLinks = {kNone, first_};
    (first_ == kNone ? last_ : (table[first_].*kLinks).previous) = index;
    first_ = index;
  }
  void Remove(FlowTable& table, uint32_t index) {
    const Links links = table[index].*kLinks;
    (links.previous == kNone ? first_ : (table[links.previous].*kLinks).next) = links.next;
    (links.next == kNone ? last_ : (table[links.next].*kLinks).previous) = links.previous;
    table[index].*kLinks = {};
  }

 private:
  uint32_t first_ = kNone;
  uint32_t last_ = kNone;
};

}  // namespace sluice::flow

#endif  // SLUICE_MIDDLEWARE_FLOW_FLOW_TABLE_H_
