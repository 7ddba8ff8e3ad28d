// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "transport/endpoint/create.h"
#include "transport/endpoint/memory_need.h"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

// Of one poller with default options. Bulk ports register more: what their user lends.
endpoint::MemoryNeed DefaultNeed(bool rc) {
  endpoint::Options options;
  options.max_large_bytes = uint64_t{128} << 20;  // EndpointLimits::max_large_message_bytes
  return endpoint::NeedOf(options, rc);
}

// Only mlx5 devices have DC.
bool SomeDeviceHasRcOnly(const SystemInfo& system) {
  for (const DeviceInfo& device : system.devices()) {
    const bool known = device.provider() == "native" && !device.driver().empty();
    if (known && !absl::StrContains(device.driver(), "mlx5")) return true;
  }
  return false;
}
constexpr uint64_t kLeastFiles = 1024;
constexpr uint64_t kWholeMtu = 4200;  // Ethernet's, that carries RoCE packets of 4096
constexpr uint64_t kLeastMtu = 1120;  // the same for the default of limits.path_mtu, 1024

class Host {
 public:
  explicit Host(std::string root) : root_(std::move(root)) {}

  std::string Read(const std::string& path) const {
    std::ifstream file(root_ + path);
    std::stringstream text;
    text << file.rdbuf();
    std::string all = text.str();
    absl::StripAsciiWhitespace(&all);
    return all;
  }
  std::vector<std::string> Lines(const std::string& path) const {
    return absl::StrSplit(Read(path), '\n');
  }
  bool Exists(const std::string& path) const {
    std::error_code error;
    return fs::exists(root_ + path, error);
  }
  // Names, in order; those that are numbers by value.
  std::vector<std::string> List(const std::string& path) const {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator i(root_ + path, error), end; !error && i != end;
         i.increment(error)) {
      names.push_back(i->path().filename().string());
    }
    std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
      return a.size() != b.size() ? a.size() < b.size() : a < b;
    });
    return names;
  }

 private:
  const std::string root_;
};

class Examination {
 public:
  Examination(const std::string& root, const SystemInfo& system) : host_(root), system_(system) {}

  CheckReport Run() {
    Limits();
    Devices();
    Capabilities();
    Machine();
    const bool usable = !system_.auto_choice().empty();
    Add(usable ? Finding::OK : Finding::BLOCKING, "device",
        usable ? absl::StrCat("auto takes ", system_.auto_reason())
               : absl::StrCat("auto takes none: ", system_.auto_reason()),
        usable ? "" : "fix the findings above, or choose a device by name");
    for (const Finding& finding : report_.findings()) {
      if (finding.level() == Finding::BLOCKING) report_.set_blocked(true);
    }
    return report_;
  }

 private:
  void Add(Finding::Level level, const std::string& about, const std::string& what,
           const std::string& remedy = "") {
    Finding* finding = report_.add_findings();
    finding->set_level(level);
    finding->set_about(about);
    finding->set_what(what);
    finding->set_remedy(remedy);
  }

  // The soft limit of this process; nothing: it can't be read.
  std::optional<uint64_t> LimitOf(const std::string& name) const {
    for (const std::string& line : host_.Lines("/proc/self/limits")) {
      if (line.rfind(name, 0) != 0) continue;
      const std::vector<std::string> words =
          absl::StrSplit(line.substr(name.size()), ' ', absl::SkipEmpty());
      uint64_t value = 0;
      if (words.empty()) return std::nullopt;
      if (words[0] == "unlimited") return UINT64_MAX;
      if (absl::SimpleAtoi(words[0], &value)) return value;
    }
    return std::nullopt;
  }

  // Whether the kernel lets this process lock more than its limit: with CAP_IPC_LOCK (14) in the first user namespace.
  bool LocksWithoutLimit() const {
    const std::vector<std::string> maps = host_.Lines("/proc/self/uid_map");
    const std::vector<std::string> whole = {"0", "0", "4294967295"};
    if (maps.empty() ||
        std::vector<std::string>(absl::StrSplit(maps[0], ' ', absl::SkipEmpty())) != whole)
      return false;
    for (const std::string& line : host_.Lines("/proc/self/status")) {
      uint64_t set = 0;
      if (line.rfind("CapEff:", 0) == 0)
        return absl::SimpleHexAtoi(absl::StripAsciiWhitespace(line.substr(7)), &set) &&
               (set >> 14 & 1) != 0;
    }
    return false;
  }

