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
#include "examples/serving/serve.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7474", "host:port to listen at; port 0 takes a free one");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");
ABSL_FLAG(uint32_t, slots, 4096, "of 512 bytes each");

namespace {

absl::Status Run() {
  sluice::EndSignals end;  // before any thread starts
  const std::string device = absl::GetFlag(FLAGS_device);
  auto store =
      sluice::examples::kv_store::KvStore::Create(absl::GetFlag(FLAGS_slots), {.device = device});
  if (!store.ok()) return store.status();
  return sluice::examples::Serve(store->get(), absl::GetFlag(FLAGS_listen), device, end);
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
