// SPDX-License-Identifier: Apache-2.0
//
// log_append: appends the lines of its standard input.
//
//   dmesg | log_append --server=127.0.0.1:7473
#include <cstdio>
#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "examples/log_tail/log.sluice.h"
#include "middleware/api/channel.h"

ABSL_FLAG(std::string, server, "127.0.0.1:7473", "host:port of a log_server");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");

namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "log_append: %s\n",
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("appends the lines of its standard input to a log_server's log");
  absl::ParseCommandLine(argc, argv);
  sluice::ChannelOptions options;
  options.device = absl::GetFlag(FLAGS_device);
  auto channel = sluice::Channel::Connect(absl::GetFlag(FLAGS_server), options);
  if (!channel.ok()) return Fail(channel.status());

  const sluice::examples::log_tail::LogClient client(*channel);
  auto context = sluice::CallContext::NoDeadline();  // as long as somebody types
  sluice::examples::log_tail::AppendReply reply;
  auto lines = client.Append(context, &reply);
  sluice::examples::log_tail::Line line;
  std::string text;
  while (std::getline(std::cin, text)) {
    line.set_text(text);
    if (!lines.Write(line)) break;  // Finish() says why
  }
  lines.WritesDone();
  if (absl::Status status = lines.Finish(); !status.ok()) return Fail(status);
  std::printf("%llu lines\n", static_cast<unsigned long long>(reply.lines()));
  return 0;
}
