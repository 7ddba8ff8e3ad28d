// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/look.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "middleware/frame/method_id.h"
#include "middleware/observe/trace_events.h"
#include "transport/verbs/capabilities.h"

namespace sluice {
namespace {

using introspection::v1::LookReply;
template <typename T>
using Repeated = google::protobuf::RepeatedPtrField<T>;

void AddPeers(const ServerSnapshot& snapshot, uint32_t most, LookReply* reply) {
  reply->set_peers_in_all(snapshot.peers_in_all);
  for (const PeerSnapshot& from : snapshot.peers) {
    if (reply->peers_size() == static_cast<int>(most)) return;
    introspection::v1::Peer* peer = reply->add_peers();
    peer->set_address(from.address);
    peer->set_tenant(from.tenant);
    peer->set_state(from.state);
    peer->set_credits(from.credits);
    peer->set_credit_window(from.credit_window);
    peer->set_has_lane(from.has_lane);
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
    queue->set_streams_resetting(from.streams_resetting);
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
  add("path.flow_labels", absl::StrCat(options.path.flow_labels));
  add("slow_call", absl::FormatDuration(options.slow_call));
}

template <typename Repeated>
bool Halve(Repeated* repeated) {
  if (repeated->empty()) return false;
  repeated->DeleteSubrange(repeated->size() / 2, repeated->size() - repeated->size() / 2);
  return true;
}

}  // namespace

void FillCounts(const std::vector<Reading>& readings, Repeated<introspection::v1::Count>* counts) {
  for (const Reading& reading : readings) {
    introspection::v1::Count* count = counts->Add();
    count->set_name(reading.name);
    count->set_value(reading.value);
    count->set_now(reading.now);
    count->set_meaning(reading.meaning);
  }
}

void FillMethods(const std::vector<observe::MethodSnapshot>& snapshots,
                 Repeated<introspection::v1::Method>* methods) {
  for (const observe::MethodSnapshot& from : snapshots) {
    introspection::v1::Method* method = methods->Add();
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

void FillCapabilities(const verbs::CapabilityReport& report,
                      Repeated<introspection::v1::Capability>* capabilities) {
  for (const verbs::Capability& from : report.all()) {
    introspection::v1::Capability* capability = capabilities->Add();
    capability->set_name(std::string(verbs::Name(from.feature)));
    capability->set_on(from.on);
    capability->set_why(from.why);
  }
}

bool FillLook(const LookRequest& request, LookReply* reply) {
  const Server& server = *request.server;
  const ServerSnapshot snapshot =
      server.Snapshot(request.max_peers, request.patience, request.only_tenant);
  const int64_t now_ns = server.now_ns();
  reply->set_device(server.device_choice());
  reply->set_time_ns(now_ns);
  FillCapabilities(server.capabilities(), reply->mutable_capabilities());
  if (!request.only_tenant) {
    FillCounts(ReadCounters(snapshot), reply->mutable_counts());
    AddPollers(snapshot, reply);
    FillMethods(snapshot.methods, reply->mutable_methods());
    AddQueues(snapshot, reply);
  } else {
    reply->set_only_tenant(std::string(*request.only_tenant));
  }
  AddLimits(*request.options, reply);
  AddPeers(snapshot, request.max_peers, reply);
  AddCalls(snapshot, now_ns, reply);
  return snapshot.fresh;
}

// Removes the least important data first.
void ShortenLook(size_t limit_bytes, LookReply* reply) {
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

void FillTrace(const Server& server, const std::vector<std::string>& methods, size_t max_records,
               Repeated<introspection::v1::TraceEntry>* entries) {
  const std::vector<base::TraceRecord> records = server.Trace();
  absl::flat_hash_map<uint64_t, std::string> names;
  for (const std::string& method : methods) names.emplace(frame::MethodId(method), method);
  const size_t count = std::min(records.size(), max_records);
  for (size_t i = records.size() - count; i < records.size(); ++i) {
    const base::TraceRecord& record = records[i];
    introspection::v1::TraceEntry* entry = entries->Add();
    entry->set_time_ns(record.time_ns);
    entry->set_event(observe::Name(static_cast<observe::TraceEvent>(record.event)));
    entry->set_id(record.id);
    if (const auto found = names.find(record.detail); found != names.end()) {
      entry->set_method(found->second);
    }
    entry->set_number(record.number);
    entry->set_code(CodeName(record.code));
  }
}

}  // namespace sluice
