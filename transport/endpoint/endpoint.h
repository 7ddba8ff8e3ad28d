// SPDX-License-Identifier: Apache-2.0
//
// Endpoint: the façade of transport/. Peers, messages, one polling thread.
//
// What it is    Whole messages to and from peers: DCI pool, DCT + SRQ receive, credits, connections. A message may be lost or
//               doubled when a request fails; who must know keeps it until it is acknowledged, and posts it again when
//               told to: middleware/session (docs/decisions/0019).
// Who owns it   Its creator; the device, clock, random source, commands and handler outlive it.
// Which thread  One: all calls but Wake() come from the thread that calls Poll(). The handler is called
//               inside Poll() only.
// What ends it  Close() says goodbye to peers; the destructor frees everything that is left.
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

// Names a peer until OnPeerDown; a later peer in the same place has another generation.
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
  std::string address;  // "host:port" as asked for (outbound), source address (inbound)
  bool inbound = false;
  uint32_t max_message_bytes = 0;  // what both ends can do
  uint64_t max_large_bytes = 0;    // that is lent and fetched, likewise; 0: there are none
  std::string tenant;              // whose it is; empty: there are no tenants here
};

// An offer or a result of an ECE exchange (man ibv_set_ece); vendor 0: none.
struct Ece {
  uint32_t vendor_id = 0;
  uint32_t options = 0;
};

// A peer's connection as it stands, for people and tools.
struct PeerReport {
  std::string address;
  bool inbound = false;
  bool up = false;
  uint32_t qp_number = 0;            // that stands for this side in RDMA_CM; 0: none at the moment
  uint32_t quarantined_numbers = 0;  // of the endpoint, until their timewait is over
  uint64_t own_epoch = 0;            // names this incarnation of the endpoint, and the peer's
  uint64_t peer_epoch = 0;
  bool authenticated = false;  // it proved a secret; else it is whoever reached the port
  std::string tenant;          // whose secret that was; empty: there are no tenants here
  // Agreed: what both ends can do.
  uint32_t max_message_bytes = 0;
  uint32_t mtu_bytes = 0;
  uint32_t reads_in_flight = 0;
  uint32_t service_level = 0;  // of the path, as RDMA_CM resolved it
  // Congestion control: what this side offers, what the peer sent, what this device made of that.
  Ece offered;
  Ece received;
  Ece accepted;
  uint32_t template_qp_number = 0;  // the DCI that carries `accepted`
  std::string why_default;          // why no template was made; empty: one was
  // What the shared DCT carries, to which all peers send: the same for all, whatever they agreed on.
  // Options 0: what the device does by itself.
  Ece receiving;
  // The address handle: whether it is mapped to the template, and whether this peer made it. That
  // is all that can be known: the mapping is a hint to the device.
  bool mapped = false;
  bool first_on_handle = false;
  std::string why_unmapped;  // empty: it is mapped, or there is no handle yet
};

// QP numbers and address handles of an endpoint; since the start, but for those that are as of now.
struct ConnectionCounts {
  uint32_t numbers_live = 0;         // now: of connections and attempts
  uint32_t numbers_quarantined = 0;  // now: of closed ones, until nobody can be in timewait
  uint64_t numbers_exhausted = 0;    // attempts for which there was none
  uint64_t stale_rejects = 0;        // numbers that the other host still knew
  uint64_t retries = 0;
  uint64_t throttled = 0;        // tries that waited because their peer had been asked too often
  uint32_t handles_in_use = 0;   // now
  uint32_t handles_idle = 0;     // now: kept in case their peer comes back
  uint64_t handles_made = 0;     // one for each destination and template
  uint64_t handles_reused = 0;   // by one more peer, or by one that came back
  uint64_t handles_evicted = 0;  // idle ones
  uint64_t handle_failures = 0;  // could not be made: no way to the peer
  uint64_t map_failures = 0;     // could not be mapped: used as they are
};

