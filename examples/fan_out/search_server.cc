// SPDX-License-Identifier: Apache-2.0
//
// search_server: the front: asks all shards, and answers with what comes in time.
//
//   search_server --listen=127.0.0.1:7480 --shards=127.0.0.1:7481,127.0.0.1:7482 --patience=200ms
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/time/time.h"
#include "examples/fan_out/search_service.h"
#include "examples/serving/serve.h"
#include "middleware/api/channel.h"
#include "middleware/api/runtime.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7480", "host:port to listen at; port 0 takes a free one");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");
ABSL_FLAG(std::vector<std::string>, shards, {}, "host:port of each shard");
ABSL_FLAG(absl::Duration, patience, absl::Milliseconds(200), "how long shards are waited for");

namespace sluice::examples::fan_out {
namespace {

absl::Status Run() {
  if (absl::GetFlag(FLAGS_shards).empty()) {
    return absl::InvalidArgumentError("no shards: set --shards=host:port,host:port");
  }
  EndSignals end;  // before any thread starts
  // One set of queues and threads for all shards. 120 shards fit into these buffers.
  RuntimeOptions runtime_options;
  runtime_options.device = absl::GetFlag(FLAGS_device);
  runtime_options.limits.credits_per_peer = 16;
  runtime_options.limits.receive_buffers = 2048;
  auto runtime = Runtime::Create(runtime_options);
  if (!runtime.ok()) return runtime.status();
  ChannelOptions options;
  options.runtime = *runtime;
  std::vector<std::shared_ptr<Channel>> shards;
  for (const std::string& address : absl::GetFlag(FLAGS_shards)) {
    auto channel = Channel::Connect(address, options);
    if (!channel.ok()) return channel.status();
    shards.push_back(*std::move(channel));
  }
  SearchService service(std::move(shards), absl::GetFlag(FLAGS_patience));
  return Serve(&service, absl::GetFlag(FLAGS_listen), runtime_options.device, end);
}

}  // namespace
}  // namespace sluice::examples::fan_out

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("answers searches with what its shards find in time");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = sluice::examples::fan_out::Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "search_server: %s\n", std::string(status.message()).c_str());
  return 1;
}
