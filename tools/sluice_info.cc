// SPDX-License-Identifier: Apache-2.0
//
// sluice_info: what Sluice finds on this machine, and what it makes of it; with --check, what is wrong with that and what to
// do; with --config, all options; with --peer, how a connection to another process stands. Exit codes: 0, 1 if there is no device that Sluice can use,
// something keeps it from working, or the peer can't be reached, 2 usage.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "middleware/api/address.h"
#include "middleware/api/config.h"
#include "tools/command_line.h"
#include "tools/doctor.h"
#include "tools/json_output.h"
#include "tools/sluice_info_collect.h"
#include "tools/sluice_info_peer.h"
#include "transport/device/tables.h"

namespace sluice::tools {
namespace {

void AppendLimits(const google::protobuf::RepeatedPtrField<LimitInfo>& limits, std::string* text) {
  for (const LimitInfo& limit : limits) {
    absl::StrAppendFormat(text, "    %-28s %20u  %s\n", limit.name(), limit.value(),
                          limit.meaning());
  }
}

void AppendDevice(const DeviceInfo& device, std::string* text) {
  absl::StrAppendFormat(text, "\ndevice %s (%s; driver: %s; node GUID %s)\n", device.name(),
                        device.provider(), device.driver(), device.node_guid());
  if (!device.open_error().empty()) {
    absl::StrAppendFormat(text, "  not usable: %s\n", device.open_error());
    return;
  }
  absl::StrAppendFormat(text, "  vendor 0x%04x, part %u, firmware %s\n", device.vendor_id(),
                        device.vendor_part_id(), device.firmware());
  for (const PortInfo& port : device.ports()) {
    absl::StrAppendFormat(text, "  port %u: %s, %s, MTU %u\n", port.number(), port.state(),
                          port.link_layer(), port.active_mtu_bytes());
    for (const GidInfo& gid : port.gids()) {
      absl::StrAppendFormat(text, "    GID %3u  %-40s %s\n", gid.index(), gid.gid(), gid.type());
    }
    for (int i = 0; i < port.pkeys_size(); ++i) {
      if (port.pkeys(i) == 0) continue;
      absl::StrAppendFormat(text, "    partition key %3d  0x%04x\n", i, port.pkeys(i));
    }
  }
  absl::StrAppend(text, "  hardware capabilities\n");
  for (const CapabilityInfo& capability : device.capabilities()) {
    absl::StrAppendFormat(text, "    %-18s  %-10s  %s\n", capability.name(),
                          capability.on() ? "in use" : "not in use", capability.why());
    if (!capability.on()) {
      absl::StrAppendFormat(text, "    %-18s  %-10s  instead: %s\n", "", "", capability.fallback());
    }
  }
  absl::StrAppend(text, "  limits\n");
  AppendLimits(device.limits(), text);
}

std::string Text(const SystemInfo& system) {
  const BuildInfo& build = system.build();
  std::string text =
      absl::StrFormat("Sluice %s (%s), %s, protobuf %s, Abseil %s\n", build.version(), build.mode(),
                      build.compiler(), build.protobuf(), build.abseil());
  for (const DeviceInfo& device : system.devices()) AppendDevice(device, &text);
  if (system.devices().empty()) absl::StrAppend(&text, "\nno devices\n");
  absl::StrAppendFormat(&text, "\n--device=auto takes %s\n", system.auto_reason());
  absl::StrAppend(&text, "\ndefaults of a channel and a server\n");
  AppendLimits(system.defaults(), &text);
  return text;
}

// Text to standard output, or JSON as asked for. The exit code.
int Print(const google::protobuf::Message& message, const std::string& text,
          const std::string& json) {
  if (json != "-") std::fputs(text.c_str(), stdout);
  if (json.empty()) return kExitOk;
  absl::Status status = WriteJson(message, json);
  if (status.ok()) return kExitOk;
  std::fprintf(stderr, "sluice_info: %s\n", std::string(status.message()).c_str());
  return kExitFailed;
}

int PrintPeer(const std::string& peer, const std::string& device, absl::Duration timeout,
              const std::string& secret_file, const ChannelOptions& options,
              const std::string& json) {
  const auto address = ParseAddress(peer, /*allow_port_0=*/false);
  if (!address.ok()) {
    std::fprintf(stderr, "sluice_info: --peer: %s\n",
                 std::string(address.status().message()).c_str());
    return kExitUsage;
  }
  const auto connection = DescribeConnection(device::AllTables(), device, address->host,
                                             address->port, timeout, secret_file, options);
  if (!connection.ok()) {
    std::fprintf(stderr, "sluice_info: %s\n",
                 connection.status().ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
    return kExitFailed;
  }
  return Print(*connection, ConnectionText(*connection), json);
}

// Each as wide as its widest; the last one ends where it ends.
template <size_t n>
std::string Columns(const std::vector<std::array<std::string, n>>& rows) {
  std::array<size_t, n> widths{};
  for (const auto& row : rows) {
    for (size_t i = 0; i < n; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i + 1 < n; ++i) {
      absl::StrAppendFormat(&text, "%-*s  ", static_cast<int>(widths[i]), row[i]);
    }
    absl::StrAppend(&text, row[n - 1], "\n");
  }
  return text;
}

// All options as `file`, if any, and the environment, if asked, make them. False: not valid, and said so.
bool ReadConfig(const std::string& file, bool environment, Config* config) {
  absl::Status status = environment ? config->ReadEnvironment() : absl::OkStatus();
  if (status.ok() && !file.empty()) status = config->ReadFile(file);
  for (const absl::Status& one : {status, config->channel.Validate(), config->server.Validate(),
                                  config->messenger.Validate()}) {
    if (one.ok()) continue;
    std::fprintf(stderr, "sluice_info: %s\n", std::string(one.message()).c_str());
    return false;
  }
  for (const std::string& warning : config->warnings()) {
    std::fprintf(stderr, "sluice_info: warning: %s\n", warning.c_str());
  }
  return true;
}

int PrintConfig(Config config) {
  using Row = std::array<std::string, 6>;
  std::vector<Row> rows = {{"option", "value", "source", "default", "allowed", "meaning"}};
  for (const Config::Setting& setting : config.Settings()) {
    rows.push_back({setting.name, setting.value.empty() ? "-" : setting.value, Name(setting.source),
                    setting.default_value.empty() ? "-" : setting.default_value, setting.allowed,
                    setting.meaning});
  }
  std::fputs(Columns(rows).c_str(), stdout);
  return kExitOk;
}

int Main(const std::vector<std::string>& arguments) {
  std::string json, peer, secret_file, device = "auto";
  absl::Duration timeout = absl::Seconds(5);
  bool check = false;
  bool environment = false;
  std::optional<std::string> config;
  CommandLine line(
      "usage: sluice_info [options]\nShows the devices of this machine, and the features that "
      "Sluice uses; with --peer, the state of a connection to another process.\n");
  line.Add("json", &json,
           "print JSON (sluice.SystemInfo, sluice.CheckReport with --check, sluice.ConnectionInfo "
           "with --peer) to this file, - for standard output");
  line.Add("check", &check, "check the settings of this machine, and say what to change");
  line.Add("config", &config,
           "list all options: value, source, default, range, meaning; with =FILE after reading "
           "that file (a sluice.ConfigFile in text format); with --peer: connect with its options "
           "channel.path and channel.limits.path_mtu");
  line.Add("env", &environment, "with --config: read variables SLUICE_… as well");
  line.Add("peer", &peer, "host:port of a Sluice server: connect, and describe the connection");
  line.Add("device", &device, "with --peer: the device to connect over");
  line.Add("secret_file", &secret_file,
           "with --peer: file of the secret that the peer requires, mode 600");
  line.Add("timeout", &timeout, absl::Milliseconds(10), absl::Minutes(10),
           "with --peer: timeout of the connection");
  if (absl::Status status = line.Parse(arguments); !status.ok()) {
    std::fprintf(stderr, "sluice_info: %s\n", std::string(status.message()).c_str());
    return kExitUsage;
  }
  if (line.help()) {
    std::fputs(line.HelpText().c_str(), stdout);
    return kExitOk;
  }
  Config options;
  if (config.has_value() && !ReadConfig(*config, environment, &options)) return kExitFailed;
  if (!peer.empty()) {
    return PrintPeer(peer, device, timeout, secret_file, options.channel, json);
  }
  if (config.has_value()) return PrintConfig(std::move(options));
  const SystemInfo system = CollectSystemInfo(device::AllTables());
  if (check) {
    const CheckReport report = Examine("", system);
    const int printed = Print(report, CheckText(report), json);
    return report.blocked() ? kExitFailed : printed;
  }
  const int code = Print(system, Text(system), json);
  return system.auto_choice().empty() ? kExitFailed : code;
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) { return sluice::tools::Main({argv + 1, argv + argc}); }
