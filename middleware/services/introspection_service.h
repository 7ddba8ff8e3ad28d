// SPDX-License-Identifier: Apache-2.0
//
// IntrospectionService: tells what a server is doing (proto/introspection.proto): its peers, send queues and streams,
// methods and their latencies, slow calls, limits and capabilities. For sluice_stat and sluice_trace.
//
//   sluice::IntrospectionService introspection(server.get(), options);
//   absl::Status status = server->Register(&introspection);
//
// Who sees what  If the server has no tenants, every caller sees everything. If it has tenants, a caller sees the peers, slow
//                calls and calls under way of its own tenant, and nothing that is counted for all tenants together; Trace()
//                is refused. ShowAllTo() names the tenants whose callers see everything. Do not register the service if
//                even that is too much.
//
// Which thread  The polling thread, which it holds up for some microseconds, and for about one per peer that it tells of.
//               Of other tenants' peers it only compares the name.
// Bounds        kMaxPeers, kMaxRecords; the answer has to fit max_message_bytes: peers that don't are left out.
// What ends it  It outlives the server's calls; the server outlives it, or is destroyed first.
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

  // `options` are those the server was made with. `patience`: for the polling thread of a server that is not the one that
  // is asked.
  IntrospectionService(const Server* server, const ServerOptions& options,
                       absl::Duration patience = absl::Milliseconds(200))
      : server_(server), options_(options), patience_(patience) {}

  // Callers of this tenant see everything that the server does, other tenants included. Default: no tenant does. Before
  // Listen().
  void ShowAllTo(std::string tenant) { see_all_.push_back(std::move(tenant)); }
  // Told beside what the server counts: introspection.Add([&] { return sluice::ReadCounters(bulk->counters()); }).
  // Before Listen().
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
