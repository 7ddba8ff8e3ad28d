// SPDX-License-Identifier: Apache-2.0
//
// echo_server: answers until it gets SIGINT or SIGTERM.
//
//   echo_server --listen=127.0.0.1:7471 --device=auto
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "examples/echo/echo_service.h"
#include "examples/echo/spans_file.h"
#include "middleware/api/end_signals.h"
#include "middleware/api/server.h"
#include "middleware/services/health_service.h"
#include "middleware/services/http_pages.h"
#include "middleware/services/introspection_service.h"
#include "middleware/services/reflection_service.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7471", "host:port to listen at; port 0 takes a free one");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");
ABSL_FLAG(
    std::string, secret_file, "",
    "file of secrets, of which each client must prove one, mode 600; empty: no authentication");
ABSL_FLAG(
    std::string, metrics, "",
    "port of the status page and of the metrics for Prometheus, which this host alone reaches, or "
    "host:port; empty: none");
ABSL_FLAG(
    std::string, spans, "",
    "file for the spans of the calls that clients have sampled, for ui.perfetto.dev; empty: none");

namespace {

absl::Status Run() {
  sluice::EndSignals end;
  sluice::ServerOptions options;
  options.device = absl::GetFlag(FLAGS_device);
  options.authentication.secret_file = absl::GetFlag(FLAGS_secret_file);
  sluice::examples::echo::SpansFile spans(absl::GetFlag(FLAGS_spans), "echo_server");
  if (spans.wanted()) options.interceptors = {spans.recorder().ForServers()};
  auto server = sluice::Server::Create(options);
  if (!server.ok()) return server.status();
  sluice::examples::echo::EchoService service;
  sluice::HealthService health;
  sluice::ReflectionService reflection(server->get());                 // for sluice_call
  sluice::IntrospectionService introspection(server->get(), options);  // for sluice_stat
  for (sluice::Service* one :
       std::initializer_list<sluice::Service*>{&service, &health, &reflection, &introspection}) {
    if (absl::Status status = (*server)->Register(one); !status.ok()) return status;
  }
  const std::string address = absl::GetFlag(FLAGS_listen);
  auto port = (*server)->Listen(address);
  if (!port.ok()) return port.status();

  std::unique_ptr<sluice::HttpPages> pages;
  if (const std::string at = absl::GetFlag(FLAGS_metrics); !at.empty()) {
    auto started = sluice::HttpPages::Start(at);
    if (!started.ok()) return started.status();
    pages = *std::move(started);
    pages->Add(server->get(), "echo", options);
  }

  // The second line is for programs: it says which port it is.
  std::printf("device %s\n", (*server)->device_choice().c_str());
  std::printf("listening on %s:%u\n", address.substr(0, address.rfind(':')).c_str(), *port);
  if (pages != nullptr) {
    const std::string at = absl::GetFlag(FLAGS_metrics);
    const size_t colon = at.rfind(':');
    const std::string host = colon == std::string::npos ? "127.0.0.1" : at.substr(0, colon);
    std::printf("pages at http://%s:%u/\n", host.c_str(), pages->port());
  }
  std::fflush(stdout);

  end.Wait();
  const absl::Status drained = (*server)->Drain(absl::Seconds(2));
  const absl::Status written = spans.Write();
  return drained.ok() ? written : drained;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "answers every call of sluice.examples.echo.Echo with what it was given");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "echo_server: %s\n",
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return 1;
}
