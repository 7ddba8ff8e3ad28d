// SPDX-License-Identifier: Apache-2.0
#include "tools/stat_table.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "transport/base/live_histogram.h"

namespace sluice::tools {
namespace {

using introspection::v1::LookReply;
using introspection::v1::Method;

// A counter that went back is that of a server that was started anew.
uint64_t Less(uint64_t after, uint64_t before) { return after >= before ? after - before : after; }

void Subtract(const Method& before, Method* after) {
  after->set_started(Less(after->started(), before.started()));
  after->set_request_bytes(Less(after->request_bytes(), before.request_bytes()));
  after->set_reply_bytes(Less(after->reply_bytes(), before.reply_bytes()));
  after->set_stream_messages_sent(
      Less(after->stream_messages_sent(), before.stream_messages_sent()));
  after->set_stream_messages_received(
      Less(after->stream_messages_received(), before.stream_messages_received()));
  for (introspection::v1::Ended& ended : *after->mutable_ended()) {
    for (const introspection::v1::Ended& was : before.ended()) {
      if (was.code() == ended.code()) ended.set_count(Less(ended.count(), was.count()));
    }
  }
  std::map<int64_t, uint64_t> buckets;
  for (const introspection::v1::Bucket& was : before.latencies()) {
    buckets[was.first_ns()] = was.count();
  }
  for (introspection::v1::Bucket& bucket : *after->mutable_latencies()) {
    bucket.set_count(Less(bucket.count(), buckets[bucket.first_ns()]));
  }
}

std::string Time(int64_t ns) {
  if (ns == 0) return "-";
  if (ns < 10'000) return absl::StrFormat("%d ns", ns);
  if (ns < 10'000'000) return absl::StrFormat("%.1f us", static_cast<double>(ns) / 1e3);
  if (ns < 10'000'000'000) return absl::StrFormat("%.1f ms", static_cast<double>(ns) / 1e6);
  return absl::StrFormat("%.1f s", static_cast<double>(ns) / 1e9);
}

std::string Rate(uint64_t count, double seconds) {
  return seconds <= 0 ? absl::StrCat(count)
                      : absl::StrFormat("%.1f", static_cast<double>(count) / seconds);
}

void AddMethods(const LookReply& look, double seconds, std::string* text) {
  absl::StrAppendFormat(text, "%-44s %12s %10s %9s %10s %10s %10s %12s\n", "method",
                        seconds <= 0 ? "calls" : "calls/s", "errors", "in flight", "p50", "p99",
                        "p99.9", seconds <= 0 ? "bytes" : "bytes/s");
  for (const Method& method : look.methods()) {
    uint64_t errors = 0;
    for (const introspection::v1::Ended& ended : method.ended()) {
      if (ended.code() != "OK") errors += ended.count();
    }
    base::HistogramCopy latencies;
    for (const introspection::v1::Bucket& bucket : method.latencies()) {
      latencies.Add(bucket.first_ns(), bucket.count());
    }
    absl::StrAppendFormat(text, "%-44s %12s %10d %9d %10s %10s %10s %12s\n", method.name(),
                          Rate(method.started(), seconds), errors, method.in_flight(),
                          Time(latencies.Quantile(0.5)), Time(latencies.Quantile(0.99)),
                          Time(latencies.Quantile(0.999)),
                          Rate(method.request_bytes() + method.reply_bytes(), seconds));
  }
}

void AddPeersAndQueues(const LookReply& look, std::string* text) {
  absl::StrAppendFormat(text, "\npeers%s: %d",
                        look.only_tenant().empty() ? "" : " of tenant " + look.only_tenant(),
                        look.peers_in_all());
  if (look.peers_size() > 0) {
    absl::StrAppendFormat(text, "\n  %-28s %-12s %-14s %10s %16s\n", "address", "tenant",
                          "authenticated", "in flight", "waiting answers");
  }
  for (const introspection::v1::Peer& peer : look.peers()) {
    absl::StrAppendFormat(text, "  %-28s %-12s %-14s %10d %16d\n", peer.address(), peer.tenant(),
                          peer.authenticated() ? "yes" : "no", peer.calls_under_way(),
                          peer.waiting_replies());
  }
  absl::StrAppendFormat(text, "\nsend queues: %d\n", look.queues_size());
  for (const introspection::v1::Queue& queue : look.queues()) {
    absl::StrAppendFormat(
        text, "  DCI 0x%06x %-9s %s posted %d, streams %d of %d busy, %d in error, %d recoveries\n",
        queue.qp_number(), queue.state(), queue.probation() ? "(probation)" : "", queue.posted(),
        queue.streams_busy(), queue.streams(), queue.streams_errored(), queue.recoveries());
  }
}

// Of a server with several.
void AddPollers(const LookReply& look, double seconds, std::string* text) {
  if (look.pollers_size() < 2) return;
  absl::StrAppendFormat(text, "\npollers: %d\n  %-28s %10s\n", look.pollers_size(),
                        seconds <= 0 ? "calls" : "calls/s", "peers");
  for (const introspection::v1::Poller& poller : look.pollers()) {
    absl::StrAppendFormat(text, "  %-28s %10d%s\n", Rate(poller.requests(), seconds),
                          poller.peers(),
                          poller.fresh() ? "" : "  busy in a handler: this is what it said last");
  }
}

void AddCalls(const LookReply& look, std::string* text) {
  if (look.calls_under_way_size() > 0) absl::StrAppend(text, "\ncalls in flight, oldest first\n");
  for (const introspection::v1::CallUnderWay& call : look.calls_under_way()) {
    absl::StrAppendFormat(
        text, "  %-44s of %-24s for %s, %s\n", call.method(), call.peer(), Time(call.age_ns()),
        call.time_left_ns() < 0 ? "no deadline" : absl::StrCat(Time(call.time_left_ns()), " left"));
  }
  if (look.slow_calls_size() > 0) {
    absl::StrAppendFormat(text, "\nslow calls, the last of %d\n", look.slow_calls_in_all());
  }
  for (const introspection::v1::SlowCall& call : look.slow_calls()) {
    absl::StrAppendFormat(text, "  %-44s of %-24s took %s, %s, %s ago\n", call.method(),
                          call.peer(), Time(call.took_ns()), call.code(), Time(call.ago_ns()));
  }
}

// Those that tell of trouble, when there is some.
void AddTrouble(const LookReply& look, std::string* text) {
  static const std::set<std::string> kTrouble = {
      "refused",         "overflows",           "protocol_errors",
      "requests_failed", "stream_resets",       "queue_recoveries",
      "silent_peers",    "over_credit",         "handshakes_unauthenticated",
      "handshakes_full", "replies_lost",        "unknown_methods",
      "receive_errors",  "qp_numbers_exhausted"};
  std::string trouble;
  for (const introspection::v1::Count& count : look.counts()) {
    if (count.value() != 0 && kTrouble.contains(count.name())) {
      absl::StrAppendFormat(&trouble, "  %-28s %10d  %s\n", count.name(), count.value(),
                            count.meaning());
    }
  }
  if (!trouble.empty()) absl::StrAppend(text, "\ntrouble\n", trouble);
}

}  // namespace

LookReply Between(const LookReply& before, const LookReply& after) {
  LookReply difference = after;
  for (introspection::v1::Count& count : *difference.mutable_counts()) {
    if (count.now()) continue;
    for (const introspection::v1::Count& was : before.counts()) {
      if (was.name() == count.name()) count.set_value(Less(count.value(), was.value()));
    }
  }
  for (Method& method : *difference.mutable_methods()) {
    for (const Method& was : before.methods()) {
      if (was.name() == method.name()) Subtract(was, &method);
    }
  }
  for (int i = 0; i < std::min(before.pollers_size(), difference.pollers_size()); ++i) {
    introspection::v1::Poller& poller = *difference.mutable_pollers(i);
    poller.set_requests(Less(poller.requests(), before.pollers(i).requests()));
  }
  return difference;
}

std::string StatTable(const LookReply& difference, double seconds) {
  std::string text = absl::StrCat("device ", difference.device(), "\n");
  absl::StrAppend(&text, seconds <= 0 ? "since the server's start\n\n"
                                      : absl::StrFormat("in the last %.1f s\n\n", seconds));
  AddMethods(difference, seconds, &text);
  AddPollers(difference, seconds, &text);
  AddPeersAndQueues(difference, &text);
  AddCalls(difference, &text);
  AddTrouble(difference, &text);
  if (difference.shortened()) {
    absl::StrAppend(&text, "\n(some was left out: raise max_message_bytes on both sides)\n");
  }
  return text;
}

}  // namespace sluice::tools
