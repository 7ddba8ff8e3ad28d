// SPDX-License-Identifier: Apache-2.0
//
// search: asks a search_server.
//
//   search --server=127.0.0.1:7480 --prefix=ap
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/time/time.h"
#include "examples/fan_out/search.sluice.h"
#include "middleware/api/channel.h"

ABSL_FLAG(std::string, server, "127.0.0.1:7480", "host:port of a search_server");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");
ABSL_FLAG(std::string, prefix, "", "what the words begin with");
ABSL_FLAG(absl::Duration, timeout, absl::Seconds(5), "for the whole search");

namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "search: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "prints the words that begin with a prefix, and the shards that did not answer");
  absl::ParseCommandLine(argc, argv);
  sluice::ChannelOptions options;
  options.device = absl::GetFlag(FLAGS_device);
  auto channel = sluice::Channel::Connect(absl::GetFlag(FLAGS_server), options);
  if (!channel.ok()) return Fail(channel.status());
  sluice::CallContext context(absl::GetFlag(FLAGS_timeout));
  sluice::examples::fan_out::Query query;
  query.set_prefix(absl::GetFlag(FLAGS_prefix));
  const auto results = sluice::examples::fan_out::SearchClient(*channel).Search(context, query);
  if (!results.ok()) return Fail(results.status());
  for (const std::string& word : results->words()) std::printf("%s\n", word.c_str());
  for (const std::string& shard : results->missing()) std::printf("missing %s\n", shard.c_str());
  return 0;
}
