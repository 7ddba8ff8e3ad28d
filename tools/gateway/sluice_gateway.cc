// SPDX-License-Identifier: Apache-2.0
//
// sluice_gateway: a gRPC port in front of a Sluice server, or with --reverse the other way. Exit codes: 0, 1 if it cannot start, 2 usage.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "google/protobuf/descriptor.pb.h"
#include "middleware/api/channel.h"
#include "middleware/api/end_signals.h"
#include "tools/command_line.h"
#include "tools/gateway/gateway.h"
#include "tools/gateway/reverse_gateway.h"
#include "transport/base/error.h"

namespace sluice::gateway {
namespace {

using tools::kExitFailed;
using tools::kExitOk;
using tools::kExitUsage;

constexpr char kHead[] =
    "usage: sluice_gateway [options]\n"
    "Listens for gRPC and passes each call on to a Sluice server: any method, all four kinds of "
    "call. With --reverse it\n"
    "listens with Sluice and calls a gRPC server. Ends at SIGINT or SIGTERM, when its calls have "
    "ended.\n";

struct Flags {
  std::string listen = "127.0.0.1:50051";
  std::string server = "127.0.0.1:7471";
  std::string device = "auto";
  std::string secret_file;
  std::string descriptors;
  std::string tls_certificate;
  std::string tls_key;
  std::string tls_client_authority;
  uint32_t max_calls = 1024;
  uint32_t max_message = 4u << 20;
  absl::Duration drain = absl::Seconds(10);
  bool reverse = false;
};

int Fail(const absl::Status& status, int code = kExitFailed) {
  std::fprintf(stderr, "sluice_gateway: %s\n",
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return code;
}

// The file that `--flag` names; empty if it names none.
absl::StatusOr<std::string> ContentOf(const std::string& flag, const std::string& path) {
  if (path.empty()) return std::string();
  std::string content;
  std::string cause = "the file is empty";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path.c_str(), "rb"), [](std::FILE* f) { return std::fclose(f); });
  char piece[4096];
  size_t bytes = 0;
  while (file != nullptr && (bytes = std::fread(piece, 1, sizeof(piece), file.get())) > 0) {
    content.append(piece, bytes);
  }
  if (file == nullptr || std::ferror(file.get()) != 0) {
    cause = absl::StrCat("the file cannot be read: ", std::strerror(errno));
  } else if (!content.empty()) {
    return content;
  }
  return base::Error(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("--", flag, "=", path, " refused"),
                     {.layer = "gateway",
                      .operation = "start",
                      .cause = cause,
                      .remedy = "check the path, the file and its permissions"});
}

absl::Status ReadFiles(const Flags& flags, Gateway::Options* options) {
  const struct {
    const char* flag;
    const std::string& path;
    std::string* content;
  } files[] = {
      {"tls_certificate", flags.tls_certificate, &options->tls_certificate},
      {"tls_key", flags.tls_key, &options->tls_key},
      {"tls_client_authority", flags.tls_client_authority, &options->tls_client_authority},
  };
  for (const auto& [flag, path, content] : files) {
    auto read = ContentOf(flag, path);
    if (!read.ok()) return read.status();
    *content = *std::move(read);
  }
  const auto descriptors = ContentOf("descriptors", flags.descriptors);
  if (!descriptors.ok()) return descriptors.status();
  if (!options->descriptors.ParseFromString(*descriptors)) {
    return base::Error(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("--descriptors=", flags.descriptors, " refused"),
        {.layer = "gateway",
         .operation = "start",
         .cause = "it is not a FileDescriptorSet",
         .remedy = "make it with protoc --include_imports --descriptor_set_out=FILE"});
  }
  return absl::OkStatus();
}

// Raises limits that are lower than the gateway's.
void AllowMessages(uint32_t max_bytes, EndpointLimits* limits) {
  constexpr uint64_t kBeside = 64 << 10;  // metadata
  limits->max_large_message_bytes =
      std::max<uint64_t>(limits->max_large_message_bytes, max_bytes + kBeside);
  limits->large_memory_bytes =
      std::max<uint64_t>(limits->large_memory_bytes, 2 * limits->max_large_message_bytes);
}

void SayListening(const Flags& flags, uint16_t port) {
  std::printf("listening on %s:%u\n", flags.listen.substr(0, flags.listen.rfind(':')).c_str(),
              port);
  std::fflush(stdout);
}

int RunReverse(const Flags& flags) {
  EndSignals end;
  if (!flags.tls_certificate.empty() || !flags.tls_key.empty() ||
      !flags.tls_client_authority.empty()) {
    return Fail(
        base::Error(
            absl::StatusCode::kInvalidArgument, "TLS with --reverse refused",
            {.layer = "gateway",
             .operation = "start",
             .cause = "a Sluice port has no TLS, and TLS to the gRPC server is not supported",
             .remedy = "use --secret_file, and a gRPC server on this host"}),
        kExitUsage);
  }
  Gateway::Options files;
  if (absl::Status status = ReadFiles(flags, &files); !status.ok()) return Fail(status, kExitUsage);
  ReverseGateway::Options options;
  options.grpc_server = flags.server;
  options.listen = flags.listen;
  options.max_message_bytes = flags.max_message;
  options.descriptors = std::move(files.descriptors);
  options.server.device = flags.device;
  options.server.authentication.secret_file = flags.secret_file;
  options.server.max_concurrent_calls = flags.max_calls;
  AllowMessages(flags.max_message, &options.server.limits);
  auto gateway = ReverseGateway::Start(options);
  if (!gateway.ok()) return Fail(gateway.status());
  SayListening(flags, (*gateway)->port());
  end.Wait();
  const absl::Status drained = (*gateway)->server()->Drain(flags.drain);
  return drained.ok() ? kExitOk : Fail(drained);
}

int Run(const Flags& flags) {
  EndSignals end;
  Gateway::Options options;
  options.listen = flags.listen;
  options.max_calls = flags.max_calls;
  options.max_message_bytes = flags.max_message;
  if (absl::Status status = ReadFiles(flags, &options); !status.ok())
    return Fail(status, kExitUsage);

  ChannelOptions channel_options;
  channel_options.device = flags.device;
  channel_options.authentication.secret_file = flags.secret_file;
  channel_options.connect_in_background = true;
  constexpr uint32_t kQuestions = 1024;  // calls of the gateway's own: reflection
  channel_options.max_outstanding_calls = flags.max_calls + kQuestions;
  AllowMessages(flags.max_message, &channel_options.limits);
  auto channel = Channel::Connect(flags.server, channel_options);
  if (!channel.ok()) return Fail(channel.status());
  auto gateway = Gateway::Start(*std::move(channel), options);
  if (!gateway.ok()) return Fail(gateway.status());

  SayListening(flags, (*gateway)->port());
  end.Wait();
  (*gateway)->Drain(flags.drain);
  return kExitOk;
}

int Main(const std::vector<std::string>& arguments) {
  Flags flags;
  tools::CommandLine line(kHead);
  line.Add("listen", &flags.listen, "host:port to listen at; port 0 takes a free one");
  line.Add(
      "server", &flags.server,
      "host:port of the Sluice server, several with commas between them; or of the gRPC server");
  line.Add("reverse", &flags.reverse, "listen with Sluice, and call a gRPC server");
  line.Add("device", &flags.device, "RDMA device: auto, or a name that sluice_info shows");
  line.Add("secret_file", &flags.secret_file, "file of the Sluice side's secret");
  line.Add("max_calls", &flags.max_calls, 1, 1'000'000,
           "open calls; more end with RESOURCE_EXHAUSTED");
  line.Add(
      "max_message", &flags.max_message, 1024, 1u << 30,
      "bytes of a message in either direction; a longer one ends its call with RESOURCE_EXHAUSTED");
  line.Add("drain", &flags.drain, absl::ZeroDuration(), absl::Hours(1),
           "time that open calls have at the end; then they are cancelled");
  line.Add(
      "descriptors", &flags.descriptors,
      "file of protoc --include_imports --descriptor_set_out, for a server without reflection");
  line.Add("tls_certificate", &flags.tls_certificate,
           "PEM file of the certificate; none: no encryption");
  line.Add("tls_key", &flags.tls_key, "PEM file of its key");
  line.Add("tls_client_authority", &flags.tls_client_authority,
           "PEM file of the authority that has to sign certificates of clients");
  if (absl::Status status = line.Parse(arguments); !status.ok()) return Fail(status, kExitUsage);
  if (line.help()) {
    std::printf("%s", line.HelpText().c_str());
    return kExitOk;
  }
  return flags.reverse ? RunReverse(flags) : Run(flags);
}

}  // namespace
}  // namespace sluice::gateway

int main(int argc, char** argv) {
  return sluice::gateway::Main(std::vector<std::string>(argv + 1, argv + argc));
}
