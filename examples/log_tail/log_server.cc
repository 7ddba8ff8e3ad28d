// SPDX-License-Identifier: Apache-2.0
//
// log_server: keeps the log until it gets SIGINT or SIGTERM.
//
//   log_server --listen=127.0.0.1:7473
#include <signal.h>

#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "examples/log_tail/log_service.h"
#include "middleware/api/server.h"
#include "middleware/services/health_service.h"
#include "middleware/services/reflection_service.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7473", "host:port to listen at; port 0 takes a free one");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");

namespace {

int Fail(const char* doing, const absl::Status& status) {
  std::fprintf(stderr, "log_server: %s: %s\n", doing,
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("keeps a log that many append to and many follow");
  absl::ParseCommandLine(argc, argv);
  // Blocked before any thread starts, so that only sigwait() below gets them.
  sigset_t end_signals;
  sigemptyset(&end_signals);
  sigaddset(&end_signals, SIGINT);
  sigaddset(&end_signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &end_signals, nullptr);

  sluice::examples::log_tail::LogService service;
  sluice::ServerOptions options;
  options.device = absl::GetFlag(FLAGS_device);
  auto server = sluice::Server::Create(options);
  if (!server.ok()) return Fail("can't start", server.status());
  sluice::HealthService health;
  sluice::ReflectionService reflection(server->get());  // for sluice_call
  for (sluice::Service* one :
       {static_cast<sluice::Service*>(&service), static_cast<sluice::Service*>(&health),
        static_cast<sluice::Service*>(&reflection)}) {
    if (absl::Status status = (*server)->Register(one); !status.ok()) {
      return Fail("can't start", status);
    }
  }
  const std::string address = absl::GetFlag(FLAGS_listen);
  auto port = (*server)->Listen(address);
  if (!port.ok()) return Fail("can't listen", port.status());
  std::printf("listening on %s:%u\n", address.substr(0, address.rfind(':')).c_str(), *port);
  std::fflush(stdout);

  int number = 0;
  sigwait(&end_signals, &number);
  // Those who append end by themselves; those who follow are told to stop after three quarters of the time.
  if (absl::Status status = (*server)->Drain(absl::Milliseconds(400)); !status.ok()) {
    return Fail("can't stop", status);
  }
  return 0;
}
