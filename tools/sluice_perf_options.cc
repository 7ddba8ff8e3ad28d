// SPDX-License-Identifier: Apache-2.0
#include "tools/sluice_perf_options.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tools/build_info.h"
#include "transport/base/error.h"

namespace sluice::tools {
namespace {

// options.h of the API: EndpointLimits. Above the first, messages are read from where they are.
constexpr uint32_t kMaxMessageBytes = 1u << 20;
constexpr uint32_t kMaxLargeBytes = 128u << 20;
constexpr uint64_t kMaxUnderWay = 1u << 24;
constexpr uint32_t kProtobufBytes = 16;   // tag and length of the one field
constexpr uint32_t kOverheadBytes = 256;  // more than header and protobuf
constexpr uint32_t kHeaderBytes = 48;     // as above

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos) {
      return line.substr(line.find(": ") + 2);
    }
  }
  return "";
}

void AddCommonTo(PerfOptions* options, CommandLine* line) {
  line->Add("device", &options->device, "auto, or a name that sluice_info shows");
  line->Add("secret_file", &options->secret_file,
            "file of the secret that the server requires, mode 600; none: no authentication");
  line->Add("lanes", &options->lanes, "auto, off or on: whether busy peers get lanes");
  line->Add("size", &options->size_bytes, 0, kMaxLargeBytes - kHeaderBytes - kProtobufBytes,
            "bytes of payload, each way; above 1 MiB they are large messages");
  line->Add("duration", &options->duration, absl::Milliseconds(1), absl::Hours(24),
            "duration of the measurement");
  line->Add("warmup", &options->warmup, absl::ZeroDuration(), absl::Hours(1),
            "duration of the run before the measurement");
  line->Add("cpus", &options->cpus, "CPU of the client, or CLIENT,SERVER, to pin to");
  line->Add("json", &options->json,
            "print JSON (sluice.BenchResult) to this file, - for standard output");
  line->Add("html", &options->html, "write a page with plots to this file");
  line->Add("raw", &options->raw,
            "first measure the round trip of a cache line between the same CPUs (default 0 and 1), "
            "the limit of "
            "the machine");
}

}  // namespace

void PerfOptions::AddRpcTo(CommandLine* line) {
  line->Add("server", &server,
            "host:port of a sluice_perf serve or echo_server; none: one is started");
  line->Add("window", &window, 1, 1u << 16,
            "number of calls in flight; with --rate the maximum. Default: 1, with --rate 1024");
  line->Add("rate", &rate, 0, 10'000'000,
            "calls a second, started by a schedule regardless of replies; latency counts from the "
            "intended start. 0: the end of each call starts the next (closed loop)");
  line->Add("deadline", &deadline, absl::Milliseconds(1), absl::Hours(1), "deadline of each call");
  AddCommonTo(this, line);
}

void PerfOptions::AddFlowTo(CommandLine* line) {
  line->Add("server", &server, "host:port of a sluice_perf sink; none: one is started");
  line->Add("flows", &flows, 1, 1u << 20, "number of flows, all over one connection");
  line->Add("window", &window, 1, 1u << 16, "maximum number of messages in flight per flow");
  line->Add("replies", &replies, 0, 1,
            "1: the receiver returns each message; 0: it reports only delivery");
  AddCommonTo(this, line);
}

void MakeRoomFor(uint32_t payload_bytes, EndpointLimits* limits) {
  const uint32_t bytes = payload_bytes + kOverheadBytes;
  if (bytes <= kMaxMessageBytes)
    limits->max_message_bytes = std::max(limits->max_message_bytes, bytes);
}

absl::StatusOr<Lanes> LanesFrom(const std::string& text) {
  if (text == "auto") return Lanes::kAuto;
  if (text == "off") return Lanes::kOff;
  if (text == "on") return Lanes::kOn;
  return base::Error(absl::StatusCode::kInvalidArgument, absl::StrCat("--lanes=", text, " refused"),
                     {.layer = "tools",
                      .operation = "command line",
                      .cause = "allowed are auto, off and on",
                      .remedy = "write --lanes=off to have each message sent"});
}

absl::Status PerfOptions::Finish() {
  auto parsed = LanesFrom(lanes);
  if (!parsed.ok()) return parsed.status();
  use_lanes = *parsed;
  if (window == 0) window = rate != 0 ? kOpenWindow : 1;
  cpu_list.clear();
  for (const auto& text : absl::StrSplit(cpus, ',', absl::SkipEmpty())) {
    int cpu = -1;
    if (!absl::SimpleAtoi(text, &cpu) || cpu < 0 || cpu >= CPU_SETSIZE || cpu_list.size() == 2) {
      return base::Error(absl::StatusCode::kInvalidArgument,
                         absl::StrCat("--cpus=", cpus, " refused"),
                         {.layer = "tools",
                          .operation = "command line",
                          .cause = "allowed are one or two CPU numbers",
                          .remedy = "write --cpus=0 or --cpus=0,1"});
    }
    cpu_list.push_back(cpu);
  }
  if (cpu_list.size() == 2 && !server.empty()) {
    return base::Error(absl::StatusCode::kInvalidArgument, "two --cpus with --server refused",
                       {.layer = "tools",
                        .operation = "command line",
                        .cause = "the second one is for a server that sluice_perf starts",
                        .remedy = "give one CPU, and pin the server where it is started"});
  }
  if (uint64_t{flows} * window > kMaxUnderWay) {
    return base::Error(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("--flows=", flows, " with --window=", window, " refused"),
        {.layer = "tools",
         .operation = "command line",
         .cause = absl::StrCat("more than ", kMaxUnderWay, " messages in flight are not supported"),
         .remedy = "lower one of the two"});
  }
  return absl::OkStatus();
}

BenchConfig ConfigOf(const PerfOptions& options, const std::string& server) {
  BenchConfig config;
  config.set_device(options.device);
  config.set_lanes(options.lanes);
  config.set_server(server);
  config.set_payload_bytes(options.size_bytes);
  config.set_window(options.window);
  config.set_duration_seconds(absl::ToDoubleSeconds(options.duration));
  config.set_warmup_seconds(absl::ToDoubleSeconds(options.warmup));
  config.set_loop(options.rate != 0 ? "open" : "closed");
  config.set_rate_per_second(options.rate);
  config.set_deadline_ns(absl::ToInt64Nanoseconds(options.deadline));
  for (const int cpu : options.cpu_list) config.add_cpus(cpu);
  for (const std::string& argument : options.arguments) config.add_arguments(argument);
  return config;
}

BenchHost ThisHost() {
  BenchHost host;
  utsname names = {};
  if (uname(&names) == 0) {
    host.set_hostname(names.nodename);
    host.set_kernel(absl::StrCat(names.sysname, " ", names.release));
  }
  host.set_cpu_model(CpuModel());
  host.set_cpu_count(static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_ONLN)));
  host.set_build(ThisBuildText());
  return host;
}

absl::Status PinToCpu(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof(set), &set) == 0) return absl::OkStatus();
  return base::ErrnoError(errno, absl::StrCat("pinning to CPU ", cpu),
                          {.layer = "tools",
                           .operation = "sched_setaffinity",
                           .cause = "there is no such CPU, or it is not ours to use",
                           .remedy = "choose another --cpus"});
}

}  // namespace sluice::tools
