// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/introspection_service.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "middleware/frame/frame.h"
#include "middleware/services/counter_table.h"
#include "middleware/services/look.h"
#include "transport/base/error.h"

namespace sluice {
namespace {

using introspection::v1::LookReply;

constexpr uint32_t kDefaultPeers = 64;
constexpr uint32_t kDefaultRecords = 256;

size_t RoomFor(const ServerOptions& options) {
  return options.limits.max_message_bytes - frame::kHeaderBytes;
}

}  // namespace

bool IntrospectionService::SeesAll(const ServerContext& context) const {
  return options_.tenants.empty() ||
         std::find(see_all_.begin(), see_all_.end(), context.tenant()) != see_all_.end();
}

absl::Status IntrospectionService::Look(ServerContext& context,
                                        const introspection::v1::LookRequest& request,
                                        LookReply* reply) {
  const uint32_t wanted =
      std::min(request.max_peers() == 0 ? kDefaultPeers : request.max_peers(), kMaxPeers);
  const bool sees_all = SeesAll(context);
  FillLook(
      {.server = server_,
       .options = &options_,
       .max_peers = wanted,
       .patience = patience_,
       .only_tenant = sees_all ? std::nullopt : std::optional<std::string_view>(context.tenant())},
      reply);
  if (sees_all) {
    for (const CounterSource& source : sources_) FillCounts(source(), reply->mutable_counts());
  }
  ShortenLook(RoomFor(options_), reply);
  return absl::OkStatus();
}

absl::Status IntrospectionService::Trace(ServerContext& context,
                                         const introspection::v1::TraceRequest& request,
                                         introspection::v1::TraceReply* reply) {
  if (!SeesAll(context)) {
    return base::Error(
        absl::StatusCode::kPermissionDenied, "the trace is not shown to this tenant",
        {.layer = "introspection",
         .operation = "trace",
         .cause = "it contains calls of all tenants; the caller's tenant is \"" + context.tenant() +
                  "\"",
         .remedy = "let the server call IntrospectionService::ShowAllTo() for this tenant"});
  }
  const uint32_t wanted = request.max_records() == 0 ? kDefaultRecords : request.max_records();
  std::vector<std::string> methods;
  for (observe::MethodSnapshot& method : server_->Snapshot().methods) {
    methods.push_back(std::move(method.method));
  }
  reply->set_time_ns(server_->now_ns());
  FillTrace(*server_, methods, std::min(wanted, kMaxRecords), reply->mutable_entries());
  while (reply->ByteSizeLong() > RoomFor(options_) && reply->entries_size() > 0) {
    reply->mutable_entries()->DeleteSubrange(0, (reply->entries_size() + 7) / 8);
  }
  return absl::OkStatus();
}

}  // namespace sluice
