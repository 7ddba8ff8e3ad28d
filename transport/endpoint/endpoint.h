// SPDX-License-Identifier: Apache-2.0
//
// Endpoint: the interface of transport/: peers, messages, one polling thread.
//
// Purpose       Sends whole messages to peers and receives them, with a DCI pool, DCT and SRQ,
//               credits and connections. If a request fails, a message may be lost or duplicated. A
//               user that needs reliability keeps each message until it is acknowledged, and posts
//               it again in OnResend(): middleware/session (docs/decisions/0019).
// Ownership     Its creator owns it. Device, clock, random source, commands and handler outlive it.
// Threads       One: all calls except Wake() come from the thread that calls Poll(). The handler is
//               called only inside Poll().
// End           Close() disconnects all peers; the destructor frees all resources.
#ifndef SLUICE_TRANSPORT_ENDPOINT_ENDPOINT_H_
#define SLUICE_TRANSPORT_ENDPOINT_ENDPOINT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/endpoint/held_memory.h"

namespace sluice::endpoint {

// Identifies a peer until OnPeerDown(). A later peer with the same index has another generation.
struct PeerId {
  uint32_t index = 0;
  uint32_t generation = 0;  // 0 never names a peer

  friend bool operator==(const PeerId&, const PeerId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const PeerId& id) {
    return H::combine(std::move(h), id.index, id.generation);
  }
};

struct PeerInfo {
  std::string address;  // "host:port" of Connect() (outbound), source address (inbound)
  bool inbound = false;
  uint32_t max_message_bytes = 0;  // limit of both ends
  uint64_t max_large_bytes = 0;    // limit of large messages of both ends; 0: none
  std::string tenant;              // tenant of the peer; empty: no tenants here
};

// Offer or result of an ECE exchange (man ibv_set_ece); vendor 0: none.
struct Ece {
  uint32_t vendor_id = 0;
  uint32_t options = 0;
};

// State of a peer's connection, for people and tools.
struct PeerReport {
  std::string address;
  bool inbound = false;
  bool up = false;
  // Valid while the peer is up. `blocked`: a message waits for a credit or a buffer.
  // `probe_outstanding`: the peer has not answered the last keepalive probe yet.
  bool blocked = false;
  bool probe_outstanding = false;
  bool has_lane = false;             // granted by either side
  uint32_t credits = 0;              // messages that this side may send to the peer now
  uint32_t credit_window = 0;        // maximum that the peer grants
  uint32_t qp_number = 0;            // number of this side in RDMA_CM; 0: none now
  uint32_t quarantined_numbers = 0;  // of the endpoint, in timewait
  uint64_t own_epoch = 0;            // identifies this incarnation of the endpoint
  uint64_t peer_epoch = 0;           // likewise, of the peer's endpoint
  bool authenticated = false;        // the peer proved a secret
  std::string tenant;                // tenant of that secret; empty: no tenants here
  // Negotiated: the limits of both ends.
  uint32_t max_message_bytes = 0;
  uint32_t mtu_bytes = 0;
  uint32_t reads_in_flight = 0;
  uint32_t service_level = 0;  // of the path, as RDMA_CM resolved it
  // Congestion control: offer of this side, offer of the peer, and what this device accepted.
  Ece offered;
  Ece received;
  Ece accepted;
  uint32_t template_qp_number = 0;  // the DCI that carries `accepted`
  std::string why_default;          // why no template was created; empty: created
  // ECE options of the shared DCT, to which all peers send: the same for all peers. Options 0: the
  // device's default.
  Ece receiving;
  // Whether the address handle is mapped to the template, and whether this peer created the handle.
  // The mapping is a hint to the device; its effect cannot be observed.
  bool mapped = false;
  bool first_on_handle = false;
  std::string why_unmapped;  // empty: it is mapped, or there is no handle yet
};

// QP numbers and address handles of an endpoint. Counts since the start, except values marked
// "now".
struct ConnectionCounts {
  uint32_t numbers_live = 0;         // now: used by connections and attempts
  uint32_t numbers_quarantined = 0;  // now: of closed connections, in timewait
  uint64_t numbers_exhausted = 0;    // attempts that failed for want of a number
  uint64_t stale_rejects = 0;        // numbers still in timewait at the other host
  uint64_t retries = 0;
  uint64_t throttled = 0;        // attempts delayed by the limit per peer
  uint32_t handles_in_use = 0;   // now
  uint32_t handles_idle = 0;     // now: kept for peers that reconnect
  uint64_t handles_made = 0;     // one for each destination and template
  uint64_t handles_reused = 0;   // by another peer, or after a reconnect
  uint64_t handles_evicted = 0;  // idle handles destroyed
  uint64_t handle_failures = 0;  // not created: no route to the peer
  uint64_t map_failures = 0;     // not mapped: used unmapped
};

// Results of client handshakes since the start.
struct HandshakeCounts {
  uint64_t completed = 0;
  uint64_t garbage = 0;          // not a hello, truncated, or of another version
  uint64_t unauthenticated = 0;  // no secret, an unknown one, a wrong MAC, a wrong proof
  uint64_t unfinished = 0;       // no proof arrived: a replayed hello, or the client left
  uint64_t too_often = 0;        // refused: too many failed handshakes of that source
  uint64_t asked_again = 0;      // under load: the client was asked for a cookie
  uint64_t full = 0;             // no place, no buffers, or too many in progress
  uint64_t without_dc = 0;       // ended with the welcome: the client has no DC
  uint64_t no_secrets = 0;       // this side could not read its own secrets
  uint32_t under_way = 0;        // now
};

// State of a send queue, for people and tools.
struct QueueReport {
  uint32_t qp_number = 0;
  std::string state;       // "ready", "draining", …
  bool probation = false;  // for peers on probation
  uint32_t posted = 0;     // requests that have not completed
  uint32_t streams = 0;    // 0: the device has no streams
  uint32_t streams_busy = 0;
  uint32_t streams_errored = 0;    // or being reset
  uint32_t streams_resetting = 0;  // of those, being reset
  uint32_t drains = 0;             // recoveries started
};

// Counts since the start, except values marked "now".
struct Counters {
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t credit_messages = 0;    // sent: messages with credits or a keepalive only
  uint64_t control_received = 0;   // from peers that are up
  uint64_t dropped_unknown = 0;    // the prefix is of an unknown peer, or of an earlier incarnation
  uint64_t dropped_malformed = 0;  // no valid prefix
  uint64_t dropped_unproven = 0;   // not a handshake message, before the handshake's end
  uint64_t receive_errors = 0;
  uint64_t probes = 0;           // sent: requests for a keepalive or for missing credit
  uint64_t resends = 0;          // calls of OnResend()
  uint64_t control_repeats = 0;  // repetitions of the control messages of a peer after a loss
  uint64_t reposts = 0;          // messages retransmitted
  // Lanes that this side has granted.
  uint32_t lanes = 0;          // now
  uint32_t lanes_watched = 0;  // now: of these
  uint64_t lane_bytes = 0;     // now: memory of lanes, lanes being freed included
  uint64_t lanes_granted = 0;
  uint64_t lanes_lost = 0;      // after errors of their senders, or with their peer's end
  uint64_t lanes_closed = 0;    // in favour of busier peers
  uint64_t lanes_refused = 0;   // no memory
  uint64_t lane_received = 0;   // messages; also in messages_received
  uint64_t lane_announced = 0;  // of these, with a completion
  uint64_t lane_hushes = 0;     // requests to announce, before a sleep or when idle
  uint64_t lane_wakes = 0;      // requests to stop announcing
  uint64_t lane_held = 0;       // messages by completion that overtook messages in a lane
  uint64_t lane_sent = 0;       // messages into lanes of peers; also in messages_sent
  // Send queues.
  uint64_t requests_failed = 0;  // failed, not flushed
  uint64_t fetches = 0;          // calls of Fetch() that succeeded
  uint64_t fetches_failed = 0;
  uint64_t fetched_bytes = 0;
  uint64_t requests_flushed = 0;  // because another request failed
  uint64_t late_completions = 0;  // of a request whose slot was reused: dropped
  uint64_t stream_resets = 0;
  uint64_t queue_recoveries = 0;  // recoveries of whole DCIs
  uint64_t silent_peers = 0;      // ended because they did not answer
  uint64_t targets_renewed =
      0;                     // replacements of a tenant's DCTs after a peer sent over its credits
  uint64_t over_credit = 0;  // peers disconnected because they sent more than granted
  // Windows of receive buffers (docs/decisions/0067).
  uint32_t windows_waiting = 0;   // now: peers that wait for a window of this side
  uint64_t windows_granted = 0;   // to peers that asked
  uint64_t windows_recalled = 0;  // from peers, for other peers
  uint64_t windows_asked = 0;     // by this side
};

// Location of memory that a peer has lent. Sent in a message.
struct RemoteMemory {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint32_t key = 0;
};

// Memory for a large message: lent to one peer, which reads it, or fetched from a peer.
struct LargeBuffer {
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  uint32_t number = 0;  // used by the endpoint; opaque
};

// Callbacks, on the polling thread, inside Poll(). They may call the endpoint, except Poll().
class Handler {
 public:
  virtual ~Handler() = default;
  virtual void OnPeerUp(PeerId peer, const PeerInfo& info) = 0;
  // The last call for this id; also follows a Connect() that failed. Queued messages are dropped.
  // No other peer gets the same index before this call has returned.
  virtual void OnPeerDown(PeerId peer, const absl::Status& why) = 0;
  // Every RC queue pair of Options::max_rc_queue_pairs is in use. `refused`: a client was refused for this; otherwise a client has just
  // taken the last place. Not called on devices with DC.
  virtual void OnNoPlace(bool /*refused*/) {}
  // `bytes` are valid during the call only. Returns true if the message is new: it is acknowledged
  // to the peer. Returns false for a duplicate.
  virtual bool OnMessage(PeerId peer, std::span<const std::byte> bytes) = 0;
  // The peer has taken the first `total` messages committed since OnPeerUp(), modulo 2^32.
  virtual void OnAcknowledged(PeerId /*peer*/, uint32_t /*total*/) {}
  // Requests to the peer failed, or were flushed. Call Repost() now for all messages that are not
  // acknowledged, in their order, messages committed meanwhile included; no other message is sent
  // before. Return false if messages are not kept: messages may be lost, and the peer goes down.
  virtual bool OnResend(PeerId /*peer*/) { return false; }
  // Follows a Reserve() that returned RESOURCE_EXHAUSTED, once a buffer and a credit are free.
  virtual void OnWritable(PeerId peer) = 0;
  // Follows a WhereLent() that returned nullopt. OK: it returns the location now. Otherwise the
  // device refused to register the memory.
  virtual void OnLent(PeerId /*peer*/, uint32_t /*number*/, const absl::Status& /*status*/) {}
  // A Fetch() has ended. OK: the handler owns the bytes until GiveBack(). Errors, without bytes:
  // PERMISSION_DENIED (the peer's device refused), CANCELLED, or an error of memory registration.
  // Not called after OnPeerDown().
  virtual void OnFetched(PeerId /*peer*/, const absl::StatusOr<LargeBuffer>& /*buffer*/,
                         uint32_t /*number*/) {}
};

// Registered memory for one outgoing message. The caller owns it from Reserve() to Commit() or
// Cancel().
struct SendBuffer {
  std::byte* data = nullptr;
  uint32_t capacity_bytes = 0;
  uint32_t slot = 0;  // used by the endpoint; opaque
  // Set by the layer between endpoint and writer: `data` is in this lent memory instead of the
  // slot.
  uint32_t large = 0xffffffff;
};

// The same in two words, from TryReserve() to CommitRoom().
struct Room {
  std::byte* data = nullptr;  // nullptr: none
  uint32_t capacity_bytes = 0;
  uint32_t slot = 0;
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;

