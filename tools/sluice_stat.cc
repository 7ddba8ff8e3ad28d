// SPDX-License-Identifier: Apache-2.0
//
// sluice_stat: what a server with an introspection service is doing, as a table that is renewed; or, with --trace, what
// happened there last. Exit codes: 0, 1 if the server can't be asked, 2 usage.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "middleware/api/channel.h"
#include "proto/introspection.sluice.h"
#include "tools/command_line.h"
#include "tools/json_output.h"
#include "tools/stat_table.h"

namespace sluice::tools {
namespace {

using introspection::v1::IntrospectionClient;
using introspection::v1::LookReply;

constexpr char kHead[] =
    "usage: sluice_stat [options]\n"
    "Shows the state of a server with an introspection service: calls, latencies, peers, send "
    "queues, slow calls.\n"
    "The first table counts since the start of the server, each further table since the previous "
    "one.\n";

struct Options {
  std::string server = "127.0.0.1:7471";
  std::string device = "auto";
  std::string secret_file;
  std::string json;
  uint32_t count = 0;
  uint32_t peers = 16;
  uint32_t trace = 0;
  absl::Duration interval = absl::Seconds(1);
  absl::Duration timeout = absl::Seconds(5);
};

int Fail(const absl::Status& status, int code = kExitFailed) {
  std::fprintf(stderr, "sluice_stat: %s\n",
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return code;
}

// Text, or JSON where it was asked for.
absl::Status Show(const google::protobuf::Message& message, const std::string& text,
                  const Options& options) {
  if (options.json != "-") {
    // A table on a terminal stays where it is.
    if (isatty(STDOUT_FILENO) != 0 && options.count != 1) std::printf("\033[H\033[J");
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
  return options.json.empty() ? absl::OkStatus() : WriteJson(message, options.json);
}

int ShowTrace(const IntrospectionClient& client, const Options& options) {
  CallContext context(options.timeout);
  introspection::v1::TraceRequest request;
  request.set_max_records(options.trace);
  const auto reply = client.Trace(context, request);
  if (!reply.ok()) return Fail(reply.status());
  std::string text;
  for (const introspection::v1::TraceEntry& entry : reply->entries()) {
    absl::StrAppendFormat(&text, "%12.6f s ago  %-12s %-20s %-40s call %016x, %u\n",
                          static_cast<double>(reply->time_ns() - entry.time_ns()) / 1e9,
                          entry.event(), entry.code(), entry.method(), entry.id(), entry.number());
  }
  const absl::Status shown = Show(*reply, text, options);
  return shown.ok() ? kExitOk : Fail(shown);
}

int ShowTables(const IntrospectionClient& client, const Options& options) {
  introspection::v1::LookRequest request;
  request.set_max_peers(options.peers);
  LookReply before;
  for (uint32_t shown = 0; options.count == 0 || shown < options.count; ++shown) {
    if (shown > 0) std::this_thread::sleep_for(absl::ToChronoNanoseconds(options.interval));
    CallContext context(options.timeout);
    const auto after = client.Look(context, request);
    if (!after.ok()) return Fail(after.status());
    const double seconds =
        shown == 0 ? 0 : static_cast<double>(after->time_ns() - before.time_ns()) / 1e9;
    const LookReply difference = Between(before, *after);
    if (absl::Status status = Show(difference, StatTable(difference, seconds), options);
        !status.ok()) {
      return Fail(status);
    }
    before = *after;
  }
  return kExitOk;
}

int Main(const std::vector<std::string>& arguments) {
  Options options;
  CommandLine line(kHead);
  line.Add("server", &options.server, "host:port of a server with an introspection service");
  line.Add("count", &options.count, 0, 1'000'000'000,
           "number of tables; 0: until the program is interrupted");
  line.Add("interval", &options.interval, absl::Milliseconds(10), absl::Hours(1),
           "time between two tables");
  line.Add("peers", &options.peers, 1, 1024, "maximum number of peers to show");
  line.Add("trace", &options.trace, 0, 4096, "show this number of recent events instead");
  line.Add("json", &options.json, "print JSON to this file, - for standard output and no table");
  line.Add("timeout", &options.timeout, absl::Milliseconds(1), absl::Hours(1),
           "timeout of the connection and of each request");
  line.Add("device", &options.device, "RDMA device: auto, or a name that sluice_info shows");
  line.Add("secret_file", &options.secret_file, "file of the secret that the server requires");
  if (absl::Status status = line.Parse(arguments); !status.ok()) return Fail(status, kExitUsage);
  if (line.help()) {
    std::fputs(line.HelpText().c_str(), stdout);
    return kExitOk;
  }
  ChannelOptions channel_options;
  channel_options.device = options.device;
  channel_options.connect_timeout = options.timeout;
  channel_options.authentication.secret_file = options.secret_file;
  const auto channel = Channel::Connect(options.server, channel_options);
  if (!channel.ok()) return Fail(channel.status());
  const IntrospectionClient client(*channel);
  return options.trace > 0 ? ShowTrace(client, options) : ShowTables(client, options);
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) { return sluice::tools::Main({argv + 1, argv + argc}); }
