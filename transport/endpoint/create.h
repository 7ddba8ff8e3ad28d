// SPDX-License-Identifier: Apache-2.0
//
// How an endpoint is made: options and factory.
#ifndef SLUICE_TRANSPORT_ENDPOINT_CREATE_H_
#define SLUICE_TRANSPORT_ENDPOINT_CREATE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/base/clock.h"
#include "transport/base/log.h"
#include "transport/base/random.h"
#include "transport/device/device.h"
#include "transport/endpoint/endpoint.h"
#include "transport/peer/secrets.h"
#include "transport/poller/commands.h"

namespace sluice::cm {
class RequestDesk;
}

namespace sluice::endpoint {

// Some of the peers, kept apart from the others.
struct Tenant {
  std::string name;  // 1 to 64 bytes; for reports and errors
  peer::SecretSource secrets;
  uint32_t srq_size = 1024;
  uint32_t max_peers = 64;
};

struct Options {
  static constexpr size_t kMaxTenants = 64;

  // Largest message that this side takes or sends, without headers of lower layers. 64 B to 1 MiB.
  uint32_t max_message_bytes = 16384;
  // Receive buffers for messages, shared by all peers: the sum of all credits.
  uint32_t srq_size = 1024;
  // Messages that one peer may have under way to this side; new peers get less once the buffers run
  // short.
  uint32_t credits_per_peer = 64;
  // Send buffers, shared by all peers.
  uint32_t send_buffers = 1024;
  uint32_t max_peers = 1024;
  uint32_t dci_count = 2;
  uint32_t dci_depth = 256;
  // How long a silent peer may hold up its stream before it counts as dead.
  int64_t dead_peer_ns = 1'000'000'000;
  // A peer that does not answer for this long, or three times dead_peer_ns if that is longer, has
  // gone; one that answers and has nothing else to say is asked twice in that time at most. 0: nobody is
  // asked. See docs/decisions/0013.
  int64_t keepalive_ns = 30'000'000'000;
  // How long a client may take from asking to being connected.
  int64_t accept_timeout_ns = 5'000'000'000;
  // Memory for lanes: rings into which busy peers write, so that this side may watch their payload instead of
  // completions, where the device promises the order that takes. 0: none. A peer is asked before this side sleeps, and before
  // its lane is given to others. One that does not comply within keepalive_ns (within 30 s if that is 0) is disconnected,
  // a third of that later at most.
  // See docs/decisions/0024.
  uint32_t lane_memory_bytes = 2 << 20;
  // What one lane is at most: fewer slots do for a peer with fewer credits. Longer messages are sent.
  uint32_t lane_slots = 128;
  uint32_t lane_slot_bytes =
      256;  // in blocks of 128; also how long a message is that this side writes into others' lanes
  // So many messages of a peer, in a time in which this process did not sleep, make a lane worth its while.
  uint32_t lane_after_messages = 64;
  // Lanes also where no order is promised; each message is announced by a completion then, so nothing is gained.
  bool lanes_without_order = false;
  // Largest message that peers may make this side fetch; 0: none, and this side sends none. Below 2 GiB.
  uint64_t max_large_bytes = 0;
  // Memory for what is fetched, and as much again for what is lent; at least max_large_bytes. Taken when it is needed.
  uint64_t large_memory_bytes = 256 << 20;
  // Off: as on a device without DCI streams.
  bool use_streams = true;
  // Path MTU of all queues in bytes; the active MTU of the port if that is smaller. A peer with another one is refused. 256, 512,
  // 1024, 2048 or 4096.
  uint32_t path_mtu_bytes = 1024;

  // What peers must prove to share, asked again for each handshake, inside Commands. Empty: whoever
  // reaches the port may connect. See docs/decisions/0011 for what it protects.
  peer::SecretSource secrets;
  // Not empty: the secret that a peer proves says whose it is, and each tenant's peers have DCTs,
  // keys, receive buffers and places of their own. Then `secrets` stays empty, `srq_size` and
  // `max_peers` are each tenant's, and connections that this side makes are the first tenant's.
  std::vector<Tenant> tenants;
  // Maximum number of clients that have asked and not proved the secret yet. From half of it on a client must bring
  // a cookie back first, and no source gets all of what is left; beyond it clients are refused with
  // RESOURCE_EXHAUSTED. Range: 1 to 65,536. See docs/decisions/0049.
  uint32_t max_half_open = 512;
  // Maximum number of handshakes a second that come to nothing, of one source (an IPv4 address, or an IPv6 /64).
  // Beyond it a client at that source must bring a cookie back first. Range: 1 to 1,000,000.
  uint32_t failed_handshakes_per_second = 32;
  // Endpoints of one process and device that have the same are spread over who connects: one of them listens, and each
  // client becomes the peer of the one with the fewest. nullptr: those who connect here are this one's.
  std::shared_ptr<cm::RequestDesk> desk;

  // Hears of what the endpoint deals with by itself: whom it refused, requests that failed, the device's
  // events. nullptr: nobody does. It outlives the endpoint.
  base::LogSink* log = nullptr;

  // INVALID_ARGUMENT names the option, its value and its range.
  absl::Status Validate() const;
};

// For Options::desk.
std::shared_ptr<cm::RequestDesk> MakeRequestDesk();

// Makes queues, buffers and DCTs; blocks. Everything passed by reference outlives the endpoint; one
// `commands` serves one endpoint.
absl::StatusOr<std::unique_ptr<Endpoint>> CreateEndpoint(const Options& options,
                                                         device::Device& device, base::Clock& clock,
                                                         base::Random& random,
                                                         poller::Commands& commands,
                                                         Handler* handler);

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_CREATE_H_