  // Accepts peers at host:port; port 0: any free port. Returns the port.
  virtual absl::StatusOr<uint16_t> Listen(const std::string& host, uint16_t port) = 0;

  // Connects to a peer. Does not block. OnPeerUp(), or OnPeerDown() with a complete error status,
  // follows by `deadline_ns` (of the endpoint's clock).
  virtual absl::StatusOr<PeerId> Connect(const std::string& host, uint16_t port,
                                         int64_t deadline_ns) = 0;

  // Reserves a buffer for a message. Allocates no memory if it succeeds.
  // Errors: RESOURCE_EXHAUSTED (no credit or no buffer now; OnWritable() follows), INVALID_ARGUMENT
  // (over the limit of this peer), UNAVAILABLE (no such peer, or the peer is not up).
  virtual absl::StatusOr<SendBuffer> Reserve(PeerId peer, uint32_t size_bytes) = 0;
  // Sends the first `length_bytes` of the buffer, per peer in the order of Commit() calls. Flush()
  // or the end of Poll() rings the doorbell. The caller owns the slot until Release(); call it when
  // the message is acknowledged or the peer is down. `report_soon`: the peer acknowledges at once;
  // otherwise with its next message, or when half of its window is used.
  virtual void Commit(PeerId peer, SendBuffer buffer, uint32_t length_bytes, bool report_soon) = 0;
  // As Reserve() and Commit(), for a message that is at most as long as the eager limit, while there are credit and memory. Otherwise, or
  // if the endpoint has no such way, TryReserve() changes nothing and returns no memory: call Reserve(), which also says why.
  virtual Room TryReserve(PeerId /*peer*/, uint32_t /*size_bytes*/) { return {}; }
  virtual void CommitRoom(PeerId peer, Room room, uint32_t length_bytes, bool report_soon) {
    Commit(peer, {.data = room.data, .capacity_bytes = room.capacity_bytes, .slot = room.slot},
           length_bytes, report_soon);
  }
  // Retransmits a committed message. Call in OnResend() only.
  virtual void Repost(PeerId peer, uint32_t slot) = 0;
  // Frees the slot of a committed message.
  virtual void Release(uint32_t slot) = 0;
  // Slots for which Release() does nothing, so that a caller may leave the call out. Constant.
  struct SlotRange {
    uint32_t first = 0;
    uint32_t count = 0;
  };
  virtual SlotRange NeverReleased() const { return {}; }
  // Frees a buffer that was not committed.
  virtual void Cancel(PeerId peer, SendBuffer buffer) = 0;
  virtual void Flush() = 0;

