// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/counter_table.h"

#include "absl/status/status.h"

namespace sluice {
namespace {

void AddTransport(const endpoint::Counters& c, std::vector<Reading>* out) {
  const Reading readings[] = {
      {"messages_sent", c.messages_sent, false, "messages sent"},
      {"messages_received", c.messages_received, false, "messages received"},
      {"credit_messages", c.credit_messages, false, "messages that said credits and nothing else"},
      {"control_received", c.control_received, false, "control messages received"},
      {"dropped_unknown", c.dropped_unknown, false, "dropped messages of unknown peers"},
      {"dropped_malformed", c.dropped_malformed, false, "messages without a prefix: dropped"},
      {"dropped_unproven", c.dropped_unproven, false, "messages before a handshake's end: dropped"},
      {"receive_errors", c.receive_errors, false, "receive completions with an error"},
      {"probes", c.probes, false, "asked for a sign of life or credit"},
      {"resends", c.resends, false, "peers to whom messages were sent again"},
      {"control_repeats", c.control_repeats, false,
       "peers to whom control messages were sent again"},
      {"reposts", c.reposts, false, "messages sent again"},
      {"requests_failed", c.requests_failed, false, "send requests that failed by themselves"},
      {"requests_flushed", c.requests_flushed, false,
       "send requests that another's error took along"},
      {"late_completions", c.late_completions, false, "completions of requests long forgotten"},
      {"stream_resets", c.stream_resets, false, "hardware streams reset after an error"},
      {"queue_recoveries", c.queue_recoveries, false, "whole DCIs recovered after an error"},
      {"silent_peers", c.silent_peers, false, "peers ended because they were silent"},
      {"over_credit", c.over_credit, false, "peers ended because they exceeded their credits"},
      {"targets_renewed", c.targets_renewed, false, "DCTs of a tenant replaced after such a peer"},
      {"windows_waiting", c.windows_waiting, true, "peers that wait for receive buffers"},
      {"windows_granted", c.windows_granted, false, "windows granted to peers that asked for one"},
      {"windows_recalled", c.windows_recalled, false, "windows recalled since other peers waited"},
      {"windows_asked", c.windows_asked, false, "windows that this side asked for"},
      {"lanes", c.lanes, true, "lanes granted to peers"},
      {"lanes_watched", c.lanes_watched, true, "of those, polled"},
      {"lane_memory_bytes", c.lane_bytes, true, "memory of lanes"},
      {"lanes_granted", c.lanes_granted, false, "lanes granted so far"},
      {"lanes_lost", c.lanes_lost, false, "lanes lost with their peer or after errors"},
      {"lanes_closed", c.lanes_closed, false, "lanes closed in favour of busier peers"},
      {"lanes_refused", c.lanes_refused, false, "lanes for which there was no memory"},
      {"lane_messages_received", c.lane_received, false, "of the messages received, by lanes"},
      {"lane_messages_sent", c.lane_sent, false, "of the messages sent, by lanes"},
  };
  out->insert(out->end(), std::begin(readings), std::end(readings));
}

void AddSessions(const session::SessionCounters& c, std::vector<Reading>* out) {
  const Reading readings[] = {
      {"duplicates", c.duplicates, false, "messages that had come before: dropped"},
      {"sent_again", c.sent_again, false, "messages that their receiver may have had"},
      {"large_sent", c.large_sent, false, "large messages sent"},
      {"large_received", c.large_received, false, "large messages received"},
      {"large_lost", c.large_lost, false, "large messages that could not be lent or read"},
      {"large_in_place", c.large_in_place, false, "of those sent: from memory of their user's"},
      {"large_held", c.large_held, false, "of those received: kept where they had come in"},
      {"large_lent", c.lent, true, "large messages that their receivers have not read yet"},
  };
  out->insert(out->end(), std::begin(readings), std::end(readings));
}

void AddConnections(const endpoint::ConnectionCounts& c, std::vector<Reading>* out) {
  const Reading readings[] = {
      {"qp_numbers_live", c.numbers_live, true, "QP numbers of connections and attempts"},
      {"qp_numbers_quarantined", c.numbers_quarantined, true,
       "QP numbers that wait until no side can be in timewait"},
      {"qp_numbers_exhausted", c.numbers_exhausted, false, "attempts for which there was none"},
      {"stale_rejects", c.stale_rejects, false, "QP numbers that the other host still knew"},
      {"connect_retries", c.retries, false, "attempts to connect that were repeated"},
      {"connects_throttled", c.throttled, false, "attempts that waited for their peer's sake"},
      {"address_handles_in_use", c.handles_in_use, true, "address handles in use"},
      {"address_handles_idle", c.handles_idle, true, "address handles kept for peers to come back"},
      {"address_handles_made", c.handles_made, false, "address handles made"},
      {"address_handle_failures", c.handle_failures, false, "address handles that were refused"},
      {"map_failures", c.map_failures, false, "address handles without their congestion control"},
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
      {"calls_under_way", c.calls_under_way, true, "calls that are answered later"},
      {"requests", c.requests, false, "requests that reached a handler"},
      {"replies_lost", c.replies_lost, false, "answers whose caller had gone"},
      {"replies_waited", c.replies_waited, false, "answers that waited for their caller's credit"},
      {"unknown_methods", c.unknown_methods, false, "calls of methods that are not here"},
      {"refused", c.refused, false, "calls above max_concurrent_calls"},
      {"cancelled", c.cancelled, false, "calls whose callers no longer waited"},
      {"protocol_errors", c.protocol_errors, false, "peers disconnected for what they sent"},
      {"overflows", c.overflows, false, "peers disconnected because they took no answers"},
      {"handshakes_completed", h.completed, false, "handshakes that came to their end"},
      {"handshakes_garbage", h.garbage, false, "handshakes that were none, or of other versions"},
      {"handshakes_unauthenticated", h.unauthenticated, false, "handshakes without a right secret"},
      {"handshakes_unfinished", h.unfinished, false, "handshakes whose proof did not come"},
      {"handshakes_too_often", h.too_often, false, "handshakes refused without words"},
      {"handshakes_asked_again", h.asked_again, false, "handshakes that needed a cookie"},
      {"handshakes_full", h.full, false, "handshakes for which there was no place"},
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
       "1 while there is a connection"},
      {"outstanding", snapshot.outstanding, true, "calls that have not ended"},
      {"connections", c.connections, false, "connections that came up"},
      {"connections_lost", c.connections_lost, false, "connections that went down after that"},
      {"late_replies", c.late_replies, false, "answers to calls that had ended"},
      {"protocol_errors", c.protocol_errors, false, "connections closed for what came over them"},
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

std::string CodeName(int code) {
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
}

}  // namespace sluice
