// SPDX-License-Identifier: Apache-2.0
//
// shard_server: has some of the words.
//
//   shard_server --listen=127.0.0.1:7481 --words=apple,apricot
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/match.h"
#include "examples/fan_out/search.sluice.h"
#include "examples/serving/serve.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7481", "host:port to listen at; port 0 takes a free one");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");
ABSL_FLAG(std::vector<std::string>, words, {}, "this shard's words");

namespace sluice::examples::fan_out {
namespace {

class ShardService final : public ShardServiceBase {
 public:
  explicit ShardService(std::vector<std::string> words) : words_(std::move(words)) {}
  absl::Status Find(ServerContext&, const Query& query, Words* reply) override {
    for (const std::string& word : words_) {
      if (absl::StartsWith(word, query.prefix())) reply->add_words(word);
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<std::string> words_;
};

int Main() {
  EndSignals end;  // before any thread starts
  ShardService service(absl::GetFlag(FLAGS_words));
  const absl::Status status =
      Serve(&service, absl::GetFlag(FLAGS_listen), absl::GetFlag(FLAGS_device), end);
  if (status.ok()) return 0;
  std::fprintf(stderr, "shard_server: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace sluice::examples::fan_out

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("answers searches over its own words");
  absl::ParseCommandLine(argc, argv);
  return sluice::examples::fan_out::Main();
}