  void Limits() {
    nics_ = host_.List("/sys/class/infiniband");
    const auto memlock = LimitOf("Max locked memory");
    const endpoint::MemoryNeed need = DefaultNeed(SomeDeviceHasRcOnly(system_));
    const std::string needs =
        absl::StrCat("KiB: a NIC's memory is locked; each poller with default options takes ",
                     endpoint::MebibytesOf(need.at_start_bytes), " when it starts, and up to ",
                     endpoint::MebibytesOf(need.later_bytes), " later (lanes, large messages)");
    if (!memlock.has_value()) {
      Add(Finding::NOTE, "memlock", "the limit can't be read", "look at ulimit -l");
    } else if (*memlock >= need.at_start_bytes + need.later_bytes) {
      Add(Finding::OK, "memlock",
          *memlock == UINT64_MAX ? "unlimited" : absl::StrCat(*memlock >> 10, " KiB"));
    } else if (LocksWithoutLimit()) {
      Add(Finding::NOTE, "memlock",
          absl::StrCat(*memlock >> 10, " KiB, which CAP_IPC_LOCK lets this process exceed"),
          "programs of other users need ulimit -l unlimited, or LimitMEMLOCK=infinity in a unit");
    } else {
      const Finding::Level level =
          *memlock < need.at_start_bytes ? Finding::BLOCKING : Finding::WARNING;
      Add(nics_.empty() ? Finding::NOTE : level, "memlock",
          absl::StrCat(*memlock >> 10, " ", needs, "; softdc needs none"),
          "ulimit -l unlimited; LimitMEMLOCK=infinity in a unit; --ulimit memlock=-1 of a "
          "container; memlock in /etc/security/limits.conf");
    }
    const auto files = LimitOf("Max open files");
    if (files.has_value() && *files < kLeastFiles) {
      Add(Finding::WARNING, "open files",
          absl::StrCat(*files, ": each softdc peer and each RDMA_CM connection takes some"),
          "ulimit -n 65536; LimitNOFILE=65536 in a unit");
    } else if (files.has_value()) {
      Add(Finding::OK, "open files", *files == UINT64_MAX ? "unlimited" : absl::StrCat(*files));
    }
  }

  void Devices() {
    if (nics_.empty()) {
      Add(Finding::NOTE, "NIC",
          "the kernel has no RDMA device: programs of this host reach each other by softdc",
          "with a ConnectX-5 or later: load mlx5_ib (modprobe mlx5_ib); see lspci -d 15b3:; for "
          "tests over Ethernet: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev NAME");
      return;
    }
    if (!host_.Exists("/dev/infiniband/rdma_cm")) {
      Add(Finding::BLOCKING, "RDMA_CM",
          "there is no /dev/infiniband/rdma_cm: no process can connect",
          "modprobe rdma_ucm; in a container pass --device=/dev/infiniband/rdma_cm");
    }
    for (const std::string& nic : nics_) Device(nic);
  }

  void Device(const std::string& nic) {
    const std::string folder = "/sys/class/infiniband/" + nic;
    std::string verbs;
    for (const std::string& name : host_.List("/sys/class/infiniband_verbs")) {
      if (host_.Read("/sys/class/infiniband_verbs/" + name + "/ibdev") == nic) verbs = name;
    }
    if (verbs.empty()) {
      Add(Finding::BLOCKING, nic, "user programs can't open it: no verbs device is there",
          "modprobe ib_uverbs");
    } else if (!host_.Exists("/dev/infiniband/" + verbs)) {
      Add(Finding::BLOCKING, nic, absl::StrCat("there is no /dev/infiniband/", verbs),
          absl::StrCat("udevadm trigger; in a container pass --device=/dev/infiniband/", verbs));
    }
    for (const std::string& port : host_.List(folder + "/ports")) {
      Port(nic, port, folder + "/ports/" + port);
    }
  }

  void Port(const std::string& nic, const std::string& port, const std::string& folder) {
    const std::string about = absl::StrCat(nic, " port ", port);
    const std::string state = AfterColon(host_.Read(folder + "/state"));
    const std::string physical = AfterColon(host_.Read(folder + "/phys_state"));
    const bool ethernet = host_.Read(folder + "/link_layer") == "Ethernet";
    if (state != "ACTIVE") {
      std::string remedy = ethernet ? "set the interface up: ip link set dev NAME up"
                                    : "is there a subnet manager? systemctl status opensm";
      if (physical == "Disabled") remedy = "it is switched off: ip link set dev NAME up";
      if (physical == "Polling") remedy = "plug in the cable, or look at the switch's port";
      Add(Finding::WARNING, about,
          absl::StrCat("is ", state.empty() ? "in no state that can be read" : state, ", ",
                       physical.empty() ? "physically unknown" : physical),
          remedy);
      return;
    }
    Add(Finding::OK, about,
        absl::StrCat("ACTIVE, ", ethernet ? "Ethernet" : "InfiniBand", ", ",
                     host_.Read(folder + "/rate")));
    if (ethernet) RoceAddresses(about, folder);
  }

