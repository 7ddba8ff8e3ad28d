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

// Maximum number of transfers of a peer that a lender has not reported yet: transfers with a notice, and all transfers before them.
inline constexpr uint64_t kMaxIncoming = 4096;
// Maximum number of transfers by which a transfer in progress may be ahead of the peer's oldest open transfer. Below kMaxIncoming,
// because the lender reads all notices of one path (queue pair or mover) before the notices of the other path.
inline constexpr uint64_t kMaxPassing = kMaxIncoming / 2;

// State of one transfer of the peer, until OnArrival() reports it, after all earlier transfers.
struct Port::Incoming {
  bool whole() const { return pieces != 0 && next == end; }

  uint32_t pieces = 0;  // number of pieces, the same in each notice; 0: no notice arrived yet
  uint32_t next = 0;    // first piece without a notice
  uint32_t after = 0;   // last piece with a notice, plus 1
  uint32_t end = 0;     // this piece and all later pieces will not arrive
  absl::flat_hash_set<uint32_t> early;  // pieces after `next` that have arrived
  Arrival arrival;
};

// The queue pair for protected transfers with a peer. Each side creates its queue pair, sends the address (kQueue), connects to the
// queue pair of the peer, and sends kReady. A side starts transfers when it is connected and has received kReady.
struct Port::SignedWay {
  struct There {
    uint32_t qp_number = 0;
    uint32_t notices = 0;  // maximum number of notices in flight to the peer
    uint8_t reads = 1;     // maximum number of RDMA READs that its device answers at a time
  };

  bool up() const { return connected && ready_heard && !dropped; }
  bool exists() const { return busy || queue != nullptr; }
  // Returns true if the peer has to take the next step.
  bool awaited() const {
    return queue != nullptr && !busy && !dropped && (!up() || !ready_said || close_said || mute);
  }

  std::unique_ptr<integrity::SignedQueue> queue;
  std::optional<There> there;
  uint64_t used = 0;  // Port::uses_ at the last use
  // Time after which the port asks another peer to close its queue pair, if this queue pair is not closed by then.
  int64_t close_by_ns = 0;
  // While awaited(): start of the wait, or arrival time of the last notice.
  int64_t awaited_ns = 0;
  bool wanted = false;     // this side or the peer needs a queue pair
  bool busy = false;       // a command uses the queue: no other code touches it
  bool said = false;       // kQueue was sent
  bool connected = false;  // the queue is polled from now on
  bool ready_said = false;
  bool ready_heard = false;
  bool close_said = false;
  bool close_heard = false;
  bool mute = false;     // it may be closed, but no word can be sent to the peer
  bool dropped = false;  // closed by agreement: its end does not disconnect the peer
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

  // Returns true if earlier transfers must end before this transfer may continue.
  bool IsFarAhead(const Outgoing& out) const {
    return out.number - outgoing.front()->number >= kMaxPassing;
  }
  bool living() const { return state == State::kOffered || state == State::kUp; }
  // Returns true if its queue pair has to be polled.
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
  // Protection domain of a peer with Reach::kOwn; null: Reach::kShared. Outlives the queue in `way`.
  std::shared_ptr<memory::Domain> domain;
  SignedWay way;
  bool moved_out = false;  // the mover has released the peer
  int64_t join_by_ns =
      0;  // the peer is disconnected if it is not ready by then; 0: no transfer waits for it
  uint64_t number = 0;  // port number of the peer
  // Maximum size of a piece of a protected transfer, in both directions: the lower limit of the two ports.
  uint32_t piece_bytes = 0;
  uint64_t token = 0;  // token of the peer's ticket
  std::array<std::byte, 16> gid = {};
  uint16_t lid = 0;
  absl::Status why;
  uint64_t used = 0;  // Port::uses_ at the last use
  uint64_t next_number = 0;
  std::vector<Outgoing*> outgoing;  // in the order of Start()
  uint64_t next_arrival = 0;
  std::deque<Incoming> incoming;  // from next_arrival on
  uint32_t early = 0;             // total size of Incoming::early
};

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_PEER_H_
