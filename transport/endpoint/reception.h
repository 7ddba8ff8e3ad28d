// SPDX-License-Identifier: Apache-2.0
//
// Reception: the targets of one tenant's peers: a DCT and an SRQ for messages, another pair for control, with DC keys,
// receive buffers and limits of its own. A tenant that fills or floods its targets does not affect other tenants.
// Without tenants there is one Reception for all peers.
//
// Domain        Its protection domain holds all memory that its peers may reach: receive buffers, lanes that they write, and lent memory
//               that they read. A device refuses a key of another domain. So a peer that knows or guesses a key of another tenant
//               reaches nothing. Send queues, send buffers, address handles and fetched memory are in the device's own domain, which has
//               no DCT.
// Windows       Peers are granted receive buffers as windows, and return them (docs/decisions/0067). The order of windows in use and
//               the line of waiting peers are stored here; windows.cc changes them.
// Ownership     The endpoint, until its end.
// Threads       The polling thread.
#ifndef SLUICE_TRANSPORT_ENDPOINT_RECEPTION_H_
#define SLUICE_TRANSPORT_ENDPOINT_RECEPTION_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "transport/endpoint/endpoint.h"
#include "transport/peer/half_open.h"
#include "transport/peer/targets.h"
#include "transport/receive/receive_queue.h"
#include "transport/verbs/handles.h"

namespace sluice::endpoint {

// The replacement of a tenant's DCTs, whose keys an offender knows (docs/decisions/0046).
struct Renewal {
  enum class State : uint8_t {
    kNone,
    kMaking,  // the new DCTs
    kMoving,  // peers are told, and switch from the old DCTs to the new DCTs
  };

  State state = State::kNone;
  bool wanted = false;  // a further replacement is due after this one
  uint32_t looks = 0;   // checks for peers that have not acknowledged
  int64_t earliest_ns = 0;
  peer::TenantTargets old;
  verbs::Qp old_data, old_control;  // null unless kMoving
};

// State of a window at its receiver. kComing: recalled or returned, and expected soon. kLate: recalled or returned, and overdue.
enum class Holding : uint8_t { kHeld, kComing, kLate };

struct Reception {
  // Share of the free receive buffers for one window: 1 / kShareOfRest, at least kLeastWindow. So the
  // first of many peers do not take all buffers. Smaller windows than kLeastWindow are not granted.
  static constexpr uint32_t kShareOfRest = 8;
  static constexpr uint32_t kLeastWindow = 4;
  // Number of posted buffers: twice the promised buffers, because an error causes duplicates of messages, plus kSpareBuffers. At least
  // kSpareBytes are posted: fewer buffers save few page faults, and cost cache misses (docs/decisions/0076).
  static constexpr uint32_t kSpareBuffers = 64;
  static constexpr size_t kSpareBytes = 16u << 20;

  std::string tenant;  // empty: no tenants
  uint32_t srq_size = 0;
  uint32_t max_peers = 0;
  uint32_t max_queue_pairs = 0;  // cap on RC queue pairs, at least max_peers; 0: no RC
  verbs::Pd domain;              // outlives the memory that is registered in it
  std::unique_ptr<receive::ReceiveQueue> data;
  std::unique_ptr<receive::ReceiveQueue> control;
  uint32_t added = 0;          // peers that there ever were
  bool shared = false;         // one of them is inbound, or there were several
  uint32_t widest_window = 0;  // largest window so far, of this side or of a peer
  uint32_t promised = 0;       // receive buffers promised to peers
  // Promised buffers of windows that were recalled or returned and are not free yet: expected soon, or overdue.
  uint32_t coming = 0;
  uint32_t late = 0;
  uint32_t lost = 0;  // buffers that became late since a window was last freed
  // Indexes of peers whose window was neither recalled nor returned, in the order of grants. Its memory is allocated at the start.
  std::vector<uint32_t> holders;
  // Peers that wait for a window. Entries of peers that left the line are erased when they come to the front, or are too many.
  std::deque<PeerId> line;
  uint32_t waiting = 0;       // peers in the line
  bool short_window = false;  // the last granted window was below the nominal window
  uint32_t peers = 0;         // records in use
  // Number of records in use whose client was evicted. They take no place.
  uint32_t evicted = 0;
  peer::HalfOpen half_open{UINT32_MAX};  // clients that have not proved yet; they take places
  Renewal renewal;                       // declared after the objects that its DCTs use

  // Returns the present DCTs. `old`: the DCTs before the last replacement.
  peer::TenantTargets TargetsOf(bool old) const;
  bool full() const { return peers - evicted >= max_peers; }
  // Lets each peer have an RC queue pair, and at most `most` exist.
  void CapQueuePairs(uint32_t most);
  // Returns whether the cap on RC queue pairs, and not the number of places for peers, refuses the next peer.
  bool queue_pairs_full() const { return max_queue_pairs == max_peers && full(); }
  // Returns RESOURCE_EXHAUSTED if no place for a peer is left. `ending`: number of RC queue pairs that are not destroyed yet.
  absl::Status CheckPlace(uint32_t ending) const;
  // Returns whether one more half-open peer would exceed half of the places that other peers leave. False if they leave none.
  bool half_taken() const {
    const uint32_t left = max_peers - (peers - evicted - half_open.taken());
    return left != 0 && 2 * (uint64_t{half_open.taken()} + 1) > left;
  }
  uint32_t left() const { return srq_size - promised; }
  // Returns the number of receive buffers for the next window, at most `most`. 0: too few are left.
  uint32_t WindowForOne(uint32_t most) const;
  // Returns the first window of a peer. 0: peers wait for windows, or too few buffers are left.
  uint32_t FirstWindow(uint32_t most) const { return waiting == 0 ? WindowForOne(most) : 0; }
  // Returns the window for the first peer in the line. `before`: size of the window that it returned to get a larger window.
  uint32_t WindowForWaiter(uint32_t most, uint32_t before) const;
  // Returns the number of receive buffers that must still be recalled for the waiting peers, besides free and coming buffers.
  uint32_t Missing(uint32_t most) const;
  // Appends a peer to the line.
  void Enter(PeerId peer) {
    ++waiting;
    line.push_back(peer);
  }
  // Counts a new peer, and posts control buffers for it. `inbound`: this side accepted it. `window`: of each peer at this side.
  void Add(bool inbound, uint32_t window);
  // Posts further control buffers if the window that a peer has given to this side is the largest so far: what counts as a flood of that
  // peer depends on it.
  void Widen(uint32_t remote_window);
  // Counts a granted window, and posts more buffers if necessary.
  void Promise(uint32_t peer_index, uint32_t window);
  // Changes a window from held to coming: it was recalled or returned.
  void Expect(uint32_t peer_index, uint32_t window);
  // Changes a window from coming to late.
  void Lose(uint32_t window);
  // Changes a window from late to coming.
  void Regain(uint32_t window);
  void Free(uint32_t peer_index, uint32_t window, Holding holding);
  // Returns whether late windows use more than half of the receive buffers.
  bool scarce() const { return late > srq_size / 2; }
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_RECEPTION_H_
