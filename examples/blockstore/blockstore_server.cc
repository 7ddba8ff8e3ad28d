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
#include "examples/serving/serve.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7472", "host:port to listen at; port 0 takes a free one");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");
ABSL_FLAG(uint64_t, blocks, 1024, "how many blocks of 4096 bytes there are");

namespace {

absl::Status Run() {
  sluice::EndSignals end;  // before any thread starts
  const std::string device = absl::GetFlag(FLAGS_device);
  auto store = sluice::examples::blockstore::BlockStore::Create(absl::GetFlag(FLAGS_blocks),
                                                                {.device = device});
  if (!store.ok()) return store.status();
  return sluice::examples::Serve(store->get(), absl::GetFlag(FLAGS_listen), device, end);
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
