// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/introspection_service.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "middleware/frame/frame.h"
#include "middleware/frame/method_id.h"
#include "middleware/observe/trace_events.h"
#include "middleware/services/counter_table.h"
#include "transport/base/error.h"
#include "transport/verbs/capabilities.h"

namespace sluice {
namespace {

using introspection::v1::LookReply;

constexpr uint32_t kDefaultPeers = 64;
constexpr uint32_t kDefaultRecords = 256;

void AddCounts(const std::vector<Reading>& readings, LookReply* reply) {
  for (const Reading& reading : readings) {
    introspection::v1::Count* count = reply->add_counts();
    count->set_name(reading.name);
    count->set_value(reading.value);
    count->set_now(reading.now);
    count->set_meaning(reading.meaning);
  }
}

void AddMethods(const ServerSnapshot& snapshot, LookReply* reply) {
  for (const observe::MethodSnapshot& from : snapshot.methods) {
    introspection::v1::Method* method = reply->add_methods();
    method->set_name(from.method);
    method->set_started(from.started);
    method->set_in_flight(from.in_flight());
    for (int code = 0; code < observe::kStatusCodes; ++code) {
      if (from.ended[code] == 0) continue;
      introspection::v1::Ended* ended = method->add_ended();
      ended->set_code(CodeName(code));
      ended->set_count(from.ended[code]);
    }
    method->set_request_bytes(from.request_bytes);
    method->set_reply_bytes(from.reply_bytes);
    method->set_stream_messages_sent(from.stream_messages_sent);
    method->set_stream_messages_received(from.stream_messages_received);
    for (const base::HistogramCopy::Bucket& bucket : from.latency_ns.Buckets()) {
      introspection::v1::Bucket* latency = method->add_latencies();
      latency->set_first_ns(bucket.first);
      latency->set_last_ns(bucket.last);
      latency->set_count(bucket.count);
    }
  }
}

void AddPeers(const ServerSnapshot& snapshot, uint32_t most, LookReply* reply) {
  reply->set_peers_in_all(snapshot.peers_in_all);
  for (const PeerSnapshot& from : snapshot.peers) {
    if (reply->peers_size() == static_cast<int>(most)) return;
    introspection::v1::Peer* peer = reply->add_peers();
    peer->set_address(from.address);
    peer->set_tenant(from.tenant);
    peer->set_authenticated(from.authenticated);
    peer->set_own_congestion_control(from.own_congestion_control);
    peer->set_max_message_bytes(from.max_message_bytes);
    peer->set_calls_under_way(from.calls_under_way);
    peer->set_waiting_replies(from.waiting_replies);
    peer->set_waiting_bytes(from.waiting_bytes);
  }
}

void AddPollers(const ServerSnapshot& snapshot, LookReply* reply) {
  for (const PollerSnapshot& from : snapshot.pollers) {
    introspection::v1::Poller* poller = reply->add_pollers();
    poller->set_fresh(from.fresh);
    poller->set_requests(from.requests);
    poller->set_peers(from.peers);
  }
}

void AddQueues(const ServerSnapshot& snapshot, LookReply* reply) {
  for (const endpoint::QueueReport& from : snapshot.queues) {
    introspection::v1::Queue* queue = reply->add_queues();
    queue->set_qp_number(from.qp_number);
    queue->set_state(from.state);
    queue->set_probation(from.probation);
    queue->set_posted(from.posted);
    queue->set_streams(from.streams);
    queue->set_streams_busy(from.streams_busy);
    queue->set_streams_errored(from.streams_errored);
    queue->set_recoveries(from.drains);
  }
}

void AddCalls(const ServerSnapshot& snapshot, int64_t now_ns, LookReply* reply) {
  reply->set_slow_calls_in_all(snapshot.slow_calls_in_all);
  for (const observe::SlowCall& from : snapshot.slow_calls) {
    introspection::v1::SlowCall* call = reply->add_slow_calls();
    call->set_method(from.method);
    call->set_peer(from.peer);
    call->set_ago_ns(now_ns - from.received_ns);
    call->set_took_ns(from.took_ns);
    call->set_code(CodeName(static_cast<int>(from.code)));
  }
  for (const CallUnderWay& from : snapshot.calls_under_way) {
    introspection::v1::CallUnderWay* call = reply->add_calls_under_way();
    call->set_method(from.method);
    call->set_peer(from.peer);
    call->set_age_ns(absl::ToInt64Nanoseconds(from.age));
    call->set_time_left_ns(
        from.time_left == absl::InfiniteDuration() ? -1 : absl::ToInt64Nanoseconds(from.time_left));
  }
}

void AddLimits(const ServerOptions& options, LookReply* reply) {
  const auto add = [reply](const char* name, std::string value) {
    introspection::v1::Limit* limit = reply->add_limits();
    limit->set_name(name);
    limit->set_value(std::move(value));
  };
  add("max_message_bytes", absl::StrCat(options.limits.max_message_bytes));
  add("credits_per_peer", absl::StrCat(options.limits.credits_per_peer));
  add("receive_buffers", absl::StrCat(options.limits.receive_buffers));
  add("max_waiting_replies_per_peer", absl::StrCat(options.max_waiting_replies_per_peer));
  add("max_waiting_bytes_per_peer", absl::StrCat(options.max_waiting_bytes_per_peer));
  add("max_concurrent_calls", absl::StrCat(options.max_concurrent_calls));
  add("dead_peer_timeout", absl::FormatDuration(options.limits.dead_peer_timeout));
  add("keepalive", absl::FormatDuration(options.limits.keepalive));
  add("path_mtu", absl::StrCat(options.limits.path_mtu));
  const auto add_optional = [&add](const char* name, std::optional<uint32_t> value) {
    add(name, value ? absl::StrCat(*value) : "auto");
  };
  add_optional("path.gid_index", options.path.gid_index);
  add_optional("path.traffic_class", options.path.traffic_class);
  add_optional("path.service_level", options.path.service_level);
  add_optional("path.pkey", options.path.pkey);
  add("slow_call", absl::FormatDuration(options.slow_call));
}

template <typename Repeated>
bool Halve(Repeated* repeated) {
  if (repeated->empty()) return false;
  repeated->DeleteSubrange(repeated->size() / 2, repeated->size() - repeated->size() / 2);
  return true;
}

// What is missed least goes first.
void Shorten(size_t limit_bytes, LookReply* reply) {
  while (reply->ByteSizeLong() > limit_bytes) {
    reply->set_shortened(true);
    if (Halve(reply->mutable_peers()) || Halve(reply->mutable_calls_under_way()) ||
        Halve(reply->mutable_slow_calls())) {
      continue;
    }
    bool some = false;
    for (int i = reply->methods_size(); i-- > 0 && !some;) {
      some = reply->methods(i).latencies_size() > 0;
      reply->mutable_methods(i)->clear_latencies();
    }
    if (!some && !Halve(reply->mutable_counts()) && !Halve(reply->mutable_methods())) return;
  }
}

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
  const ServerSnapshot snapshot = server_->Snapshot(
      wanted, patience_,
      sees_all ? std::nullopt : std::optional<std::string_view>(context.tenant()));
  const int64_t now_ns = server_->now_ns();
  reply->set_device(server_->device_choice());
  reply->set_time_ns(now_ns);
  for (const verbs::Capability& from : server_->capabilities().all()) {
    introspection::v1::Capability* capability = reply->add_capabilities();
    capability->set_name(std::string(verbs::Name(from.feature)));
    capability->set_on(from.on);
    capability->set_why(from.why);
  }
  if (sees_all) {
    AddCounts(ReadCounters(snapshot), reply);
    for (const CounterSource& source : sources_) AddCounts(source(), reply);
    AddPollers(snapshot, reply);
    AddMethods(snapshot, reply);
    AddQueues(snapshot, reply);
  } else {
    reply->set_only_tenant(context.tenant());
  }
  AddLimits(options_, reply);
  AddPeers(snapshot, wanted, reply);
  AddCalls(snapshot, now_ns, reply);
  Shorten(RoomFor(options_), reply);
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
  const std::vector<base::TraceRecord> records = server_->Trace();
  absl::flat_hash_map<uint64_t, std::string> names;
  for (const observe::MethodSnapshot& method : server_->Snapshot().methods) {
    names.emplace(frame::MethodId(method.method), method.method);
  }
  reply->set_time_ns(server_->now_ns());
  const size_t count = std::min<size_t>({records.size(), wanted, kMaxRecords});
  for (size_t i = records.size() - count; i < records.size(); ++i) {
    const base::TraceRecord& record = records[i];
    introspection::v1::TraceEntry* entry = reply->add_entries();
    entry->set_time_ns(record.time_ns);
    entry->set_event(observe::Name(static_cast<observe::TraceEvent>(record.event)));
    entry->set_id(record.id);
    if (const auto found = names.find(record.detail); found != names.end()) {
      entry->set_method(found->second);
    }
    entry->set_number(record.number);
    entry->set_code(CodeName(record.code));
  }
  while (reply->ByteSizeLong() > RoomFor(options_) && reply->entries_size() > 0) {
    reply->mutable_entries()->DeleteSubrange(0, (reply->entries_size() + 7) / 8);
  }
  return absl::OkStatus();
}

}  // namespace sluice
