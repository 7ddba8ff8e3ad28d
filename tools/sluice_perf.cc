// SPDX-License-Identifier: Apache-2.0
//
// sluice_perf: measures Sluice from the outside, as a program that uses it. Exit codes: 0 measured,
// 1 failed or a call failed, 2 usage.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "examples/echo/echo_service.h"
#include "middleware/api/messenger.h"
#include "middleware/api/server.h"
#include "tools/cache_line_round_trip.h"
#include "tools/child_process.h"
#include "tools/command_line.h"
#include "tools/json_output.h"
#include "tools/perf_page.h"
#include "tools/sluice_perf_flow.h"
#include "tools/sluice_perf_options.h"
#include "tools/sluice_perf_rpc.h"

namespace sluice::tools {
namespace {

constexpr char kUsage[] =
    "usage: sluice_perf rpc [options]      measures calls, one after another or by a schedule\n"
    "       sluice_perf serve [options]    the server for rpc, for --server on another host\n"
    "       sluice_perf flow [options]     measures messages in flows: rate and latency\n"
    "       sluice_perf sink [options]     the receiver for flow, for --server on another host\n"
    "       sluice_perf compare [--html=FILE] A.json B.json ...   puts results beside each other\n"
    "       sluice_perf WORD --help        shows the options\n";

constexpr absl::Duration kRawDuration = absl::Milliseconds(200);

int Complain(const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "sluice_perf: %s\n", std::string(status.message()).c_str());
  return exit_code;
}

// Starts this program again, as the server: "serve", or "sink".
absl::StatusOr<std::unique_ptr<ChildProcess>> StartServer(const std::string& word,
                                                          const PerfOptions& options) {
  std::vector<std::string> arguments = {
      "/proc/self/exe",           word,
      "--listen=127.0.0.1:0",     "--device=" + options.device,
      "--lanes=" + options.lanes, absl::StrCat("--size=", options.size_bytes)};
  if (!options.secret_file.empty()) arguments.push_back("--secret_file=" + options.secret_file);
  if (word == "sink") arguments.push_back(absl::StrCat("--window=", options.window));
  if (options.cpu_list.size() == 2)
    arguments.push_back(absl::StrCat("--cpu=", options.cpu_list[1]));
  return ChildProcess::Start(arguments);
}

absl::StatusOr<double> RawNs(const PerfOptions& options) {
  const std::vector<int>& cpus = options.cpu_list;
  const int client = cpus.empty() ? 0 : cpus[0];
  const int server = cpus.size() == 2 ? cpus[1] : client == 0 ? 1 : 0;
  return CacheLineRoundTripNs(client, server, kRawDuration);
}

// Measures against a server that is there, or one of our own.
int Measure(PerfOptions& options, CommandLine& line, const std::string& server_word,
            absl::StatusOr<BenchResult> (*measure)(const PerfOptions&, const std::string&)) {
  absl::Status status = line.Parse(options.arguments);
  if (status.ok()) status = options.Finish();
  if (!status.ok()) return Complain(status, kExitUsage);
  if (line.help()) {
    std::fputs(line.HelpText().c_str(), stdout);
    return kExitOk;
  }
  std::unique_ptr<ChildProcess> own_server;
  std::string address = options.server;
  if (address.empty()) {
    auto started = StartServer(server_word, options);
    if (!started.ok()) return Complain(started.status(), kExitFailed);
    own_server = *std::move(started);
    auto listening = ListeningAddress(*own_server, absl::Seconds(30));
    if (!listening.ok()) return Complain(listening.status(), kExitFailed);
    address = *listening;
  }
  if (!options.cpu_list.empty()) {
    if (status = PinToCpu(options.cpu_list[0]); !status.ok()) return Complain(status, kExitFailed);
  }
  double raw_ns = 0;
  if (options.raw) {
    const auto measured = RawNs(options);
    if (!measured.ok()) return Complain(measured.status(), kExitFailed);
    raw_ns = *measured;
  }
  auto result = measure(options, address);
  if (!result.ok()) return Complain(result.status(), kExitFailed);
  result->set_raw_round_trip_ns(raw_ns);
  if (own_server != nullptr) {
    own_server->Signal(SIGTERM);
    auto ended = own_server->Wait(absl::Seconds(10));
    if (!ended.ok()) return Complain(ended.status(), kExitFailed);
  }
  if (options.json != "-") std::fputs(ResultText(*result).c_str(), stdout);
  if (!options.json.empty()) {
    if (status = WriteJson(*result, options.json); !status.ok())
      return Complain(status, kExitFailed);
  }
  if (!options.html.empty()) {
    status = WritePerfPage({&*result, 1}, options.html);
    if (!status.ok()) return Complain(status, kExitFailed);
  }
  return result->counts().failed() == 0 && result->counts().ok() > 0 ? kExitOk : kExitFailed;
}

int Rpc(const std::vector<std::string>& arguments) {
  PerfOptions options;
  options.arguments = arguments;
  CommandLine line("usage: sluice_perf rpc [options]\nMeasures rate and latency of calls.\n");
  options.AddRpcTo(&line);
  return Measure(options, line, "serve", &MeasureRpc);
}

int FlowWord(const std::vector<std::string>& arguments) {
  PerfOptions options;
  options.arguments = arguments;
  options.window = 32;
  CommandLine line(
      "usage: sluice_perf flow [options]\nMeasures messages in flows, limited by their windows.\n");
  options.AddFlowTo(&line);
  return Measure(options, line, "sink", &MeasureFlows);
}

struct ServeOptions {
  static constexpr uint32_t kNoCpu = 0xffff;
  std::string listen = "127.0.0.1:7471";
  std::string device = "auto";
  std::string secret_file;
  std::string lanes = "auto";
  uint32_t size_bytes = 0;
  uint32_t window = 1'024;
  uint32_t cpu = kNoCpu;

