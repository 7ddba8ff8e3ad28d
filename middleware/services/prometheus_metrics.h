// SPDX-License-Identifier: Apache-2.0
//
// PrometheusMetrics: exports the counters of servers and channels to Prometheus, through
// prometheus-cpp.
//
//   auto metrics = std::make_shared<sluice::PrometheusMetrics>();
//   metrics->Add(server.get(), "orders");
//   auto exposer = sluice::MetricsExposer::Start("9464", metrics);   // http://127.0.0.1:9464/metrics
//
// Purpose       A prometheus::Collectable: a scrape builds the metric families from Snapshot();
//               between scrapes it does no work. A program with its own exposer or registry adds
//               this object there.
// Names         sluice_server_…, sluice_channel_…; units are seconds and bytes; counters end in
//               _total. docs/decisions/0034.
// Labels        server or channel: the name given to Add(). method: 64 per server or channel, and
//               "other". code: 17. No label value comes from a caller.
// Ownership     The user shares it with the exposer. Servers outlive it, or are removed before they
//               are destroyed.
// Threads       Any. A scrape waits at most `patience` for each server whose handler blocks, and as
//               long for all channels whose callbacks block; then it reports sluice_server_fresh or
//               sluice_channel_fresh 0. Add() and Remove() wait for it.
#ifndef SLUICE_MIDDLEWARE_SERVICES_PROMETHEUS_METRICS_H_
#define SLUICE_MIDDLEWARE_SERVICES_PROMETHEUS_METRICS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "middleware/api/channel.h"
#include "middleware/api/log.h"
#include "middleware/api/server.h"
#include "middleware/services/counter_table.h"
#include "middleware/services/named_objects.h"
#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "transport/base/clock.h"
#include "transport/base/event_log.h"

namespace prometheus {
class Exposer;
}

namespace sluice {

class PrometheusMetrics final : public prometheus::Collectable {
 public:
  // `log`: sink for exceptions of counter sources; null: standard error.
  explicit PrometheusMetrics(absl::Duration patience = absl::Milliseconds(200),
                             std::shared_ptr<LogSink> log = nullptr)
      : patience_(patience),
        log_(log != nullptr ? std::move(log) : std::make_shared<base::StderrLog>()) {}

  // Adds a server or channel. `name`: value of the label; replaces an entry of the same name.
  void Add(const Server* server, const std::string& name) {
    objects_.Add(NamedObjects::Served{server, {}}, name);
  }
  void Add(std::shared_ptr<Channel> channel, const std::string& name) {
    objects_.Add(std::move(channel), name);
  }
  // Adds counters sluice_<reading> with the label source: [bulk] { return
  // sluice::ReadCounters(bulk->counters()); }. If the source throws an exception, the scrape omits
  // its counters, and the log has a record `exception`.
  void Add(CounterSource source, const std::string& name) { objects_.Add(std::move(source), name); }
  void Remove(const std::string& name) { objects_.Remove(name); }

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  // Returns the counters of a source; none if it throws an exception.
  std::vector<Reading> ReadingsOf(const std::string& name, const CounterSource& source) const;

  const absl::Duration patience_;
  const std::shared_ptr<LogSink> log_;
  NamedObjects objects_;
  mutable base::RealClock clock_;
  mutable base::EventLog events_{"metrics", log_.get(), &clock_};  // lock of objects_
};

struct ExposerOptions {
  // Maximum number of connections that the HTTP server serves at the same time, one thread each.
  // Range: 1 to 64. Further connections wait until a thread is free.
  int workers = 4;
  // Time after which the HTTP server closes a connection that has not sent a complete request, or
  // does not read the reply. Range: 10 ms to 1 h, whole milliseconds.
  absl::Duration request_timeout = absl::Seconds(2);
};

// An HTTP server for the metrics, with its own threads. It serves one request per connection. The
// program must start it explicitly. Without a host in the address it listens on 127.0.0.1 only,
// because any client that connects can read the metrics. A connection that sends nothing occupies
// one worker for `request_timeout`.
class MetricsExposer {
 public:
  // `address`: "9464" or "10.0.0.5:9464"; port 0: any free port. Errors: INVALID_ARGUMENT (not an
  // address, or an option out of range), UNAVAILABLE (the address is in use, or not an address of
  // this host).
  static absl::StatusOr<std::unique_ptr<MetricsExposer>> Start(
      const std::string& address, std::shared_ptr<PrometheusMetrics> metrics,
      const ExposerOptions& options = {});
  ~MetricsExposer();
  MetricsExposer(const MetricsExposer&) = delete;
  MetricsExposer& operator=(const MetricsExposer&) = delete;

  uint16_t port() const { return port_; }

 private:
  MetricsExposer(std::unique_ptr<prometheus::Exposer> exposer,
                 std::shared_ptr<PrometheusMetrics> metrics);

  const std::shared_ptr<PrometheusMetrics> metrics_;
  const std::unique_ptr<prometheus::Exposer> exposer_;
  uint16_t port_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_SERVICES_PROMETHEUS_METRICS_H_
