// SPDX-License-Identifier: Apache-2.0
//
// blockstore_server: stores blocks until it gets SIGINT or SIGTERM.
//
//   blockstore_server --listen=127.0.0.1:7472 --blocks=1024
#include <signal.h>

#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "examples/blockstore/block_store.h"
#include "middleware/api/server.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7472", "host:port to listen at; port 0 takes a free one");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");
ABSL_FLAG(uint64_t, blocks, 1024, "how many blocks of 4096 bytes there are");

namespace {

int Fail(const char* doing, const absl::Status& status) {
  std::fprintf(stderr, "blockstore_server: %s: %s\n", doing,
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("stores blocks with T10-DIF for blockstore_client");
  absl::ParseCommandLine(argc, argv);

  // Blocked before any thread starts, so that only sigwait() below gets them.
  sigset_t end_signals;
  sigemptyset(&end_signals);
  sigaddset(&end_signals, SIGINT);
  sigaddset(&end_signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &end_signals, nullptr);

  const std::string device = absl::GetFlag(FLAGS_device);
  auto store = sluice::examples::blockstore::BlockStore::Create(absl::GetFlag(FLAGS_blocks),
                                                                {.device = device});
  if (!store.ok()) return Fail("no store", store.status());
  sluice::ServerOptions options;
  options.device = device;
  auto server = sluice::Server::Create(options);
  if (!server.ok()) return Fail("can't start", server.status());
  if (absl::Status status = (*server)->Register(store->get()); !status.ok()) {
    return Fail("can't start", status);
  }
  const std::string address = absl::GetFlag(FLAGS_listen);
  auto port = (*server)->Listen(address);
  if (!port.ok()) return Fail("can't listen", port.status());
  std::printf("listening on %s:%u\n", address.substr(0, address.rfind(':')).c_str(), *port);
  std::fflush(stdout);

  int number = 0;
  sigwait(&end_signals, &number);
  if (absl::Status status = (*server)->Drain(absl::Seconds(2)); !status.ok()) {
    return Fail("can't stop", status);
  }
  return 0;
}
