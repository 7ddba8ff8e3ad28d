// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/prometheus_metrics.h"

#include <prometheus/exposer.h>

#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "middleware/services/counter_table.h"
#include "middleware/services/http_address.h"
#include "transport/base/error.h"

namespace sluice {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// Families by name, in the order of their first use.
class Families {
 public:
  void Count(const std::string& name, const char* help, const Labels& labels, uint64_t value) {
    New(absl::StrCat(name, "_total"), help, MetricType::Counter, labels).counter.value =
        static_cast<double>(value);
  }
  void Gauge(const std::string& name, const char* help, const Labels& labels, uint64_t value) {
    New(name, help, MetricType::Gauge, labels).gauge.value = static_cast<double>(value);
  }
  // The bounds are ends of buckets of the histogram, so the counts are exact.
  void Seconds(const std::string& name, const char* help, const Labels& labels,
               const base::HistogramCopy& histogram) {
    ClientMetric& metric = New(name, help, MetricType::Histogram, labels);
    metric.histogram.sample_count = histogram.count();
    metric.histogram.sample_sum = static_cast<double>(histogram.sum()) / 1e9;
    for (int power = 9; power <= 34; power += power < 20 ? 1 : 2) {
      const int64_t bound_ns = int64_t{1} << power;
      metric.histogram.bucket.push_back(
          {histogram.CountUpTo(bound_ns), static_cast<double>(bound_ns) / 1e9});
    }
    metric.histogram.bucket.push_back({histogram.count(), std::numeric_limits<double>::infinity()});
  }
  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  ClientMetric& New(const std::string& name, const char* help, MetricType type,
                    const Labels& labels) {
    const auto [at, inserted] = index_.try_emplace(name, families_.size());
    if (inserted) families_.push_back({name, help, type, {}});
    ClientMetric& metric = families_[at->second].metric.emplace_back();
    metric.label = labels;
    return metric;
  }

  std::vector<MetricFamily> families_;
  std::map<std::string, size_t> index_;
};

Labels With(Labels labels, const char* name, const std::string& value) {
  labels.push_back({name, value});
  return labels;
}

void AddMethods(const std::string& prefix, const Labels& labels,
                const std::vector<observe::MethodSnapshot>& methods, Families* families) {
  for (const observe::MethodSnapshot& method : methods) {
    const Labels named = With(labels, "method", method.method);
    families->Count(prefix + "calls_started", "calls that began", named, method.started);
    for (int code = 0; code < observe::kStatusCodes; ++code) {
      if (method.ended[code] == 0) continue;
      families->Count(prefix + "calls_ended", "calls that ended, by status code",
                      With(named, "code", CodeName(code)), method.ended[code]);
    }
    families->Gauge(prefix + "calls_in_flight", "calls that have not ended", named,
                    method.in_flight());
    families->Count(prefix + "request_bytes", "payloads of requests, streams not counted", named,
                    method.request_bytes);
    families->Count(prefix + "reply_bytes", "payloads of answers, streams not counted", named,
                    method.reply_bytes);
    families->Count(prefix + "stream_messages_sent", "messages of streams", named,
                    method.stream_messages_sent);
    families->Count(prefix + "stream_messages_received", "messages of streams", named,
                    method.stream_messages_received);
    families->Seconds(prefix + "call_duration_seconds", "how long calls took", named,
                      method.latency_ns);
  }
}

void AddReadings(const std::string& prefix, const Labels& labels,
                 const std::vector<Reading>& readings, Families* families) {
  for (const Reading& reading : readings) {
    if (reading.now) {
      families->Gauge(prefix + reading.name, reading.meaning, labels, reading.value);
    } else {
      families->Count(prefix + reading.name, reading.meaning, labels, reading.value);
    }
  }
}

constexpr int kMaxWorkers = 64;
constexpr absl::Duration kLeastTimeout = absl::Milliseconds(10);
constexpr absl::Duration kMaxTimeout = absl::Hours(1);

absl::Status BadOption(const char* name, const std::string& value, const std::string& range) {
  return base::Error(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("option ", name, " is ", value),
                     {.layer = "metrics",
                      .operation = "expose",
                      .cause = absl::StrCat("the range is ", range),
                      .remedy = "set a value within the range",
                      .retry_safe = true});
}

}  // namespace