// How handshakes of clients ended, since the start.
struct HandshakeCounts {
  uint64_t completed = 0;
  uint64_t garbage = 0;          // no hello, cut short, or of another version
  uint64_t unauthenticated = 0;  // no secret, an unknown one, a wrong MAC, a wrong proof
  uint64_t unfinished = 0;       // a recorded hello, or a client that went away: no proof came
  uint64_t too_often = 0;        // refused without words: too many of that address had failed
  uint64_t asked_again = 0;      // under load: the client was asked to come back with a cookie
  uint64_t full = 0;             // no place, no buffers, or too many under way
  uint64_t without_dc = 0;       // ended with the welcome: the client has no DC
  uint64_t no_secrets = 0;       // this side's own secrets could not be read
  uint32_t under_way = 0;        // now
};

// A send queue as it stands, for people and tools.
struct QueueReport {
  uint32_t qp_number = 0;
  std::string state;       // "ready", "draining", …
  bool probation = false;  // for peers of which nothing good is known
  uint32_t posted = 0;     // requests that have not completed
  uint32_t streams = 0;    // 0: the device has none
  uint32_t streams_busy = 0;
  uint32_t streams_errored = 0;  // or being reset
  uint32_t drains = 0;           // recoveries begun so far
};

// What came and went, since the start.
struct Counters {
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t credit_messages = 0;    // sent: credits, or a sign of life, and nothing else
  uint64_t control_received = 0;   // from peers that are up
  uint64_t dropped_unknown = 0;    // prefix of nobody we know, or of an older incarnation
  uint64_t dropped_malformed = 0;  // no prefix at all
  uint64_t dropped_unproven = 0;   // what is not a handshake's, before the handshake's end
  uint64_t receive_errors = 0;
  uint64_t probes = 0;   // sent: asks for a sign of life, or for credit that does not come
  uint64_t resends = 0;  // peers that were told OnResend()
  uint64_t reposts = 0;  // messages sent again
  // Of lanes that this side has granted.
  uint32_t lanes = 0;          // now
  uint32_t lanes_watched = 0;  // now: of those
  uint64_t lane_bytes = 0;     // now: their memory, and of those that are being freed
  uint64_t lanes_granted = 0;
  uint64_t lanes_lost = 0;      // after errors of their senders, or with their peer
  uint64_t lanes_closed = 0;    // in favour of busier peers
  uint64_t lanes_refused = 0;   // memory for them could not be had
  uint64_t lane_received = 0;   // messages; also in messages_received
  uint64_t lane_announced = 0;  // of those: with a completion
  uint64_t lane_hushes = 0;     // asked to announce, before a sleep or because they were idle
  uint64_t lane_wakes = 0;      // told not to announce any more
  uint64_t lane_held = 0;       // messages that came by a completion before others from a lane
  uint64_t lane_sent = 0;       // messages into lanes of others; also in messages_sent
  // Of the send queues.
  uint64_t requests_failed = 0;  // by themselves
  uint64_t fetches = 0;          // of large messages that began
  uint64_t fetches_failed = 0;
  uint64_t fetched_bytes = 0;
  uint64_t requests_flushed = 0;  // because of another's error
  uint64_t late_completions = 0;  // of a request whose slot was used again: dropped
  uint64_t stream_resets = 0;
  uint64_t queue_recoveries = 0;  // of whole DCIs
  uint64_t silent_peers = 0;      // that were ended for want of one
  uint64_t targets_renewed = 0;   // times that a tenant's DCTs were replaced after such a peer
  uint64_t over_credit = 0;  // peers that were ended since they sent more than they were granted
};

// Where memory that a peer has lent is. Bytes that travel in a message.
struct RemoteMemory {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint32_t key = 0;
};

// Memory for a large message: lent to one peer, which reads it, or fetched from one.
struct LargeBuffer {
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  uint32_t number = 0;  // the endpoint's own; opaque
};

