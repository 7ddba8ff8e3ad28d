// SPDX-License-Identifier: Apache-2.0
//
// Snapshot: what a Server or a Channel has counted, as values. Prometheus, the introspection service and tests read these;
// nothing here is counted twice.
//
// Who owns it   Whoever asked for it.
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

// A caller, as its server sees it.
struct PeerSnapshot {
  std::string address;
  std::string tenant;
  bool authenticated = false;
  bool own_congestion_control = false;  // negotiated, and its address handle is mapped
  uint32_t max_message_bytes = 0;
  size_t calls_under_way = 0;  // that are answered later
  size_t waiting_replies = 0;  // for its credit
  size_t waiting_bytes = 0;
};

// A call that is answered later and has not been yet.
struct CallUnderWay {
  std::string method;
  std::string peer;
  absl::Duration age;
  absl::Duration time_left;  // until its deadline; infinite: it has none
  std::string tenant;        // of the caller; empty: there are no tenants
};

// The peers of a tenant.
struct TenantSnapshot {
  std::string tenant;
  uint64_t peers = 0;  // now
};

// One of a server's polling threads.
struct PollerSnapshot {
  bool fresh = false;  // as below
  uint64_t requests = 0;
  uint64_t peers = 0;  // now
};

// Of all pollers together.
struct ServerSnapshot {
  // Counted while it works; always of this moment.
  std::vector<observe::MethodSnapshot> methods;
  // The others are the polling thread's, which is asked for them. True: it has answered. False: it did not in time, because
  // it runs a handler that takes long; then they are what it said last.
  bool fresh = false;
  std::vector<PollerSnapshot> pollers;
  call::ServerCounters calls;
  session::SessionCounters sessions;
  endpoint::Counters transport;
  endpoint::HandshakeCounts handshakes;
  endpoint::ConnectionCounts connections;
  // With details only.
  std::vector<PeerSnapshot> peers;  // `details` of each tenant at most
  size_t peers_in_all = 0;
  std::vector<TenantSnapshot> tenants;  // those that have peers; empty: there are no tenants
  std::vector<endpoint::QueueReport> queues;
  std::vector<observe::SlowCall> slow_calls;  // the eldest first
  uint64_t slow_calls_in_all = 0;
  std::vector<CallUnderWay> calls_under_way;  // the eldest of them first
};

// Adds what another poller has counted; its lists follow, `details` peers of each tenant in all.
void Merge(const ServerSnapshot& from, size_t details, ServerSnapshot* into);

// Drops the peers and calls that belong to no tenant, or to another one.
void KeepTenant(std::string_view tenant, ServerSnapshot* snapshot);

// Adds to the peers of this tenant; returns how many there are now.
uint64_t CountPeer(const std::string& tenant, uint64_t peers, std::vector<TenantSnapshot>* tenants);

struct ChannelSnapshot {
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
