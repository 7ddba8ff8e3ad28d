// SPDX-License-Identifier: Apache-2.0
//
// Options and factory of an endpoint.
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

// A group of peers that is isolated from other groups.
struct Tenant {
  std::string name;  // 1 to 64 bytes; used in reports and errors
  peer::SecretSource secrets;
  uint32_t srq_size = 1024;  // number of receive buffers; 16 to 65,536
  uint32_t max_peers = 64;   // maximum number of peers; 1 to 65,536
};

struct Options {
  static constexpr size_t kMaxTenants = 64;

  // Maximum size of a message that this side receives or sends, in bytes, without headers of lower
  // layers. Range: 64 to 1 MiB.
  uint32_t max_message_bytes = 16384;
  // Number of receive buffers for messages, shared by all peers: the sum of all windows in use. Range:
  // 16 to 65,536.
  uint32_t srq_size = 1024;
  // Maximum number of messages that one peer may have in flight to this side. Peers get less when
  // buffers are short, and wait for their turn when none is left. Range: 2 to srq_size; more than
  // 32,767 count as 32,767. See docs/decisions/0067.
  uint32_t credits_per_peer = 64;
  // Number of send buffers, shared by all peers. Range: 64 to 65,536.
  uint32_t send_buffers = 1024;
  uint32_t max_peers = 16384;  // maximum number of peers; 1 to 65,536
  // Maximum number of RC queue pairs, one for each peer of a device without DC. At the limit further
  // peers are refused with RESOURCE_EXHAUSTED, and Handler::OnNoPlace() follows. 0: as many as the
  // device has. No effect with DC. Range: 0 to 65,535. See docs/decisions/0068.
  uint32_t max_rc_queue_pairs = 0;
  uint32_t dci_count = 2;    // number of DCIs; 1 to 63
  uint32_t dci_depth = 256;  // requests in flight per DCI; 64 to 16,384
  // Time in nanoseconds after which a peer that does not answer requests is declared dead. Range: 1
  // ms to 600 s.
  int64_t dead_peer_ns = 1'000'000'000;
  // Time in nanoseconds after which a peer that does not answer probes is declared dead; three
  // times dead_peer_ns if that is longer. A silent peer is probed at most twice in that time. 0: no
  // probes. Range: 0 to 1 h. See docs/decisions/0013. A peer that does not return its window while
  // other peers wait for buffers is disconnected after the same time (30 s if this is 0). If such
  // peers hold more than half of srq_size, a third of that time applies. See docs/decisions/0067.
  int64_t keepalive_ns = 30'000'000'000;
  // Time in nanoseconds after which a handshake of a client times out. Range: 1 ms to 600 s.
  int64_t accept_timeout_ns = 5'000'000'000;
  // Maximum memory for lanes, in bytes: rings into which busy peers write, so that this side polls
  // the payload instead of completions. Used only if the device guarantees the required order. 0:
  // no lanes. Range: 0 to 1 GiB. A peer is asked to use completions before this side sleeps, and
  // before its lane is given to others. A peer that does not comply within keepalive_ns (30 s if
  // that is 0), plus at most a third of that, is disconnected. See docs/decisions/0024.
  uint32_t lane_memory_bytes = 2 << 20;
  // Maximum number of slots of a lane; a peer with fewer credits gets fewer slots. Range: 4 to 4096.
  // Messages longer than a slot are sent outside the lane.
  uint32_t lane_slots = 128;
  uint32_t lane_slot_bytes = 256;  // a multiple of 128, 128 to 4096; also for lanes of peers
  // Number of messages from a peer, while this process does not sleep, after which the peer gets a
  // lane. Range: 1 to 32,768.
  uint32_t lane_after_messages = 64;
  // True: use lanes even if the device does not guarantee order. Each message is then announced by
  // a completion, so there is no gain.
  bool lanes_without_order = false;
  // Maximum size of a large message, fetched or lent, in bytes. 0: none. Range: below 2 GiB.
  uint64_t max_large_bytes = 0;
  // Maximum memory for fetched messages, in bytes, and the same amount for lent messages. Allocated
  // when needed. Range: max_large_bytes to 1 TiB.
  uint64_t large_memory_bytes = 256 << 20;
  // False: do not use DCI streams.
  bool use_streams = true;
  // Path MTU of all queues in bytes; the active MTU of the port if that is smaller. A peer with another path MTU is refused.
  // Values: 256, 512, 1024, 2048, 4096.
  uint32_t path_mtu_bytes = 1024;

  // Source of the secrets that peers must prove. Called for each handshake, inside Commands. Empty:
  // any peer that reaches the port may connect. See docs/decisions/0011.
  peer::SecretSource secrets;
  // Not empty: the secret that a peer proves selects its tenant. Each tenant's peers have separate
  // DCTs, keys, receive buffers and places. `secrets` must be empty, `srq_size` and `max_peers`
  // have no effect (each tenant has its own), and outbound connections belong to the first tenant.
  std::vector<Tenant> tenants;
  // Maximum number of clients that have sent a hello and not proved the secret yet. When half of it
  // is used, a client must first return a cookie, and the sources share the rest. At the limit
  // clients are refused with RESOURCE_EXHAUSTED. Range: 1 to 65,536. See docs/decisions/0049.
  uint32_t max_half_open = 512;
  // Maximum number of failed handshakes a second from one source (an IPv4 address, or an IPv6 /64).
  // At the limit a client at that source must first return a cookie. Range: 1 to 1,000,000.
  uint32_t failed_handshakes_per_second = 32;
  // Endpoints of one process and device with the same desk share their clients: one of them
  // listens, and each client becomes a peer of the endpoint with the fewest peers. nullptr: this
  // endpoint keeps its clients.
  std::shared_ptr<cm::RequestDesk> desk;

  // Sink for conditions that no call reports: refused peers, failed requests, events of the
  // device. nullptr: none. Outlives the endpoint.
  base::LogSink* log = nullptr;

  // Checks ranges. INVALID_ARGUMENT with the option, its value and its range.
  absl::Status Validate() const;
};

// Creates a desk for Options::desk.
std::shared_ptr<cm::RequestDesk> MakeRequestDesk();

// Creates an endpoint with queues, buffers and DCTs. Blocks. All objects passed by reference
// outlive the endpoint. Each `commands` serves one endpoint.
absl::StatusOr<std::unique_ptr<Endpoint>> CreateEndpoint(const Options& options,
                                                         device::Device& device, base::Clock& clock,
                                                         base::Random& random,
                                                         poller::Commands& commands,
                                                         Handler* handler);

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_CREATE_H_
