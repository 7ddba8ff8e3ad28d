// SPDX-License-Identifier: Apache-2.0
//
// Reception: the targets of one tenant's peers: a DCT and an SRQ for messages, another pair for control, with DC keys,
// receive buffers and limits of its own. A tenant that fills or floods its targets does not affect those of other tenants.
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
    kMoving,  // peers are told, and go on from the old ones to the new ones
  };

  State state = State::kNone;
  bool wanted = false;  // once more, after this one
  uint32_t looks = 0;   // at those that have not acknowledged
  int64_t earliest_ns = 0;
  peer::TenantTargets old;
  verbs::Qp old_data, old_control;  // null unless kMoving
};

// How a receiver sees a window.
enum class Holding : uint8_t { kHeld, kComing, kLate };

struct Reception {
  // A window gets at most this share of the receive buffers that are left, so that a crowd thins
  // out instead of the first ones taking all; below the least there is none.
  static constexpr uint32_t kShareOfRest = 8;
  static constexpr uint32_t kLeastWindow = 4;
  // Buffers that are posted: twice those that are promised, since copies of messages come after an error, and kSpareBuffers. At least
  // kSpareBytes of them: fewer save no page faults worth saving, and cost cache misses (docs/decisions/0076).
  static constexpr uint32_t kSpareBuffers = 64;
  static constexpr size_t kSpareBytes = 16u << 20;

  std::string tenant;  // empty: there are none
  uint32_t srq_size = 0;
  uint32_t max_peers = 0;
  verbs::Pd domain;  // outlives what is registered in it
  std::unique_ptr<receive::ReceiveQueue> data;
  std::unique_ptr<receive::ReceiveQueue> control;
  uint32_t promised = 0;  // receive buffers, to peers
  // Of those, of windows that were recalled or returned and are not free yet: expected soon, or late.
  uint32_t coming = 0;
  uint32_t late = 0;
  uint32_t lost = 0;  // became late since a window was last freed
  // Peers with a window that was neither recalled nor returned, by index, in the order of their grants. Its memory is allocated at
  // the start.
  std::vector<uint32_t> holders;
  // Peers that wait for a window, and entries of peers that left the line: an entry is erased when it comes to the front.
  std::deque<PeerId> line;
  uint32_t waiting = 0;       // peers in the line
  bool short_window = false;  // the last window that was granted was below the nominal one
  uint32_t peers = 0;         // records in use
  uint32_t evicted =
      0;  // of those, clients that had to leave and have not gone yet: they take no place
  peer::HalfOpen half_open{UINT32_MAX};  // clients that have not proved yet; they take places
  Renewal renewal;                       // after what its DCTs refer to

  // The DCTs of now, or those before the last replacement.
  peer::TenantTargets TargetsOf(bool old) const;
  bool full() const { return peers - evicted >= max_peers; }
  // RESOURCE_EXHAUSTED: no place is left.
  absl::Status CheckPlace() const;
  // Places are left, and one more half-open peer would have more than half of those that proved ones leave.
  bool half_taken() const {
    const uint32_t left = max_peers - (peers - evicted - half_open.taken());
    return left != 0 && 2 * (uint64_t{half_open.taken()} + 1) > left;
  }
  uint32_t left() const { return srq_size - promised; }
  // Receive buffers that the next window gets: at most `most`. 0: too few are left.
  uint32_t WindowForOne(uint32_t most) const;
  // For a peer that has not asked: those that wait go first.
  uint32_t FirstWindow(uint32_t most) const { return waiting == 0 ? WindowForOne(most) : 0; }
  // For the first in the line. `before`: the window that it returned in order to get a larger one.
  uint32_t WindowForWaiter(uint32_t most, uint32_t before) const;
  // Receive buffers that are missing for those who wait, beside those that are coming.
  uint32_t Missing(uint32_t most) const;
  // The peer waits, at the end of the line.
  void Enter(PeerId peer) {
    ++waiting;
    line.push_back(peer);
  }
  void Promise(uint32_t peer_index, uint32_t window);
  // The window was recalled or returned: it is coming, no longer held.
  void Expect(uint32_t peer_index, uint32_t window);
  // It does not come soon.
  void Lose(uint32_t window);
  // It was late, and comes now.
  void Regain(uint32_t window);
  void Free(uint32_t peer_index, uint32_t window, Holding holding);
  // Late windows take more than half of the receive buffers.
  bool scarce() const { return late > srq_size / 2; }
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_RECEPTION_H_