  void RoceAddresses(const std::string& about, const std::string& folder) {
    std::string index, interface;
    bool link_local = false;
    for (const std::string& at : host_.List(folder + "/gids")) {
      const std::string gid = host_.Read(folder + "/gids/" + at);
      if (gid.find_first_not_of("0:") == std::string::npos ||
          host_.Read(folder + "/gid_attrs/types/" + at) != "RoCE v2") {
        continue;
      }
      interface = host_.Read(folder + "/gid_attrs/ndevs/" + at);
      if (gid.rfind("fe80", 0) == 0) {
        link_local = true;
      } else if (index.empty()) {
        index = at;
      }
    }
    if (!index.empty()) {
      Add(Finding::OK, about, absl::StrCat("GID ", index, " of ", interface, " is RoCE v2"));
    } else if (link_local) {
      Add(Finding::WARNING, about,
          absl::StrCat("its only RoCE v2 GID is link-local: nothing beyond the switch is reached"),
          absl::StrCat("give ", interface, " an address: ip addr add 10.0.0.5/24 dev ", interface));
    } else {
      Add(Finding::BLOCKING, about, "it has no RoCE v2 GID: no connection is possible",
          "set the interface up and give it an address; cma_roce_mode -d DEVICE -p PORT -m 2");
      return;
    }
    uint64_t mtu = 0;
    if (absl::SimpleAtoi(host_.Read("/sys/class/net/" + interface + "/mtu"), &mtu) &&
        mtu < kLeastMtu) {
      Add(Finding::WARNING, about,
          absl::StrCat("the MTU of ", interface, " is ", mtu,
                       ": packets carry 512 bytes, or less, instead of 1024"),
          absl::StrCat("on both hosts and the switch: ip link set dev ", interface, " mtu 1500"));
    } else if (mtu != 0 && mtu < kWholeMtu) {
      Add(Finding::OK, about,
          absl::StrCat("the MTU of ", interface, " is ", mtu, ": enough for limits.path_mtu ",
                       mtu < 2200 ? 1024 : 2048, "; 4096 needs ", kWholeMtu));
    } else if (mtu != 0) {
      Add(Finding::OK, about, absl::StrCat("the MTU of ", interface, " is ", mtu));
    }
  }

  void Capabilities() {
    for (const DeviceInfo& device : system_.devices()) {
      if (!device.open_error().empty()) {
        Add(device.provider() == "native" ? Finding::WARNING : Finding::BLOCKING, device.name(),
            absl::StrCat("can't be used: ", device.open_error()),
            "see what it needs above, or choose another device");
        continue;
      }
      for (const CapabilityInfo& capability : device.capabilities()) {
        if (capability.on()) {
          Add(Finding::OK, device.name(), absl::StrCat(capability.name(), " is in use"));
        } else {
          Add(Finding::NOTE, device.name(),
              absl::StrCat(capability.name(), " is not in use: ", capability.why()),
              absl::StrCat("nothing has to be done, Sluice does this: ", capability.fallback()));
        }
      }
    }
  }

  void Machine() {
    const std::string governor =
        host_.Read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    if (!governor.empty() && governor != "performance") {
      Add(Finding::NOTE, "CPU", absl::StrCat("its governor is ", governor, ": latencies vary"),
          "cpupower frequency-set -g performance");
    }
    if (host_.Read("/proc/sys/kernel/yama/ptrace_scope") == "3") {
      Add(Finding::NOTE, "memory",
          "processes can't read each other's: softdc copies twice where memory is not shared",
          "sysctl kernel.yama.ptrace_scope=1, which takes a reboot after 3");
    }
    uint64_t free_kb = 0;
    for (const std::string& line : host_.Lines("/proc/meminfo")) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (words.size() >= 2 && words[0] == "MemAvailable:")
        (void)absl::SimpleAtoi(words[1], &free_kb);
    }
    if (free_kb != 0 &&
        free_kb < (DefaultNeed(SomeDeviceHasRcOnly(system_)).at_start_bytes >> 10)) {
      Add(Finding::WARNING, "memory", absl::StrCat(free_kb, " KiB are available"),
          "free some, or lower limits.receive_buffers and limits.max_message_bytes");
    }
  }

  // "4: ACTIVE"
  static std::string AfterColon(const std::string& text) {
    const size_t colon = text.find(": ");
    return colon == std::string::npos ? text : text.substr(colon + 2);
  }

  const Host host_;
  const SystemInfo& system_;
  std::vector<std::string> nics_;
  CheckReport report_;
};

}  // namespace

CheckReport Examine(const std::string& root, const SystemInfo& system) {
  return Examination(root, system).Run();
}

std::string CheckText(const CheckReport& report) {
  static constexpr const char* kLevels[] = {"ok", "note", "WARNING", "BLOCKING"};
  std::string text;
  for (const Finding& finding : report.findings()) {
    absl::StrAppendFormat(&text, "%-9s %-16s %s\n", kLevels[finding.level()], finding.about(),
                          finding.what());
    if (!finding.remedy().empty()) {
      absl::StrAppendFormat(&text, "%-9s %-16s   %s\n", "", "", finding.remedy());
    }
  }
  absl::StrAppend(&text, report.blocked()
                             ? "Something keeps Sluice from working here: see BLOCKING.\n"
                             : "Nothing keeps Sluice from working here.\n");
  return text;
}

}  // namespace sluice::tools
