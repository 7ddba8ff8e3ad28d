// SPDX-License-Identifier: Apache-2.0
//
// Snapshot: the counters of a Server or a Channel, as values. Prometheus, the introspection service
// and tests read these values; no counter exists twice.
//
// Ownership     A value.
// Threads       As any value.
#ifndef SLUICE_MIDDLEWARE_API_SNAPSHOT_H_
#define SLUICE_MIDDLEWARE_API_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "middleware/call/client_engine.h"
#include "middleware/call/server_engine.h"
#include "middleware/observe/call_stats.h"
#include "middleware/observe/slow_calls.h"
#include "middleware/session/sessions.h"
#include "transport/endpoint/endpoint.h"

namespace sluice {

// A connected client of a server.
struct PeerSnapshot {
  std::string address;
  std::string tenant;
  // "up"; "blocked": a message waits for a credit or a buffer; "probed": the server has sent it a keepalive
  // probe, and has received no answer so far.
  std::string state = "up";
  uint32_t credits = 0;        // messages that the server may send to it now
  uint32_t credit_window = 0;  // maximum that it grants; 0: the peer is in this process
  bool has_lane = false;       // granted by either side
  bool authenticated = false;
  bool own_congestion_control = false;  // negotiated, and the address handle is mapped
  uint32_t max_message_bytes = 0;
  size_t calls_under_way = 0;  // asynchronous calls without a reply so far
  size_t waiting_replies = 0;  // replies that wait for credit
  size_t waiting_bytes = 0;
};

// An asynchronous call that the server has not answered yet.
struct CallUnderWay {
  std::string method;
  std::string peer;
  absl::Duration age;
  absl::Duration time_left;  // until the deadline; infinite: no deadline
  std::string tenant;        // tenant of the caller; empty: no tenants
};

// Number of peers of a tenant.
struct TenantSnapshot {
  std::string tenant;
  uint64_t peers = 0;  // now
};

// One of a server's polling threads.
struct PollerSnapshot {
  bool fresh = false;  // as in ServerSnapshot
  uint64_t requests = 0;
  uint64_t peers = 0;  // now
};

// Counters of all pollers together.
struct ServerSnapshot {
  // Counted while the server runs; always current.
  std::vector<observe::MethodSnapshot> methods;
  // True: the polling thread has answered, and all values below are current. False: it did not
  // answer in time, because a handler blocks it; the values are those of its last answer.
  bool fresh = false;
  std::vector<PollerSnapshot> pollers;
  call::ServerCounters calls;
  session::SessionCounters sessions;
  endpoint::Counters transport;
  endpoint::HandshakeCounts handshakes;
  endpoint::ConnectionCounts connections;
  // The members below are set only with details.
  std::vector<PeerSnapshot> peers;  // at most `details` per tenant
  size_t peers_in_all = 0;
  std::vector<TenantSnapshot> tenants;  // tenants with peers; empty: no tenants
  std::vector<endpoint::QueueReport> queues;
  std::vector<observe::SlowCall> slow_calls;  // oldest first
  uint64_t slow_calls_in_all = 0;
  std::vector<CallUnderWay> calls_under_way;  // oldest first
};

// Adds the counters of another poller and appends its lists, at most `details` peers of each tenant
// in total.
void Merge(const ServerSnapshot& from, size_t details, ServerSnapshot* into);

// Removes peers and calls that do not belong to `tenant`.
void KeepTenant(std::string_view tenant, ServerSnapshot* snapshot);

// Adds `peers` to the number of peers of `tenant`; returns the new number.
uint64_t CountPeer(const std::string& tenant, uint64_t peers, std::vector<TenantSnapshot>* tenants);

struct ChannelSnapshot {
  bool fresh = true;  // false: the driving thread did not answer in time; only `methods` is set
  std::vector<observe::MethodSnapshot> methods;
  call::ConnectionState state = call::ConnectionState::kIdle;
  uint32_t outstanding = 0;
  call::ClientCounters calls;
  session::SessionCounters sessions;
  endpoint::Counters transport;
  endpoint::ConnectionCounts connections;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_SNAPSHOT_H_
