// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/option_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice {
namespace {

constexpr double kMs = 1e-3;
constexpr double kUs = 1e-6;

constexpr const char* kLanes[] = {"off", "auto", "on"};
constexpr const char* kLogLevels[] = {"off", "error", "warning", "info"};
constexpr const char* kBalancing[] = {"pick_first", "round_robin", "least_outstanding"};

template <typename T, size_t n>
std::string SetName(const char* const (&names)[n], std::string_view text, T* value) {
  const auto found = std::find(std::begin(names), std::end(names), text);
  if (found == std::end(names)) return absl::StrCat("allowed are ", absl::StrJoin(names, ", "));
  *value = static_cast<T>(found - std::begin(names));
  return "";
}

std::string Seconds(double seconds) { return absl::FormatDuration(absl::Seconds(seconds)); }

// Returns an option that is a number or a time, with its range.
template <typename T>
Option In(const char* name, T* value, double low, double high, const char* meaning) {
  std::string allowed;
  if constexpr (std::is_same_v<T, absl::Duration>) {
    allowed = absl::StrCat(Seconds(low), " to ", Seconds(high));
  } else {
    allowed = absl::StrCat(low == static_cast<double>(static_cast<int64_t>(low))
                               ? absl::StrCat(static_cast<int64_t>(low))
                               : absl::StrCat(low),
                           " to ", absl::StrCat(static_cast<int64_t>(high)));
    if constexpr (std::is_same_v<T, std::optional<uint32_t>>) allowed += ", or auto";
  }
  return {name, value, low, high, std::move(allowed), meaning};
}

void AddCommon(std::string* device, EndpointLimits* limits, PathOptions* path,
               Authentication* authentication, LogLevel* log_level, absl::Duration* spin,
               std::vector<Option>* out) {
  const Option common[] = {
      {"device", device, 0, 0, "auto, a device, an address", "the RDMA device to use"},
      In("limits.max_message_bytes", &limits->max_message_bytes, 1024, 1 << 20,
         "maximum size of a message that is sent directly, 48 bytes of header included"),
      In("limits.max_large_message_bytes", &limits->max_large_message_bytes, 0, INT32_MAX,
         "maximum size of a message; the receiver reads larger ones than the above; 0: none"),
      In("limits.large_memory_bytes", &limits->large_memory_bytes, 0, 1099511627776.0,
         "memory for such messages in each direction; at least the above"),
      In("limits.credits_per_peer", &limits->credits_per_peer, 4, 4096,
         "maximum number of messages in flight from one peer"),
      In("limits.receive_buffers", &limits->receive_buffers, 16, 32768,
         "number of buffers, shared by all peers; at least credits_per_peer"),
      In("limits.max_rc_queue_pairs", &limits->max_rc_queue_pairs, 0, 65535,
         "maximum number of RC queue pairs, one for each peer without DC; 0: all of the device"),
      In("limits.dead_peer_timeout", &limits->dead_peer_timeout, 10 * kMs, 60,
         "time after which an unresponsive peer is declared dead"),
      In("limits.keepalive", &limits->keepalive, 0, 3600,
         "time after which a silent peer is declared dead; 0: never"),
      {"limits.lanes", &limits->lanes, 0, 0, absl::StrJoin(kLanes, ", "),
       "whether busy peers get lanes"},
      In("limits.lane_memory_bytes", &limits->lane_memory_bytes, 0, 1 << 30,
         "maximum memory for lanes, in bytes; the busiest peers get them"),
      In("limits.lane_slots", &limits->lane_slots, 4, 4096, "maximum number of slots of a lane"),
      In("limits.lane_slot_bytes", &limits->lane_slot_bytes, 128, 4096,
         "size of a slot, a multiple of 128; longer messages are sent"),
      In("limits.lane_after_messages", &limits->lane_after_messages, 1, 32768,
         "number of messages from a peer after which it gets a lane"),
      In("limits.path_mtu", &limits->path_mtu, 256, 4096,
         "maximum payload of a packet, in bytes, a power of two; the same on all sides"),
      In("path.gid_index", &path->gid_index, 0, 254,
         "index in the GID table: address and RoCE version of all packets"),
      In("path.traffic_class", &path->traffic_class, 0, 255,
         "traffic class of all packets; RoCE v2: DSCP << 2 | ECN"),
      In("path.service_level", &path->service_level, 0, 15,
         "service level of all packets; RoCE: the priority, 0 to 7"),
      In("path.pkey", &path->pkey, 1, 65535,
         "partition key (not its index); the same on all sides"),
      In("path.ack_timeout", &path->ack_timeout, 1, 31,
         "ack timeout of protected bulk transfers: 4.096 us * 2^n; others: from dead_peer_timeout"),
      In("path.retry_count", &path->retry_count, 0, 7,
         "maximum number of retries of a request that the peer does not acknowledge"),
      In("path.rnr_retry", &path->rnr_retry, 0, 6,
         "maximum number of retries of a message for which the peer has no buffer"),
      In("path.flow_labels", &path->flow_labels, 1, 64,
         "number of flow labels (paths of ECMP) for each destination host on RoCE v2"),
      {"authentication.secret_file", &authentication->secret_file, 0, 0, "a file, mode 600",
       "secrets, one a line; empty: no authentication"},
      {"log_level", log_level, 0, 0, absl::StrJoin(kLogLevels, ", "),
       "minimum severity of log records"},
      In("spin", spin, 0, 1, "time to poll before sleeping; longer: lower latency, more CPU"),
  };
  out->insert(out->end(), std::begin(common), std::end(common));
}

}  // namespace