std::vector<MetricFamily> PrometheusMetrics::Collect() const {
  Families families;
  objects_.Read([&](const auto& servers, const auto& channels, const auto& sources) {
    for (const auto& [name, served] : servers) {
      const ServerSnapshot snapshot = served.server->Snapshot(0, patience_);
      const Labels labels = {{"server", name}};
      families.Gauge("sluice_server_fresh", "0: a handler hangs, and all but calls is from before",
                     labels, snapshot.fresh ? 1 : 0);
      AddReadings("sluice_server_", labels, ReadCounters(snapshot), &families);
      AddMethods("sluice_server_", labels, snapshot.methods, &families);
    }
    const absl::Time until = absl::Now() + patience_;  // for all channels together
    for (const auto& [name, channel] : channels) {
      const ChannelSnapshot snapshot = channel->Snapshot(until - absl::Now());
      const Labels labels = {{"channel", name}};
      families.Gauge("sluice_channel_fresh", "0: a callback hangs, and only the calls are shown",
                     labels, snapshot.fresh ? 1 : 0);
      if (snapshot.fresh) AddReadings("sluice_channel_", labels, ReadCounters(snapshot), &families);
      AddMethods("sluice_channel_", labels, snapshot.methods, &families);
    }
    for (const auto& [name, source] : sources) {
      AddReadings("sluice_", {{"source", name}}, ReadingsOf(name, source), &families);
    }
  });
  return families.Take();
}

// An exception would pass into the HTTP server of the exposer, which ends the process.
std::vector<Reading> PrometheusMetrics::ReadingsOf(const std::string& name,
                                                   const CounterSource& source) const {
  std::string exception;
  std::optional<std::vector<Reading>> readings = ReadSource(source, &exception);
  if (readings.has_value()) return *std::move(readings);
  events_.Say(base::Severity::kError, "exception", "",
              absl::StrCat("counter source \"", name, "\" threw an exception: ", exception));
  return {};
}

absl::StatusOr<std::unique_ptr<MetricsExposer>> MetricsExposer::Start(
    const std::string& address, std::shared_ptr<PrometheusMetrics> metrics,
    const ExposerOptions& options) {
  if (options.workers < 1 || options.workers > kMaxWorkers) {
    return BadOption("workers", absl::StrCat(options.workers), absl::StrCat("1 to ", kMaxWorkers));
  }
  if (options.request_timeout < kLeastTimeout || options.request_timeout > kMaxTimeout) {
    return BadOption("request_timeout", absl::FormatDuration(options.request_timeout),
                     absl::StrCat(absl::FormatDuration(kLeastTimeout), " to ",
                                  absl::FormatDuration(kMaxTimeout)));
  }
  const std::optional<std::string> bound = LoopbackUnlessTold(address);
  if (!bound) {
    return base::Error(absl::StatusCode::kInvalidArgument, "metrics not exposed",
                       {.layer = "metrics",
                        .operation = "expose",
                        .cause = absl::StrCat("\"", address, "\" is neither a port nor host:port"),
                        .remedy = "use 9464 (reachable from this host only) or 10.0.0.5:9464",
                        .retry_safe = true});
  }
  try {
    const std::vector<std::string> settings = {
        "listening_ports",    *bound,
        "num_threads",        absl::StrCat(options.workers),
        "request_timeout_ms", absl::StrCat(absl::ToInt64Milliseconds(options.request_timeout))};
    return std::unique_ptr<MetricsExposer>(
        new MetricsExposer(std::make_unique<prometheus::Exposer>(settings), std::move(metrics)));
  } catch (const std::exception& why) {
    return base::Error(absl::StatusCode::kUnavailable,
                       absl::StrCat("metrics not exposed at ", *bound),
                       {.layer = "metrics",
                        .operation = "expose",
                        .cause = absl::StrCat(why.what(),
                                              "; most likely the port is in use, or the address is "
                                              "not this host's"),
                        .remedy = "choose another port; 0 takes a free one"});
  }
}

MetricsExposer::MetricsExposer(std::unique_ptr<prometheus::Exposer> exposer,
                               std::shared_ptr<PrometheusMetrics> metrics)
    : metrics_(std::move(metrics)), exposer_(std::move(exposer)) {
  exposer_->RegisterCollectable(metrics_);
  const std::vector<int> ports = exposer_->GetListeningPorts();
  if (!ports.empty()) port_ = static_cast<uint16_t>(ports.front());
}

MetricsExposer::~MetricsExposer() = default;

}  // namespace sluice