// Called on the polling thread, from inside Poll(). May call the endpoint back, Poll() excepted.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual void OnPeerUp(PeerId peer, const PeerInfo& info) = 0;
  // The last call for this id, also when a peer that Connect() named never came up. Messages still
  // queued are gone. No other peer gets the same index before this call has returned.
  virtual void OnPeerDown(PeerId peer, const absl::Status& why) = 0;
  // `bytes` are valid during the call only. True: taken, which is acknowledged to the peer. False: it was
  // taken before, and came again.
  virtual bool OnMessage(PeerId peer, std::span<const std::byte> bytes) = 0;
  // The peer has taken `total` of the messages committed since OnPeerUp, modulo 2^32: the first ones.
  virtual void OnAcknowledged(PeerId /*peer*/, uint32_t /*total*/) {}
  // Requests to the peer failed, or were flushed. Repost() what was kept and is not acknowledged, in its
  // order, now: whatever was committed meanwhile is among it, and nothing else is sent before. False:
  // nothing is ever kept; then messages may be lost, and the peer goes down.
  virtual bool OnResend(PeerId /*peer*/) { return false; }
  // Follows a Reserve() that answered RESOURCE_EXHAUSTED, once a buffer and a credit are there.
  virtual void OnWritable(PeerId peer) = 0;
  // Follows a WhereLent() that knew nothing: now it does, or the device refuses that memory.
  virtual void OnLent(PeerId /*peer*/, uint32_t /*number*/, const absl::Status& /*status*/) {}
  // A Fetch() has ended. OK: the bytes are there, the handler's until GiveBack(). Else there is nothing to give back:
  // PERMISSION_DENIED, the peer's device refused; CANCELLED; what registering memory said. Not called after OnPeerDown().
  virtual void OnFetched(PeerId /*peer*/, const absl::StatusOr<LargeBuffer>& /*buffer*/,
                         uint32_t /*number*/) {}
};

// Registered memory for one outgoing message. Belongs to the caller from Reserve() to Commit() or
// Cancel().
struct SendBuffer {
  std::byte* data = nullptr;
  uint32_t capacity_bytes = 0;
  uint32_t slot = 0;  // the endpoint's own; opaque
  // Of whoever is between the endpoint and the writer: `data` is not the slot's, but this memory that was lent.
  uint32_t large = 0xffffffff;
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;

  // Accepts peers at host:port; port 0 takes a free one. Returns the port.
  virtual absl::StatusOr<uint16_t> Listen(const std::string& host, uint16_t port) = 0;

  // Never blocks. Ends in OnPeerUp, or in OnPeerDown with a status that says what, who, why likely,
  // what to do, by `deadline_ns` (of the endpoint's clock) at the latest.
  virtual absl::StatusOr<PeerId> Connect(const std::string& host, uint16_t port,
                                         int64_t deadline_ns) = 0;

  // RESOURCE_EXHAUSTED: no credit or no buffer now, OnWritable follows. INVALID_ARGUMENT: over the
  // limit of this peer. UNAVAILABLE: no such peer, or it is not up. Allocates nothing when it
  // succeeds.
  virtual absl::StatusOr<SendBuffer> Reserve(PeerId peer, uint32_t size_bytes) = 0;
  // Sends the first `length_bytes` of the buffer, in the order of Commit() calls per peer; the
  // doorbell is rung by Flush() or at the end of Poll(). Its slot stays the caller's until Release(),
  // which is due when the message is acknowledged, or the peer is down. `report_soon`: the peer is asked
  // to acknowledge at once; otherwise it does so with its next message, or when half of its window is taken.
  virtual void Commit(PeerId peer, SendBuffer buffer, uint32_t length_bytes, bool report_soon) = 0;
  // Sends a committed message once more. In OnResend() only.
  virtual void Repost(PeerId peer, uint32_t slot) = 0;
  // The slot of a committed message goes back.
  virtual void Release(uint32_t slot) = 0;
  // The buffer was not committed, and goes back.
  virtual void Cancel(PeerId peer, SendBuffer buffer) = 0;
  virtual void Flush() = 0;

