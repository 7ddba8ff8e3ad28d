// SPDX-License-Identifier: Apache-2.0
//
// sluice_call: calls any method of a server that has a reflection service, with messages as JSON.
// Exit codes: 0, 1 if the call failed, 2 usage.
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"
#include "middleware/api/channel.h"
#include "middleware/api/service.h"
#include "middleware/api/stream.h"
#include "tools/command_line.h"
#include "tools/reflected_services.h"

namespace sluice::tools {
namespace {

using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

constexpr char kHead[] =
    "sluice_call [options] list | describe package.Service | package.Service/Method\n"
    "  list       the server's services\n"
    "  describe   one of them, as a .proto says it\n"
    "  a method   calls it; messages are JSON. A method whose client streams takes one message a "
    "line of standard\n"
    "             input, whatever --json says\n";

struct Options {
  std::string server = "127.0.0.1:7471";
  std::string device = "auto";
  std::string json = "{}";
  std::string secret_file;
  absl::Duration timeout = absl::Seconds(5);
};

int Fail(const absl::Status& status, int code = kExitFailed) {
  std::fprintf(stderr, "sluice_call: %s\n",
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return code;
}

absl::Status FromJson(const std::string& json, Message* message) {
  const auto parsed = google::protobuf::util::JsonStringToMessage(json, message);
  if (parsed.ok()) return absl::OkStatus();
  constexpr size_t kShown = 200;
  return absl::InvalidArgumentError(
      absl::StrCat("not a ", message->GetTypeName(), " as JSON: ", std::string(parsed.message()),
                   ": ", json.substr(0, kShown), json.size() > kShown ? "..." : ""));
}

void Print(const Message& message) {
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  (void)google::protobuf::util::MessageToJsonString(message, &json, options);
  std::printf("%s\n", json.c_str());
  std::fflush(stdout);
}

// The client's side of any stream: one core, whatever the shape.
absl::Status CallStreaming(Channel* channel, const MethodDescriptor* descriptor,
                           const sluice::Method& method, CallContext& context,
                           ReflectedServices& services, const Message& request, Message* reply) {
  internal::StreamCore stream(channel, method, context,
                              descriptor->client_streaming() ? nullptr : &request,
                              descriptor->server_streaming() ? nullptr : reply);
  const std::unique_ptr<Message> message = services.NewMessage(descriptor->input_type());
  const std::unique_ptr<Message> answer = services.NewMessage(descriptor->output_type());
  std::string line;
  while (descriptor->client_streaming() && std::getline(std::cin, line)) {
    message->Clear();
    if (absl::Status status = FromJson(line, message.get()); !status.ok()) return status;
    if (!stream.WaitWrite(*message)) break;
  }
  stream.EndWrites();
  while (descriptor->server_streaming() && stream.WaitRead(answer.get())) Print(*answer);
  absl::Status status = stream.WaitEnd();
  if (status.ok() && !descriptor->server_streaming()) Print(*reply);
  return status;
}

int Call(const std::shared_ptr<Channel>& channel, const Options& options, const std::string& path) {
  ReflectedServices services(channel, options.timeout);
  const auto descriptor = services.Method(path);
  if (!descriptor.ok()) {
    return Fail(descriptor.status(),
                absl::IsInvalidArgument(descriptor.status()) ? kExitUsage : kExitFailed);
  }
  const std::unique_ptr<Message> request = services.NewMessage((*descriptor)->input_type());
  const std::unique_ptr<Message> reply = services.NewMessage((*descriptor)->output_type());
  if (!(*descriptor)->client_streaming()) {
    const std::string json = options.json == "-"
                                 ? std::string(std::istreambuf_iterator<char>(std::cin), {})
                                 : options.json;
    if (absl::Status status = FromJson(json, request.get()); !status.ok()) {
      return Fail(status, kExitUsage);
    }
  }
  const std::string name =
      absl::StrCat("/", (*descriptor)->service()->full_name(), "/", (*descriptor)->name());
  const auto streams = static_cast<call::Streams>(
      ((*descriptor)->client_streaming() ? frame::kFlagClientStreams : 0) |
      ((*descriptor)->server_streaming() ? frame::kFlagServerStreams : 0));
  const sluice::Method method(name.c_str(), streams);
  CallContext context(options.timeout);
  if (streams == call::Streams::kNobody) {
    if (absl::Status status = channel->Call(method, context, *request, reply.get()); !status.ok()) {
      return Fail(status);
    }
    Print(*reply);
    return kExitOk;
  }
  const absl::Status status =
      CallStreaming(channel.get(), *descriptor, method, context, services, *request, reply.get());
  return status.ok() ? kExitOk : Fail(status);
}

int List(const std::shared_ptr<Channel>& channel, const Options& options) {
  const auto names = ReflectedServices(channel, options.timeout).Names();
  if (!names.ok()) return Fail(names.status());
  for (const std::string& name : *names) std::printf("%s\n", name.c_str());
  return kExitOk;
}

int Describe(const std::shared_ptr<Channel>& channel, const Options& options,
             const std::string& name) {
  ReflectedServices services(channel, options.timeout);
  const auto service = services.Service(name);
  if (!service.ok()) return Fail(service.status());
  std::printf("%s", (*service)->DebugString().c_str());
  for (int i = 0; i < (*service)->method_count(); ++i) {
    const MethodDescriptor* method = (*service)->method(i);
    std::printf("\n// %s\n%s%s", method->name().c_str(),
                method->input_type()->DebugString().c_str(),
                method->output_type()->DebugString().c_str());
  }
  return kExitOk;
}

int Main(const std::vector<std::string>& arguments) {
  Options options;
  CommandLine line(kHead);
  line.Add("server", &options.server, "host:port of a server with a reflection service");
  line.Add("json", &options.json, "the request; -: read the request from standard input");
  line.Add("timeout", &options.timeout, absl::Milliseconds(1), absl::Hours(24),
           "timeout of the connection and of each call");
  line.Add("device", &options.device, "RDMA device: auto, or a name that sluice_info shows");
  line.Add("secret_file", &options.secret_file, "file of the secret that the server requires");
  // What is no option is what to do.
  std::vector<std::string> words, rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].rfind("--", 0) != 0) {
      words.push_back(arguments[i]);
      continue;
    }
    rest.push_back(arguments[i]);
    const bool has_value = arguments[i].find('=') != std::string::npos || arguments[i] == "--help";
    if (!has_value && i + 1 < arguments.size()) rest.push_back(arguments[++i]);
  }
  if (absl::Status status = line.Parse(rest); !status.ok()) return Fail(status, kExitUsage);
  if (line.help()) {
    std::printf("%s", line.HelpText().c_str());
    return kExitOk;
  }
  const bool describes = words.size() == 2 && words[0] == "describe";
  if (!describes && (words.size() != 1 || words[0] == "describe")) {
    std::fprintf(stderr,
                 "sluice_call: say list, describe package.Service, or one package.Service/Method; "
                 "--help says more\n");
    return kExitUsage;
  }
  ChannelOptions channel_options;
  channel_options.device = options.device;
  channel_options.connect_timeout = std::min(options.timeout, absl::Hours(1));
  channel_options.authentication.secret_file = options.secret_file;
  const auto channel = Channel::Connect(options.server, channel_options);
  if (!channel.ok()) return Fail(channel.status());
  if (describes) return Describe(*channel, options, words[1]);
  return words[0] == "list" ? List(*channel, options) : Call(*channel, options, words[0]);
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) {
  return sluice::tools::Main(std::vector<std::string>(argv + 1, argv + argc));
}