std::string Option::Text() const {
  struct Print {
    std::string operator()(uint32_t* v) const { return absl::StrCat(*v); }
    std::string operator()(std::optional<uint32_t>* v) const {
      return v->has_value() ? absl::StrCat(**v) : "auto";
    }
    std::string operator()(uint64_t* v) const { return absl::StrCat(*v); }
    std::string operator()(double* v) const { return absl::StrCat(*v); }
    std::string operator()(absl::Duration* v) const { return absl::FormatDuration(*v); }
    std::string operator()(std::string* v) const { return *v; }
    std::string operator()(Lanes* v) const { return kLanes[static_cast<int>(*v)]; }
    std::string operator()(Balancing* v) const { return kBalancing[static_cast<int>(*v)]; }
    std::string operator()(LogLevel* v) const { return kLogLevels[static_cast<int>(*v)]; }
  };
  return std::visit(Print(), value);
}

std::string Option::Set(std::string_view text) const {
  struct Read {
    std::string operator()(uint32_t* v) const {
      return absl::SimpleAtoi(Text(), v) ? "" : "it is no number from 0 to 4294967295";
    }
    std::string operator()(std::optional<uint32_t>* v) const {
      uint32_t number = 0;
      if (text == "auto") {
        v->reset();
      } else if (absl::SimpleAtoi(Text(), &number) ||
                 (text.substr(0, 2) == "0x" && absl::SimpleHexAtoi(Text(), &number))) {
        *v = number;
      } else {
        return "it is neither a number nor auto";
      }
      return "";
    }
    std::string operator()(uint64_t* v) const {
      return absl::SimpleAtoi(Text(), v) ? "" : "it is no whole number";
    }
    std::string operator()(double* v) const {
      return absl::SimpleAtod(Text(), v) ? "" : "it is no number";
    }
    std::string operator()(absl::Duration* v) const {
      return absl::ParseDuration(Text(), v) ? "" : "it is no time such as 50us or 1.5s";
    }
    std::string operator()(std::string* v) const {
      v->assign(text);
      return "";
    }
    std::string operator()(Lanes* v) const { return SetName(kLanes, text, v); }
    std::string operator()(Balancing* v) const { return SetName(kBalancing, text, v); }
    std::string operator()(LogLevel* v) const { return SetName(kLogLevels, text, v); }
    absl::string_view Text() const { return {text.data(), text.size()}; }
    std::string_view text;
  };
  return std::visit(Read{text}, value);
}

