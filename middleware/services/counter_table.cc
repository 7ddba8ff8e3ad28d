// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/counter_table.h"

#include "absl/status/status.h"
#include "middleware/call/exceptions.h"

namespace sluice {
namespace {

void AddTransport(const endpoint::Counters& c, std::vector<Reading>* out) {
  const Reading readings[] = {
      {"messages_sent", c.messages_sent, false, "messages sent"},
      {"messages_received", c.messages_received, false, "messages received"},
      {"credit_messages", c.credit_messages, false,
       "messages that carried only a report of credits"},
      {"control_received", c.control_received, false, "control messages received"},
      {"dropped_unknown", c.dropped_unknown, false, "messages of unknown peers, dropped"},
      {"dropped_malformed", c.dropped_malformed, false, "messages without a valid prefix, dropped"},
      {"dropped_unproven", c.dropped_unproven, false,
       "messages before the end of the handshake, dropped"},
      {"receive_errors", c.receive_errors, false, "receive completions with an error"},
      {"probes", c.probes, false, "requests for a keepalive or for a report of credits"},
      {"resends", c.resends, false, "times that the messages of a peer were sent again"},
      {"control_repeats", c.control_repeats, false,
       "times that the control messages of a peer were sent again"},
      {"reposts", c.reposts, false, "messages sent again"},
      {"requests_failed", c.requests_failed, false,
       "send requests that failed, without flushed requests"},
      {"requests_flushed", c.requests_flushed, false,
       "send requests that were flushed after the error of another request"},
      {"late_completions", c.late_completions, false,
       "completions of requests that were abandoned"},
      {"stream_resets", c.stream_resets, false, "hardware streams reset after an error"},
      {"queue_recoveries", c.queue_recoveries, false, "DCIs recovered after an error"},
      {"silent_peers", c.silent_peers, false, "peers disconnected because they were silent"},
      {"over_credit", c.over_credit, false,
       "peers disconnected because they exceeded their credits"},
      {"targets_renewed", c.targets_renewed, false,
       "times that the DCTs of a tenant were replaced after such a peer"},
      {"windows_waiting", c.windows_waiting, true, "peers that wait for receive buffers"},
      {"windows_granted", c.windows_granted, false,
       "windows granted to peers that requested a window"},
      {"windows_recalled", c.windows_recalled, false, "windows recalled for peers that waited"},
      {"windows_asked", c.windows_asked, false, "windows that this side requested"},
      {"lanes", c.lanes, true, "lanes granted to peers"},
      {"lanes_watched", c.lanes_watched, true, "lanes that are polled"},
      {"lane_memory_bytes", c.lane_bytes, true, "memory of lanes"},
      {"lanes_granted", c.lanes_granted, false, "lanes granted so far"},
      {"lanes_lost", c.lanes_lost, false, "lanes lost with their peer or after errors"},
      {"lanes_closed", c.lanes_closed, false, "lanes closed in favour of busier peers"},
      {"lanes_refused", c.lanes_refused, false, "lanes refused for lack of memory"},
      {"lane_messages_received", c.lane_received, false, "messages received through lanes"},
      {"lane_messages_sent", c.lane_sent, false, "messages sent through lanes"},
  };
  out->insert(out->end(), std::begin(readings), std::end(readings));
}

void AddSessions(const session::SessionCounters& c, std::vector<Reading>* out) {
  const Reading readings[] = {
      {"duplicates", c.duplicates, false, "duplicate messages, dropped"},
      {"sent_again", c.sent_again, false,
       "messages sent again that the receiver may have received before"},
      {"large_sent", c.large_sent, false, "large messages sent"},
      {"large_received", c.large_received, false, "large messages received"},
      {"large_lost", c.large_lost, false,
       "large messages lost because they could not be lent or read"},
      {"large_in_place", c.large_in_place, false,
       "large messages sent from the memory in which the user wrote them"},
      {"large_held", c.large_held, false,
       "large messages received that the user kept without a copy"},
      {"large_lent", c.lent, true, "large messages that their receivers have not read yet"},
  };
  out->insert(out->end(), std::begin(readings), std::end(readings));
}

void AddConnections(const endpoint::ConnectionCounts& c, std::vector<Reading>* out) {
  const Reading readings[] = {
      {"qp_numbers_live", c.numbers_live, true, "QP numbers of connections and attempts"},
      {"qp_numbers_quarantined", c.numbers_quarantined, true,
       "QP numbers that wait until no side can be in timewait"},
      {"qp_numbers_exhausted", c.numbers_exhausted, false,
       "attempts to connect that found no free QP number"},
      {"stale_rejects", c.stale_rejects, false,
       "attempts to connect that were rejected because the other host still had the QP number"},
      {"connect_retries", c.retries, false, "attempts to connect that were repeated"},
      {"connects_throttled", c.throttled, false,
       "attempts to connect that were delayed by the rate limit"},
      {"address_handles_in_use", c.handles_in_use, true, "address handles in use"},
      {"address_handles_idle", c.handles_idle, true,
       "unused address handles kept for peers that return"},
      {"address_handles_made", c.handles_made, false, "address handles made"},
      {"address_handle_failures", c.handle_failures, false,
       "address handles that the device refused"},
      {"map_failures", c.map_failures, false,
       "address handles that could not be mapped to their congestion control"},
  };
  out->insert(out->end(), std::begin(readings), std::end(readings));
}

}  // namespace

std::vector<Reading> ReadCounters(const ServerSnapshot& snapshot) {
  const call::ServerCounters& c = snapshot.calls;
  const endpoint::HandshakeCounts& h = snapshot.handshakes;
  std::vector<Reading> readings = {
      {"peers", c.peers_up - c.peers_down, true, "peers that are connected"},
      {"peers_up", c.peers_up, false, "peers that have connected"},
      {"rests_asked", c.rests_asked, false,
       "idle peers asked to leave because all RC queue pairs were in use"},
      {"calls_under_way", c.calls_under_way, true,
       "calls in flight in coroutines, streams and executors"},
      {"requests", c.requests, false, "requests that reached a handler"},
      {"replies_lost", c.replies_lost, false,
       "replies dropped because the caller disconnected, or took no replies"},
      {"replies_waited", c.replies_waited, false, "replies that waited for credit of their caller"},
      {"unknown_methods", c.unknown_methods, false,
       "calls of methods that the server does not have"},
      {"refused", c.refused, false, "calls refused because max_concurrent_calls were in flight"},
      {"refused_draining", c.refused_draining, false,
       "calls refused because the server was draining"},
      {"refused_at_gate", c.refused_at_gate, false, "calls refused by authorize or an interceptor"},
      {"cancelled", c.cancelled, false,
       "calls ended by their caller, its disconnect, the deadline or a drain"},
      {"protocol_errors", c.protocol_errors, false,
       "peers disconnected because of invalid messages"},
      {"overflows", c.overflows, false, "peers disconnected because they took no replies"},
      {"handshakes_completed", h.completed, false, "handshakes completed"},
      {"handshakes_garbage", h.garbage, false,
       "requests that were no handshake, or had another version"},
      {"handshakes_unauthenticated", h.unauthenticated, false, "handshakes without a valid secret"},
      {"handshakes_unfinished", h.unfinished, false,
       "handshakes that ended before the client proved the secret"},
      {"handshakes_too_often", h.too_often, false,
       "handshakes refused without a text because too many had failed"},
      {"handshakes_asked_again", h.asked_again, false, "handshakes that needed a cookie"},
      {"handshakes_full", h.full, false, "handshakes refused because the server was full"},
      {"handshakes_under_way", h.under_way, true, "handshakes in progress"},
  };
  AddSessions(snapshot.sessions, &readings);
  AddConnections(snapshot.connections, &readings);
  AddTransport(snapshot.transport, &readings);
  return readings;
}

std::vector<Reading> ReadCounters(const ChannelSnapshot& snapshot) {
  const call::ClientCounters& c = snapshot.calls;
  std::vector<Reading> readings = {
      {"up", snapshot.state == call::ConnectionState::kUp ? 1u : 0u, true,
       "1 while the channel is connected, else 0"},
      {"outstanding", snapshot.outstanding, true, "calls in flight"},
      {"connections", c.connections, false, "connections established"},
      {"connections_lost", c.connections_lost, false, "established connections that were lost"},
      {"late_replies", c.late_replies, false, "replies to calls that had ended"},
      {"protocol_errors", c.protocol_errors, false,
       "connections closed because of invalid messages"},
  };
  AddSessions(snapshot.sessions, &readings);
  AddConnections(snapshot.connections, &readings);
  AddTransport(snapshot.transport, &readings);
  return readings;
}

std::vector<Reading> ReadCounters(const bulk::PortCounters& c) {
  return {
      {"bulk_transfers", c.transfers, false, "bulk transfers that this side began"},
      {"bulk_pieces", c.pieces, false, "pieces of them that were posted"},
      {"bulk_mismatches", c.mismatches, false, "pieces whose data were not what they should be"},
      {"bulk_arrivals", c.arrivals, false, "bulk transfers that the other side began"},
      {"bulk_found_here", c.found_here, false, "wrong data that the other side had sent as good"},
      {"bulk_peers_evicted", c.evicted, false, "idle peers disconnected to admit others"},
      {"bulk_signed_queues", c.signed_queues, false, "queue pairs made for protected transfers"},
      {"bulk_signed_closed", c.signed_closed, false, "of those: closed to make room for others"},
  };
}

std::optional<std::vector<Reading>> ReadSource(const CounterSource& source,
                                               std::string* exception) {
  try {
    return source();
  } catch (...) {
    *exception = call::TextOfException();
    return std::nullopt;
  }
}

std::string CodeName(int code) {
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
}

}  // namespace sluice
