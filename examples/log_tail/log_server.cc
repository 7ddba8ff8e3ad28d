// SPDX-License-Identifier: Apache-2.0
//
// log_server: keeps the log until it gets SIGINT or SIGTERM.
//
//   log_server --listen=127.0.0.1:7473
#include <cstdio>
#include <initializer_list>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "examples/log_tail/log_service.h"
#include "middleware/api/end_signals.h"
#include "middleware/api/server.h"
#include "middleware/services/health_service.h"
#include "middleware/services/reflection_service.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7473", "host:port to listen at; port 0 takes a free one");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");

namespace {

absl::Status Run() {
  sluice::EndSignals end;
  sluice::ServerOptions options;
  options.device = absl::GetFlag(FLAGS_device);
  sluice::examples::log_tail::LogService service;
  auto server = sluice::Server::Create(options);
  if (!server.ok()) return server.status();
  sluice::HealthService health;
  sluice::ReflectionService reflection(server->get());  // for sluice_call
  for (sluice::Service* one :
       std::initializer_list<sluice::Service*>{&service, &health, &reflection}) {
    if (absl::Status status = (*server)->Register(one); !status.ok()) return status;
  }
  const std::string address = absl::GetFlag(FLAGS_listen);
  auto port = (*server)->Listen(address);
  if (!port.ok()) return port.status();
  std::printf("listening on %s:%u\n", address.substr(0, address.rfind(':')).c_str(), *port);
  std::fflush(stdout);

  end.Wait();
  // Those who append end by themselves; those who follow are told to stop after three quarters of the time.
  return (*server)->Drain(absl::Milliseconds(400));
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("keeps a log that many append to and many follow");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "log_server: %s\n",
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return 1;
}