  void AddTo(CommandLine* line) {
    line->Add("listen", &listen, "host:port; port 0: any free port");
    line->Add("device", &device, "auto, or a name that sluice_info shows");
    line->Add("secret_file", &secret_file,
              "file of secrets, mode 600; clients must prove one of them; none: no authentication");
    line->Add("lanes", &lanes, "auto, off or on: whether busy clients get lanes");
    line->Add("size", &size_bytes, 0, 128u << 20, "maximum payload in bytes");
    line->Add("cpu", &cpu, 0, kNoCpu, "CPU to pin to; 65535: none");
  }
  absl::Status ApplyTo(EndpointLimits* limits) const {
    MakeRoomFor(size_bytes, limits);
    auto use = LanesFrom(lanes);
    if (use.ok()) limits->lanes = *use;
    return use.status();
  }
};

// What every server does first. The exit code, if that was all.
std::optional<int> Prepare(const ServeOptions& options, CommandLine& line,
                           const std::vector<std::string>& arguments, sigset_t* end_signals) {
  if (absl::Status status = line.Parse(arguments); !status.ok())
    return Complain(status, kExitUsage);
  if (line.help()) {
    std::fputs(line.HelpText().c_str(), stdout);
    return kExitOk;
  }
  sigemptyset(end_signals);
  sigaddset(end_signals, SIGINT);
  sigaddset(end_signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, end_signals, nullptr);  // sigwait() gets them
  if (options.cpu != ServeOptions::kNoCpu) {
    if (absl::Status status = PinToCpu(static_cast<int>(options.cpu)); !status.ok())
      return Complain(status, kExitFailed);
  }
  return std::nullopt;
}

// For programs: it says which port it is.
void SayWhere(const std::string& listen, uint16_t port) {
  std::printf("listening on %s:%u\n", listen.substr(0, listen.rfind(':')).c_str(), port);
  std::fflush(stdout);
}

int Serve(const std::vector<std::string>& arguments) {
  ServeOptions serve;
  CommandLine line("usage: sluice_perf serve [options]\nServes the calls of sluice_perf rpc.\n");
  serve.AddTo(&line);
  sigset_t end_signals;
  if (const auto done = Prepare(serve, line, arguments, &end_signals)) return *done;
  ServerOptions options;
  options.device = serve.device;
  options.authentication.secret_file = serve.secret_file;
  if (absl::Status status = serve.ApplyTo(&options.limits); !status.ok())
    return Complain(status, kExitUsage);
  auto server = Server::Create(options);
  if (!server.ok()) return Complain(server.status(), kExitFailed);
  examples::echo::EchoService echo;
  if (absl::Status status = (*server)->Register(&echo); !status.ok())
    return Complain(status, kExitFailed);
  auto port = (*server)->Listen(serve.listen);
  if (!port.ok()) return Complain(port.status(), kExitFailed);
  SayWhere(serve.listen, *port);
  int number = 0;
  sigwait(&end_signals, &number);
  const absl::Status status = (*server)->Shutdown(absl::Seconds(2));
  return status.ok() ? kExitOk : Complain(status, kExitFailed);
}

int Sink(const std::vector<std::string>& arguments) {
  ServeOptions serve;
  CommandLine line(
      "usage: sluice_perf sink [options]\nReceives the messages of sluice_perf flow.\n");
  serve.AddTo(&line);
  line.Add("window", &serve.window, 1, 1u << 16, "maximum number of messages in flight per flow");
  sigset_t end_signals;
  if (const auto done = Prepare(serve, line, arguments, &end_signals)) return *done;
  MessengerOptions options;
  options.device = serve.device;
  options.authentication.secret_file = serve.secret_file;
  if (absl::Status status = serve.ApplyTo(&options.limits); !status.ok())
    return Complain(status, kExitUsage);
  auto messenger = Messenger::Create(options);
  if (!messenger.ok()) return Complain(messenger.status(), kExitFailed);
  FlowSink sink;
  if (absl::Status status = sink.AcceptOn(**messenger, serve.window); !status.ok())
    return Complain(status, kExitFailed);
  auto port = (*messenger)->Listen(serve.listen);
  if (!port.ok()) return Complain(port.status(), kExitFailed);
  SayWhere(serve.listen, *port);
  std::atomic<bool> over = false;
  std::thread waiter([&] {
    int number = 0;
    sigwait(&end_signals, &number);
    over = true;
    (*messenger)->Wake();
  });
  (*messenger)->Drive([&] { return over.load(); }, absl::InfiniteDuration());
  waiter.join();
  return kExitOk;
}

int Compare(const std::vector<std::string>& arguments) {
  CommandLine line(absl::StrCat("usage: sluice_perf compare [options] FILE...\nPuts up to ",
                                kMostResults,
                                " results, written with --json, beside each other.\n"));
  std::string html;
  line.Add("html", &html, "write a page with plots to this file");
  std::vector<std::string> options, files;
  for (const std::string& argument : arguments) {
    (absl::StartsWith(argument, "-") ? options : files).push_back(argument);
  }
  if (absl::Status status = line.Parse(options); !status.ok()) return Complain(status, kExitUsage);
  if (line.help()) {
    std::fputs(line.HelpText().c_str(), stdout);
    return kExitOk;
  }
  if (files.empty() || files.size() > kMostResults) {
    std::fprintf(stderr, "sluice_perf: compare takes 1 to %zu files, not %zu\n%s", kMostResults,
                 files.size(), kUsage);
    return kExitUsage;
  }
  std::vector<BenchResult> results(files.size());
  for (size_t i = 0; i < files.size(); ++i) {
    if (absl::Status status = ReadJson(files[i], &results[i]); !status.ok())
      return Complain(status, kExitFailed);
  }
  std::fputs(PerfTable(results).c_str(), stdout);
  if (html.empty()) return kExitOk;
  const absl::Status status = WritePerfPage(results, html);
  return status.ok() ? kExitOk : Complain(status, kExitFailed);
}

int Main(const std::vector<std::string>& words) {
  const std::string word = words.empty() ? "" : words[0];
  const std::vector<std::string> rest(words.begin() + (words.empty() ? 0 : 1), words.end());
  if (word == "rpc") return Rpc(rest);
  if (word == "serve") return Serve(rest);
  if (word == "flow") return FlowWord(rest);
  if (word == "sink") return Sink(rest);
  if (word == "compare") return Compare(rest);
  if (word == "--help" || word == "-h" || word == "help") {
    std::fputs(kUsage, stdout);
    return kExitOk;
  }
  std::fprintf(stderr, "sluice_perf: %s\n%s",
               word.empty() ? "no word given" : absl::StrCat("there is no \"", word, "\"").c_str(),
               kUsage);
  return kExitUsage;
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) { return sluice::tools::Main({argv + 1, argv + argc}); }
