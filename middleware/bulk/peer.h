// SPDX-License-Identifier: Apache-2.0
//
// State of a port for each peer port. Private to middleware/bulk.
#ifndef SLUICE_MIDDLEWARE_BULK_PEER_H_
#define SLUICE_MIDDLEWARE_BULK_PEER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "middleware/bulk/port.h"
#include "transport/memory/region.h"

namespace sluice::bulk {

// Transfers of a peer that a lender remembers: those of which a notice has come, and those before them.
inline constexpr uint64_t kMaxIncoming = 4096;
// So many may pass one that is slow, or waits. Less, since the words of one way are looked at before those of the other.
inline constexpr uint64_t kMaxPassing = kMaxIncoming / 2;

// One of the peer's transfers, from the first notice of it until all before it have been told of.
struct Port::Incoming {
  bool whole() const { return pieces != 0 && next == end; }

  uint32_t pieces = 0;                  // as every notice of it says; 0: nothing has come of it
  uint32_t next = 0;                    // the first piece of which nothing has come
  uint32_t after = 0;                   // behind the last piece of which something has come
  uint32_t end = 0;                     // the first piece that will not come
  absl::flat_hash_set<uint32_t> early;  // pieces behind `next` that have come
  Arrival arrival;
};

// The queue pair for protected transfers with a peer. Each side makes its own, says where it is, connects it to the other's, and
// says that it is ready; it sends once it has heard that as well.
struct Port::SignedWay {
  struct There {
    uint32_t qp_number = 0;
    uint32_t notices = 0;  // that it takes
    uint8_t reads = 1;     // that its device answers at a time
  };

  bool up() const { return connected && ready_heard && !dropped; }
  bool exists() const { return busy || queue != nullptr; }
  // The next step is the peer's.
  bool awaited() const {
    return queue != nullptr && !busy && !dropped && (!up() || !ready_said || close_said || mute);
  }

  std::unique_ptr<integrity::SignedQueue> queue;
  std::optional<There> there;
  uint64_t used = 0;  // when, in uses of the port
  // Time at which another peer is asked for its place, if this queue is not closed by then.
  int64_t close_by_ns = 0;
  // While this side waits for the peer: when it began, or when a notice came last.
  int64_t awaited_ns = 0;
  bool wanted = false;     // here or there
  bool busy = false;       // a command uses the queue: no other code touches it
  bool said = false;       // where it is
  bool connected = false;  // polled from here on
  bool ready_said = false;
  bool ready_heard = false;
  bool close_said = false;
  bool close_heard = false;
  bool mute = false;     // it is to be closed, and the peer takes no word
  bool dropped = false;  // not needed: its end does not end the peer
  bool ended = false;
};

struct Port::Peer final : integrity::SignedQueueUser {
  // kLeaving: being disconnected; requests may still be in flight.
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
  void OnDown(const absl::Status& status) override { port.OnQueueDown(*this, status); }

  // Those before it have to end first.
  bool IsFarAhead(const Outgoing& out) const {
    return out.number - outgoing.front()->number >= kMaxPassing;
  }
  bool living() const { return state == State::kOffered || state == State::kUp; }
  // Its queue is to be polled.
  bool polled() const {
    return way.connected && !way.ended && (state == State::kUp || state == State::kLeaving);
  }

  // Returns true when no request of the peer is in flight.
  bool Parted() const {
    return state == State::kLeaving && moved_out && !way.busy &&
           (way.queue == nullptr || way.ended);
  }

  Port& port;
  PeerId id;
  State state = State::kFree;
  // Null: the peer is of shared reach. It outlives the queue in `way`.
  std::shared_ptr<memory::Domain> domain;
  SignedWay way;
  bool moved_out = false;    // the mover has released the peer
  uint64_t number = 0;       // of the port there
  uint32_t piece_bytes = 0;  // of protected transfers, either way: the smaller limit of both ports
  uint64_t token = 0;        // that it gave this side
  std::array<std::byte, 16> gid = {};
  uint16_t lid = 0;
  absl::Status why;
  uint64_t used = 0;  // when, in uses of the port
  uint64_t next_number = 0;
  std::vector<Outgoing*> outgoing;  // in their order
  uint64_t next_arrival = 0;
  std::deque<Incoming> incoming;  // from next_arrival on
  uint32_t early = 0;             // pieces, in all of those
};

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_PEER_H_
