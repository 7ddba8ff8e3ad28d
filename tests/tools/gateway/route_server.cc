// SPDX-License-Identifier: Apache-2.0
//
// route_server: RouteService, with health and reflection, until SIGTERM.
//
//   route_server --listen=127.0.0.1:0 --device=softdc0
//
// With --report it prints "read" for each message of a client, "stopped" for each handler whose caller was gone, and "ended" for
// each that came to its end.
#include <cstdio>
#include <functional>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "examples/serving/serve.h"
#include "tests/tools/gateway/route_service.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7471", "host:port to listen at");
ABSL_FLAG(std::string, device, "softdc0", "RDMA device");
ABSL_FLAG(bool, report, false, "print how handlers end");

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  sluice::EndSignals end;
  sluice::testing_support::RouteService service;
  if (absl::GetFlag(FLAGS_report)) {
    const auto print = [](const char* what) {
      std::printf("%s\n", what);
      std::fflush(stdout);
    };
    service.read.OnAdd([print] { print("read"); });
    service.stopped.OnAdd([print] { print("stopped"); });
    service.ended.OnAdd([print] { print("ended"); });
  }
  const absl::Status status = sluice::examples::Serve(&service, absl::GetFlag(FLAGS_listen),
                                                      absl::GetFlag(FLAGS_device), end);
  if (status.ok()) return 0;
  std::fprintf(stderr, "route_server: %s\n", std::string(status.message()).c_str());
  return 1;
}
