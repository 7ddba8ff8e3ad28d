// SPDX-License-Identifier: Apache-2.0
//
// sluice_info: what Sluice finds on this machine, and what it makes of it. Exit codes: 0, 1 if
// there is no device that Sluice can use, 2 usage.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tools/command_line.h"
#include "tools/json_output.h"
#include "tools/sluice_info_collect.h"
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

int Main(const std::vector<std::string>& arguments) {
  std::string json;
  CommandLine line(
      "usage: sluice_info [options]\nWhat Sluice finds on this machine, and what it makes of "
      "it.\n");
  line.Add("json", &json, "print JSON (sluice.SystemInfo) to this file, - for standard output");
  if (absl::Status status = line.Parse(arguments); !status.ok()) {
    std::fprintf(stderr, "sluice_info: %s\n", std::string(status.message()).c_str());
    return kExitUsage;
  }
  if (line.help()) {
    std::fputs(line.HelpText().c_str(), stdout);
    return kExitOk;
  }
  const SystemInfo system = CollectSystemInfo(device::AllTables());
  if (json != "-") std::fputs(Text(system).c_str(), stdout);
  if (!json.empty()) {
    if (absl::Status status = WriteJson(system, json); !status.ok()) {
      std::fprintf(stderr, "sluice_info: %s\n", std::string(status.message()).c_str());
      return kExitFailed;
    }
  }
  return system.auto_choice().empty() ? kExitFailed : kExitOk;
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) { return sluice::tools::Main({argv + 1, argv + argc}); }
