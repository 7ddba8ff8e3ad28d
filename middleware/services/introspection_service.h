// SPDX-License-Identifier: Apache-2.0
//
// IntrospectionService: reports the state of a server (proto/introspection.proto) to sluice_stat
// and sluice_trace: peers, send queues and streams, methods and latencies, slow calls, limits and
// capabilities.
//
//   sluice::IntrospectionService introspection(server.get(), options);
//   absl::Status status = server->Register(&introspection);
//
// Access        Without tenants, every caller sees everything. With tenants, a caller sees peers,
//               slow calls and calls in progress of its own tenant, and no counters of all tenants
//               together; Trace() is refused. ShowAllTo() names tenants whose callers see
//               everything. Do not register the service if this is too much.
// Ownership     The user owns it. It outlives the server's calls. Destroy the server before or
//               after it.
// Threads       Runs on the polling thread. A call takes some microseconds, and about one more for
//               each reported peer. For peers of other tenants it compares only the name.
// Limits        kMaxPeers, kMaxRecords. The reply must fit max_message_bytes: peers that do not fit
//               are omitted.
#ifndef SLUICE_MIDDLEWARE_SERVICES_INTROSPECTION_SERVICE_H_
#define SLUICE_MIDDLEWARE_SERVICES_INTROSPECTION_SERVICE_H_

#include <string>
#include <utility>
#include <vector>

#include "middleware/api/options.h"
#include "middleware/api/server.h"
#include "middleware/services/counter_table.h"
#include "proto/introspection.sluice.h"

namespace sluice {

class IntrospectionService final : public introspection::v1::IntrospectionServiceBase {
 public:
  static constexpr uint32_t kMaxPeers = 1024;
  static constexpr uint32_t kMaxRecords = 4096;

  // `options`: the options that the server was created with. `patience`: maximum time to wait for
  // the polling thread of another server than the called one.
  IntrospectionService(const Server* server, const ServerOptions& options,
                       absl::Duration patience = absl::Milliseconds(200))
      : server_(server), options_(options), patience_(patience) {}

  // Callers of this tenant see everything, other tenants included. Default: no tenant. Call before
  // Listen().
  void ShowAllTo(std::string tenant) { see_all_.push_back(std::move(tenant)); }
  // Adds counters to the report: introspection.Add([&] { return
  // sluice::ReadCounters(bulk->counters()); }).
  // Call before Listen().
  void Add(CounterSource source) { sources_.push_back(std::move(source)); }

  absl::Status Look(ServerContext& context, const introspection::v1::LookRequest& request,
                    introspection::v1::LookReply* reply) override;
  absl::Status Trace(ServerContext& context, const introspection::v1::TraceRequest& request,
                     introspection::v1::TraceReply* reply) override;

 private:
  bool SeesAll(const ServerContext& context) const;

  const Server* const server_;
  const ServerOptions options_;
  const absl::Duration patience_;
  std::vector<CounterSource> sources_;
  std::vector<std::string> see_all_;  // tenants
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_SERVICES_INTROSPECTION_SERVICE_H_