  // Large messages: one side lends memory and sends its location in a message. The other side
  // fetches it with RDMA READs, in pieces, on a separate stream: an error there does not affect the
  // peer's messages. The endpoint owns the memory, and registers it. Memory that was lent to one
  // peer is not lent to another while a key to it is valid.
  //
  // Lends memory. The caller fills it and owns it until EndLoan(), which is always required.
  // `waits`: after RESOURCE_EXHAUSTED, OnWritable() follows when memory is free. A waiting caller
  // has precedence over later callers if it calls Lend() again inside that OnWritable().
  // Errors: RESOURCE_EXHAUSTED (no memory now, or the peer has its share), INVALID_ARGUMENT (over the
  // limit of this side), ABORTED (the system has no memory; no callback follows), UNAVAILABLE (no
  // such peer).
  virtual absl::StatusOr<LargeBuffer> Lend(PeerId peer, uint64_t bytes, bool waits) = 0;
  // Returns the location of lent memory; nullopt: it is not registered yet, and OnLent() follows.
  virtual std::optional<RemoteMemory> WhereLent(uint32_t number) = 0;
  // Ends the loan: the peer has read the memory or will not read it, or the peer is down.
  virtual void EndLoan(uint32_t number) = 0;
  // Fetches memory of a peer, as soon as there is memory here. Returns a number; OnFetched()
  // follows with it. Errors: INVALID_ARGUMENT (over this side's limit), UNAVAILABLE (no such peer).
  virtual absl::StatusOr<uint32_t> Fetch(PeerId peer, const RemoteMemory& from) = 0;
  // Cancels a fetch. OnFetched() follows with CANCELLED, once no request is outstanding.
  virtual void CancelFetch(uint32_t number) = 0;
  // Frees fetched memory.
  virtual void GiveBack(uint32_t number) = 0;
  // HoldLent() and HoldFetched() keep memory beyond the calls above (held_memory.h). An empty result
  // means that the memory is not held: an endpoint need not support it. Lent memory still requires
  // EndLoan(). While lent memory is held, LendHeld() lends it again to the same peer. LendHeld()
  // returns false if the memory is lent now, is revoked, or belongs to another endpoint, or if its
  // peer has disconnected.
  virtual HeldMemory HoldLent(uint32_t /*number*/) { return {}; }
  virtual bool LendHeld(PeerId /*peer*/, const HeldMemory& /*memory*/) { return false; }
  // Call instead of GiveBack(). The result is also empty if held fetches would use more than half of
  // the memory for fetches, or would leave no room for the largest message.
  virtual HeldMemory HoldFetched(uint32_t /*number*/) { return {}; }

