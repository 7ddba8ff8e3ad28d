// SPDX-License-Identifier: Apache-2.0
//
// kv_server: keeps a table that its clients read by themselves.
//
//   kv_server --listen=127.0.0.1:7474 --slots=4096
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "examples/kv_store/kv_store.h"
#include "middleware/api/end_signals.h"
#include "middleware/api/server.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7474", "host:port to listen at; port 0 takes a free one");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");
ABSL_FLAG(uint32_t, slots, 4096, "of 512 bytes each");

namespace {

absl::Status Run() {
  sluice::EndSignals end;
  sluice::ServerOptions options;
  options.device = absl::GetFlag(FLAGS_device);
  auto store = sluice::examples::kv_store::KvStore::Create(absl::GetFlag(FLAGS_slots),
                                                           {.device = options.device});
  if (!store.ok()) return store.status();
  auto server = sluice::Server::Create(options);
  if (!server.ok()) return server.status();
  if (absl::Status status = (*server)->Register(store->get()); !status.ok()) return status;
  const std::string address = absl::GetFlag(FLAGS_listen);
  auto port = (*server)->Listen(address);
  if (!port.ok()) return port.status();
  std::printf("listening on %s:%u\n", address.substr(0, address.rfind(':')).c_str(), *port);
  std::fflush(stdout);
  end.Wait();
  return (*server)->Drain(absl::Seconds(2));
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("keeps keys and values in memory that its clients read");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "kv_server: %s\n", std::string(status.message()).c_str());
  return 1;
}
