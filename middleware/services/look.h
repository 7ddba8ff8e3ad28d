// SPDX-License-Identifier: Apache-2.0
//
// FillLook(), FillTrace(): the state of a server as messages of proto/introspection.proto, for the
// introspection service and for HttpPages.
//
// Threads       Any. FillLook() waits at most `patience` for the polling threads.
#ifndef SLUICE_MIDDLEWARE_SERVICES_LOOK_H_
#define SLUICE_MIDDLEWARE_SERVICES_LOOK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "middleware/api/options.h"
#include "middleware/api/server.h"
#include "middleware/observe/call_stats.h"
#include "middleware/services/counter_table.h"
#include "proto/introspection.pb.h"
#include "transport/verbs/capabilities.h"

namespace sluice {

struct LookRequest {
  const Server* server = nullptr;
  const ServerOptions* options = nullptr;  // with which the server was created
  uint32_t max_peers = 0;
  absl::Duration patience;
  // Only peers and calls of this tenant, no counters of the whole server.
  std::optional<std::string_view> only_tenant;
};

// Returns true if the polling threads have answered (ServerSnapshot::fresh).
bool FillLook(const LookRequest& request, introspection::v1::LookReply* reply);
// Removes peers, calls, latencies, counters and methods, in this order, until the reply has at most `limit_bytes`.
void ShortenLook(size_t limit_bytes, introspection::v1::LookReply* reply);
// Appends the newest records, oldest first. Methods that are not in `methods` have no name.
void FillTrace(const Server& server, const std::vector<std::string>& methods, size_t max_records,
               google::protobuf::RepeatedPtrField<introspection::v1::TraceEntry>* entries);

void FillCounts(const std::vector<Reading>& readings,
                google::protobuf::RepeatedPtrField<introspection::v1::Count>* counts);
void FillMethods(const std::vector<observe::MethodSnapshot>& snapshots,
                 google::protobuf::RepeatedPtrField<introspection::v1::Method>* methods);
void FillCapabilities(
    const verbs::CapabilityReport& report,
    google::protobuf::RepeatedPtrField<introspection::v1::Capability>* capabilities);

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_SERVICES_LOOK_H_