std::vector<Option> OptionsOf(ChannelOptions* o) {
  std::vector<Option> options;
  AddCommon(&o->device, &o->limits, &o->path, &o->authentication, &o->log_level, &o->spin,
            &options);
  const Option own[] = {
      In("connect_timeout", &o->connect_timeout, 1 * kMs, 3600,
         "timeout of each attempt to connect"),
      In("max_outstanding_calls", &o->max_outstanding_calls, 1, 1 << 20,
         "that have not ended; more are refused"),
      In("stream_window", &o->stream_window, 16, 65536,
         "messages of a stream that the server may send before they are read"),
      In("backoff_min", &o->backoff_min, 1 * kMs, 3600,
         "before a lost connection is made again, at first; not above backoff_max"),
      In("backoff_max", &o->backoff_max, 1 * kMs, 3600,
         "maximum wait before a reconnect; at least backoff_min"),
      In("max_reconnect_attempts", &o->max_reconnect_attempts, 0, UINT32_MAX,
         "maximum number of attempts in a row; the next call tries again"),
      {"balancing", &o->balancing, 0, 0, absl::StrJoin(kBalancing, ", "),
       "selects the server for each call"},
      In("health.period", &o->health.period, 0, 3600, "period of health checks; 0: none"),
      {"health.service", &o->health.service, 0, 0, "package.Service",
       "service whose health is checked; empty: the server"},
      In("retry.max_attempts", &o->retry.max_attempts, 1, 16,
         "maximum number of attempts of a call, the first included"),
      In("retry.pause_min", &o->retry.pause_min, 1 * kMs, 0.5,
         "first pause between two attempts; at most pause_max"),
      In("retry.pause_max", &o->retry.pause_max, 5 * kMs, 60,
         "maximum pause between two attempts; at least pause_min"),
      In("retry.budget", &o->retry.budget, 0, 1000000, "maximum number of retries in stock"),
      In("retry.refill", &o->retry.refill, 0, 1, "retries that each successful call adds"),
      In("trace_records", &o->trace_records, 0, 1 << 20,
         "number of recent events in memory, 32 bytes each"),
  };
  options.insert(options.end(), std::begin(own), std::end(own));
  return options;
}

std::vector<Option> OptionsOf(ServerOptions* o) {
  std::vector<Option> options;
  AddCommon(&o->device, &o->limits, &o->path, &o->authentication, &o->log_level, &o->spin,
            &options);
  const Option own[] = {
      In("max_waiting_replies_per_peer", &o->max_waiting_replies_per_peer, 1, 1 << 20,
         "replies that wait for credit; beyond it the peer is disconnected"),
      In("max_waiting_bytes_per_peer", &o->max_waiting_bytes_per_peer, 16384, 1099511627776.0,
         "likewise, in bytes; at least limits.max_message_bytes"),
      In("max_concurrent_calls", &o->max_concurrent_calls, 1, 1 << 24,
         "that are answered later; more are refused"),
      In("stream_window", &o->stream_window, 16, 65536,
         "messages of a stream that a client may send before they are read"),
      In("executor.max_waiting_calls", &o->executor.max_waiting_calls, 1, 1 << 24,
         "calls that wait for an executor; further calls are refused"),
      In("executor.max_wait", &o->executor.max_wait, 0, 3600,
         "time after which a waiting call is refused; 0: never"),
      In("slow_call", &o->slow_call, 1 * kUs, 3600,
         "time after which a call counts as slow, and is kept"),
      In("pollers", &o->pollers, 1, 64,
         "number of polling threads, each with its own peers and limits"),
      In("trace_records", &o->trace_records, 0, 1 << 20,
         "number of recent events in memory, 32 bytes each"),
  };
  options.insert(options.end(), std::begin(own), std::end(own));
  return options;
}

std::vector<Option> OptionsOf(MessengerOptions* o) {
  std::vector<Option> options;
  AddCommon(&o->device, &o->limits, &o->path, &o->authentication, &o->log_level, &o->spin,
            &options);
  const Option own[] = {
      In("connect_timeout", &o->connect_timeout, 1 * kMs, 3600,
         "timeout of the connection for a first flow"),
      In("max_flows", &o->max_flows, 1, 1 << 24,
         "maximum number of open flows; further flows are refused"),
  };
  options.insert(options.end(), std::begin(own), std::end(own));
  return options;
}

}  // namespace sluice
