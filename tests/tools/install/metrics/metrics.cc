// SPDX-License-Identifier: Apache-2.0
//
// What README.md and docs/log.md use beside calls: options of the environment, a log, a health service, and metrics. Built against an
// installation (embedding_test.sh) without warnings. It prints what a scrape gets.
#include <prometheus/text_serializer.h>

#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "middleware/api/config.h"
#include "middleware/api/in_process.h"
#include "middleware/api/log.h"
#include "middleware/services/health_service.h"
#include "middleware/services/prometheus_metrics.h"
#include "proto/health.sluice.h"

namespace {

class Log final : public sluice::LogSink {
  void Write(const sluice::LogRecord& record) override { (void)record; }
};

absl::Status Run() {
  sluice::Config config;
  if (absl::Status status = config.ReadEnvironment({"SLUICE_SERVER_MAX_CONCURRENT_CALLS=7"});
      !status.ok())
    return status;
  if (config.server.max_concurrent_calls != 7)
    return absl::InternalError("the environment was not read");
  config.server.log = std::make_shared<Log>();

  sluice::HealthService health;
  auto world = sluice::InProcess::Start({&health}, config.server);
  if (!world.ok()) return world.status();
  auto channel = (*world)->NewChannel(config.channel);
  if (!channel.ok()) return channel.status();
  sluice::health::v1::HealthClient client(*channel);
  sluice::CallContext context(absl::Seconds(30));
  auto reply = client.Check(context, sluice::health::v1::HealthCheckRequest());
  if (!reply.ok()) return reply.status();

  auto metrics = std::make_shared<sluice::PrometheusMetrics>();
  metrics->Add(&(*world)->server(), "installed");
  auto exposer = sluice::MetricsExposer::Start("0", metrics);
  if (!exposer.ok()) return exposer.status();
  if ((*exposer)->port() == 0) return absl::InternalError("the exposer has no port");
  std::fputs(prometheus::TextSerializer().Serialize(metrics->Collect()).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

int main() {
  absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "metrics: %s\n", status.ToString().c_str());
  return 1;
}
