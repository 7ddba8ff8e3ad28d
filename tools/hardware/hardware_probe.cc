// SPDX-License-Identifier: Apache-2.0
//
// hardware_probe: asks a device what softdc only claims, and writes a report. `./dev hardware` runs it with the rest. Exit codes: 0 all
// probes ran (whatever the answers), 1 no device, no peer, or no report written, 2 usage.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "middleware/api/address.h"
#include "tools/command_line.h"
#include "tools/hardware/probe.h"
#include "tools/hardware/remote_target.h"
#include "tools/hardware/report.h"
#include "tools/hardware/report_files.h"
#include "transport/device/tables.h"

namespace sluice::hardware {
namespace {

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "hardware_probe: %s\n", std::string(status.message()).c_str());
  return code;
}

void Tell(const HardwareRow& row) {
  std::fputs(RowText(row).c_str(), stdout);
  std::fflush(stdout);
}

struct Options {
  std::string device = "auto";
  std::string listen, peer, report, only, merge, steps;
  absl::Duration wait = absl::Minutes(5);
};

absl::StatusOr<std::unique_ptr<Rendezvous>> Meet(const Options& options, const Nic& nic,
                                                 const Address& at) {
  if (options.listen.empty()) {
    return Rendezvous::Connect(at.host, at.port, nic.name, options.wait);
  }
  return Rendezvous::Listen(at.host, at.port, nic.name, options.wait, [&](uint16_t port) {
    std::printf("listening on %s:%u\n", at.host.c_str(), port);
    std::fflush(stdout);
  });
}

int Merge(const Options& options) {
  auto report = ReadReport(options.merge);
  if (!report.ok()) return Fail(report.status(), tools::kExitFailed);
  report->clear_steps();
  absl::Status status = AddSteps(options.steps, &*report);
  if (status.ok()) status = WriteReport(*report, options.merge);
  return status.ok() ? tools::kExitOk : Fail(status, tools::kExitFailed);
}

// Alone, or with a peer: then the listening side asks first.
int Run(const Options& options, const Address& at) {
  auto nic = Nic::Open(device::AllTables(), options.device);
  if (!nic.ok()) return Fail(nic.status(), tools::kExitFailed);
  std::printf("device %s %s\n", (*nic)->spec.c_str(), Ipv4Of((*nic)->own.gid).c_str());
  std::fflush(stdout);
  // softdc has all addresses of its host.
  if (!options.listen.empty() && !(*nic)->name.starts_with("softdc")) {
    const absl::Status found = (*nic)->HasAddress(at.host);
    if (!found.ok()) return Fail(found, tools::kExitUsage);
  }
  std::unique_ptr<Rendezvous> rendezvous;
  if (!at.host.empty()) {
    auto met = Meet(options, **nic, at);
    if (!met.ok()) return Fail(met.status(), tools::kExitFailed);
    rendezvous = *std::move(met);
    std::printf("peer: %s\n", rendezvous->peer().c_str());
    std::fflush(stdout);
  }
  absl::Status served;
  if (rendezvous != nullptr && options.listen.empty()) served = ServeTargets(*rendezvous, **nic);
  if (!served.ok()) return Fail(served, tools::kExitFailed);
  const Scene scene{**nic, [&](const TargetOptions& wanted) {
                      return rendezvous == nullptr ? LocalTarget::Create(**nic, wanted)
                                                   : RemoteTarget::Create(*rendezvous, wanted);
                    }};
  HardwareReport report = RunProbes(scene, options.only, Tell);
  if (rendezvous != nullptr) report.set_peer(rendezvous->peer());
  if (!options.report.empty()) {
    if (absl::Status status = WriteReport(report, options.report); !status.ok()) {
      return Fail(status, tools::kExitFailed);
    }
  } else {
    std::printf("\ndials\n%s\n", report.dials().c_str());
  }
  if (rendezvous == nullptr) return tools::kExitOk;
  served = EndTargets(*rendezvous);
  if (served.ok() && !options.listen.empty()) served = ServeTargets(*rendezvous, **nic);
  return served.ok() ? tools::kExitOk : Fail(served, tools::kExitFailed);
}

int Main(const std::vector<std::string>& arguments) {
  Options options;
  tools::CommandLine line(
      "usage: hardware_probe [options]\nAsks a device what softdc only claims, and reports the "
      "differences. With a peer the "
      "targets are on the other host, and both sides ask.\n");
  line.Add("device", &options.device,
           "name that sluice_info shows; auto: the first active mlx5 port");
  line.Add("listen", &options.listen, "HOST:PORT of this host: wait for the other side there");
  line.Add("peer", &options.peer, "HOST:PORT of the other side, which listens there");
  line.Add("wait", &options.wait, absl::Milliseconds(10), absl::Hours(1),
           "time to wait for the other side");
  line.Add("report", &options.report, "write the report to this name with .txt, .json and .dials");
  line.Add("only", &options.only, "run the probes with this in their names");
  line.Add("merge", &options.merge, "add steps to the report of this name, and end");
  line.Add("steps", &options.steps,
           "with --merge: file of steps, as tools/dev/hardware.sh writes it");
  absl::Status status = line.Parse(arguments);
  if (status.ok() && line.help()) {
    std::fputs(line.HelpText().c_str(), stdout);
    return tools::kExitOk;
  }
  if (status.ok() && !options.listen.empty() && !options.peer.empty()) {
    status = absl::InvalidArgumentError("--listen and --peer: one of them on each host");
  }
  Address at;
  const std::string& text = options.listen.empty() ? options.peer : options.listen;
  if (status.ok() && !text.empty()) {
    auto parsed = ParseAddress(text, /*allow_port_0=*/!options.listen.empty());
    status = parsed.status();
    if (parsed.ok()) at = *std::move(parsed);
  }
  if (!status.ok()) return Fail(status, tools::kExitUsage);
  return options.merge.empty() ? Run(options, at) : Merge(options);
}

}  // namespace
}  // namespace sluice::hardware

int main(int argc, char** argv) { return sluice::hardware::Main({argv + 1, argv + argc}); }
