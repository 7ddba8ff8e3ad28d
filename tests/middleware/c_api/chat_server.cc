// SPDX-License-Identifier: Apache-2.0
//
// chat_server: BesideChat as a program, with health and reflection beside it, for tests in C and Python.
//
//   chat_server --listen=127.0.0.1:0 --device=softdc0
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "examples/serving/serve.h"
#include "tests/middleware/c_api/beside_chat.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:0", "host:port to listen at; port 0 takes a free one");
ABSL_FLAG(std::string, device, "softdc0", "RDMA device: auto, or a name that sluice_info shows");

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  sluice::EndSignals end;  // before any thread starts
  sluice::testing_support::BesideChat service;
  const absl::Status status =
      sluice::examples::Serve(&service, absl::GetFlag(FLAGS_listen), absl::GetFlag(FLAGS_device),
                              end, absl::Milliseconds(400));
  if (status.ok()) return 0;
  std::fprintf(stderr, "chat_server: %s\n", status.ToString().c_str());
  return 1;
}
