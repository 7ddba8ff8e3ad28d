// SPDX-License-Identifier: Apache-2.0
//
// echo_client: one call and its answer.
//
//   echo_client --server=127.0.0.1:7471 --text="hello"
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/time/time.h"
#include "examples/echo/echo.sluice.h"
#include "examples/echo/spans_file.h"
#include "middleware/api/channel.h"

ABSL_FLAG(std::string, server, "127.0.0.1:7471", "host:port of an echo_server");
ABSL_FLAG(std::string, text, "hello", "what to say");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");
ABSL_FLAG(std::string, secret_file, "", "file of the secret that the server demands, mode 600");
ABSL_FLAG(absl::Duration, timeout, absl::Seconds(5),
          "how long the connection and the call may take, each");
ABSL_FLAG(std::string, spans, "",
          "file for the span of the call, for ui.perfetto.dev; the server is told to record it "
          "too; empty: none");

namespace {

// What happened, to whom, why likely, and what to do: all of it is in the message.
int Fail(const absl::Status& status) {
  std::fprintf(stderr, "echo_client: %s\n",
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("calls sluice.examples.echo.Echo/Say once and prints the answer");
  absl::ParseCommandLine(argc, argv);

  sluice::ChannelOptions options;
  options.device = absl::GetFlag(FLAGS_device);
  options.authentication.secret_file = absl::GetFlag(FLAGS_secret_file);
  options.connect_timeout = absl::GetFlag(FLAGS_timeout);
  sluice::examples::echo::SpansFile spans(absl::GetFlag(FLAGS_spans), "echo_client");
  if (spans.wanted()) options.interceptors = {spans.recorder().ForChannels()};
  auto channel = sluice::Channel::Connect(absl::GetFlag(FLAGS_server), options);
  if (!channel.ok()) return Fail(channel.status());

  sluice::examples::echo::EchoClient client(*channel);
  sluice::examples::echo::SayRequest request;
  request.set_payload(absl::GetFlag(FLAGS_text));
  sluice::CallContext context(absl::GetFlag(FLAGS_timeout));
  auto reply = client.Say(context, request);
  if (absl::Status written = spans.Write(); !written.ok()) return Fail(written);
  if (!reply.ok()) return Fail(reply.status());
  std::printf("%s\n", reply->payload().c_str());
  return 0;
}
