// SPDX-License-Identifier: Apache-2.0
//
// log_server: keeps the log until it gets SIGINT or SIGTERM.
//
//   log_server --listen=127.0.0.1:7473
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "examples/log_tail/log_service.h"
#include "examples/serving/serve.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7473", "host:port to listen at; port 0 takes a free one");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");

namespace {

absl::Status Run() {
  sluice::EndSignals end;  // before any thread starts
  sluice::examples::log_tail::LogService service;
  // Those who append end by themselves; those who follow are told to stop after three quarters of the time.
  return sluice::examples::Serve(&service, absl::GetFlag(FLAGS_listen), absl::GetFlag(FLAGS_device),
                                 end, absl::Milliseconds(400));
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
