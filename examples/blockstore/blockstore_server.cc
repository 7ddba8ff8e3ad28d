// SPDX-License-Identifier: Apache-2.0
//
// blockstore_server: stores blocks until it gets SIGINT or SIGTERM.
//
//   blockstore_server --listen=127.0.0.1:7472 --blocks=1024
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "examples/blockstore/block_store.h"
#include "middleware/api/end_signals.h"
#include "middleware/api/server.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7472", "host:port to listen at; port 0 takes a free one");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");
ABSL_FLAG(uint64_t, blocks, 1024, "how many blocks of 4096 bytes there are");

namespace {

absl::Status Run() {
  sluice::EndSignals end;
  sluice::ServerOptions options;
  options.device = absl::GetFlag(FLAGS_device);
  auto store = sluice::examples::blockstore::BlockStore::Create(absl::GetFlag(FLAGS_blocks),
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
  absl::SetProgramUsageMessage("stores blocks with T10-DIF for blockstore_client");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "blockstore_server: %s\n",
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return 1;
}