  // Runs one pass over all event sources, and returns the number of events handled. Does not block, except after AllowBlocking(), or if
  // the system has no thread for calls that block.
  virtual int Poll() = 0;
  // From now on, Poll() may run calls that block in the kernel or the firmware while one peer connects and there is no other: a
  // connect takes less time so. For threads that may wait. Call on the polling thread.
  virtual void AllowBlocking() {}

  // Arms the completion queues. False: there is work; call Poll() again. True: sleep; fd() becomes
  // readable when Poll() has work.
  virtual bool PrepareToSleep() = 0;
  virtual int fd() const = 0;
  // Maximum duration of a sleep: nanoseconds until the next timer; -1: no timer.
  virtual int64_t SleepLimitNs() const = 0;
  // Makes fd() readable. Any thread.
  virtual void Wake() = 0;

  // Returns the state of a peer. Errors: UNAVAILABLE (no such peer).
  virtual absl::StatusOr<PeerReport> Report(PeerId peer) const = 0;
  virtual HandshakeCounts Handshakes() const = 0;
  // Returns OK, or UNAVAILABLE as Connect() would: the device's port is down, for now; or the
  // device has failed or was removed, permanently: close this endpoint and create another.
  virtual absl::Status Health() const = 0;
  virtual ConnectionCounts Connections() const = 0;
  virtual Counters Counts() const = 0;
  virtual std::vector<QueueReport> Queues() const { return {}; }

  // Disconnects a peer. OnPeerDown() with CANCELLED follows in the next Poll(). Messages committed
  // before are sent first, then a goodbye; the other side receives both in that order, and then
  // OnPeerDown() with UNAVAILABLE. Not guaranteed if the connection fails, or this endpoint is
  // destroyed, before all are sent: only a reply of the application proves that a message was read.
  virtual void Disconnect(PeerId peer) = 0;
  // Disconnects all peers. No handler is called afterwards.
  virtual void Close() = 0;
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_ENDPOINT_H_
