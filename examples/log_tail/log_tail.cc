// SPDX-License-Identifier: Apache-2.0
//
// log_tail: prints lines as they come.
//
//   log_tail --server=127.0.0.1:7473 --last=10 --containing=error
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/time/time.h"
#include "examples/log_tail/log.sluice.h"
#include "middleware/api/channel.h"

ABSL_FLAG(std::string, server, "127.0.0.1:7473", "host:port of a log_server");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");
ABSL_FLAG(uint32_t, last, 10, "begin with so many lines of those that are there");
ABSL_FLAG(std::string, containing, "", "only lines that have this in them");
ABSL_FLAG(uint64_t, lines, 0, "end after so many; 0: never");
ABSL_FLAG(absl::Duration, timeout, absl::InfiniteDuration(), "end after this time");

namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "log_tail: %s\n",
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("prints the lines of a log_server's log as they come");
  absl::ParseCommandLine(argc, argv);
  sluice::ChannelOptions options;
  options.device = absl::GetFlag(FLAGS_device);
  auto channel = sluice::Channel::Connect(absl::GetFlag(FLAGS_server), options);
  if (!channel.ok()) return Fail(channel.status());

  const sluice::examples::log_tail::LogClient client(*channel);
  sluice::CallContext context(absl::GetFlag(FLAGS_timeout));
  sluice::examples::log_tail::TailRequest request;
  request.set_last(absl::GetFlag(FLAGS_last));
  request.set_containing(absl::GetFlag(FLAGS_containing));
  auto lines = client.Tail(context, request);
  sluice::examples::log_tail::Line line;
  const uint64_t wanted = absl::GetFlag(FLAGS_lines);
  for (uint64_t count = 0; wanted == 0 || count < wanted; ++count) {
    if (!lines.Read(&line)) return Fail(lines.Finish());
    std::printf("%s\n", line.text().c_str());
    std::fflush(stdout);
  }
  return 0;  // the call is cancelled with `lines`
}