  // Large messages: one side lends memory and says where it is in a message, the other side fetches it by reading, in
  // pieces, on a stream of its own: an error there is none of the peer's messages. The memory is the endpoint's, and
  // registered; what was lent to one peer is never lent to another before no key leads there any more.
  //
  // Memory to be filled, the caller's until TakeBack(), which follows always, whatever becomes of the peer.
  // RESOURCE_EXHAUSTED: none now, or the peer has its share; with `waits`, OnWritable() follows once some came back. Who
  // waits has his turn before those who came later, if he asks again inside that OnWritable(); who does not wait, passes.
  // ABORTED: the system gives none, and nothing follows. UNAVAILABLE: no such peer.
  virtual absl::StatusOr<LargeBuffer> Lend(PeerId peer, uint64_t bytes, bool waits) = 0;
  // Nothing: the device does not know it yet, OnLent() follows.
  virtual std::optional<RemoteMemory> WhereLent(uint32_t number) = 0;
  // The peer has said that it has read it, or never will; or it is down.
  virtual void TakeBack(uint32_t number) = 0;
  // OnFetched() follows, with this number. It waits until there is memory. INVALID_ARGUMENT: over this side's limit.
  // UNAVAILABLE: no such peer.
  virtual absl::StatusOr<uint32_t> Fetch(PeerId peer, const RemoteMemory& from) = 0;
  // It need not be fetched any more. OnFetched() follows all the same, with CANCELLED, once nothing is under way.
  virtual void CancelFetch(uint32_t number) = 0;
  // What was fetched is not needed any more.
  virtual void GiveBack(uint32_t number) = 0;
  // Both kinds in the hands of somebody who gives them back when he likes (held_memory.h). Nothing: not held; an endpoint
  // need not. What was lent may be held beside that, TakeBack() is due all the same; while it is held it may be lent again, to
  // the same peer. False: it is lent now, its peer has gone, or it is not this endpoint's.
  virtual HeldMemory HoldLent(uint32_t /*number*/) { return {}; }
  virtual bool LendHeld(PeerId /*peer*/, const HeldMemory& /*memory*/) { return false; }
  // Instead of GiveBack(). Nothing, too, if half of the memory for what is fetched would be held.
  virtual HeldMemory HoldFetched(uint32_t /*number*/) { return {}; }

  // One pass over everything that may have happened; never blocks. The number of things done.
  virtual int Poll() = 0;

  // Arms the completion queues. False: there is work, poll again instead of sleeping. After true,
  // fd() becomes readable when Poll() has something to do.
  virtual bool PrepareToSleep() = 0;
  virtual int fd() const = 0;
  // How long a sleep may last at most: nanoseconds until the next timer, or -1 for no timer.
  virtual int64_t SleepLimitNs() const = 0;
  // Makes fd() readable. Any thread.
  virtual void Wake() = 0;

  // UNAVAILABLE: no such peer.
  virtual absl::StatusOr<PeerReport> Report(PeerId peer) const = 0;
  virtual HandshakeCounts Handshakes() const = 0;
  // OK, or the UNAVAILABLE that Connect() would answer: the device's port is down, for now; or the
  // device has failed or was removed, for good: close this endpoint and make another.
  virtual absl::Status Health() const = 0;
  virtual ConnectionCounts Connections() const = 0;
  virtual Counters Counts() const = 0;
  virtual std::vector<QueueReport> Queues() const { return {}; }

  // OnPeerDown (CANCELLED) follows in the next Poll(). What was committed before is sent first, then
  // a goodbye; the other side gets both in that order, and then its OnPeerDown (UNAVAILABLE). Not
  // promised where the other side is lost, or this one is destroyed, before all that has been sent:
  // an answer of the program above is the only proof that a message was read.
  virtual void Disconnect(PeerId peer) = 0;
  // Goodbye to all peers; no handler calls afterwards.
  virtual void Close() = 0;
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_ENDPOINT_H_
