// SPDX-License-Identifier: Apache-2.0
//
// What a port keeps of each port at the other end.
#ifndef SLUICE_MIDDLEWARE_BULK_PEER_H_
#define SLUICE_MIDDLEWARE_BULK_PEER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "middleware/bulk/port.h"

namespace sluice::bulk {

// One of the peer's transfers, from the first notice of it until all before it have been told of.
struct Port::Incoming {
  uint32_t pieces = 0;  // 0: nothing has come of it
  uint32_t missing = 0;
  std::vector<bool> seen;
  Arrival arrival;
};

struct Port::Peer final : integrity::SignedQueueUser {
  // kLeaving: given up, and something may still be under way.
  enum class State : uint8_t { kFree, kOffered, kUp, kLeaving, kDown, kBuried };

  explicit Peer(Port& to) : port(to) {}

  uint32_t OnMismatch(uint64_t cookie, const integrity::Mismatch& mismatch,
                      std::span<std::byte> room) override {
    return port.OnMismatch(cookie, mismatch, room);
  }
  void OnEnd(uint64_t cookie, const absl::Status& status, bool /*replied*/) override {
    port.OnPieceEnd(cookie, status);
  }
  void OnReply(std::span<const std::byte> bytes) override { port.OnNotice(*this, bytes); }
  void OnDown(const absl::Status& status) override {
    queue_ended = true;
    port.GiveUp(*this, status);
    port.Parted(*this);
  }

  bool living() const { return state == State::kOffered || state == State::kUp; }
  // Something of it is to be polled.
  bool active() const { return living() || state == State::kLeaving; }

  Port& port;
  PeerId id;
  State state = State::kFree;
  std::unique_ptr<integrity::SignedQueue> queue;
  bool queue_ended = false;
  bool way_ended = false;  // at the mover
  uint64_t number = 0;     // of the port there
  uint32_t notices = 0;    // that it takes by its queue
  absl::Status why;
  uint64_t used = 0;  // when, in uses of the port
  uint64_t next_number = 0;
  std::vector<Outgoing*> outgoing;  // in their order
  uint64_t next_arrival = 0;
  std::deque<Incoming> incoming;  // from next_arrival on
};

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_PEER_H_
