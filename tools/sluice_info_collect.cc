// SPDX-License-Identifier: Apache-2.0
#include "tools/sluice_info_collect.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "middleware/api/options.h"
#include "tools/build_info.h"
#include "tools/capability_use.h"

namespace sluice::tools {
namespace {

constexpr uint32_t kSchemaVersion = 1;

std::string SysfsFolder(const std::string& device) {
  return absl::StrCat("/sys/class/infiniband/", device);
}

// In the words of the kernel's files.
std::string GidType(const device::Device& device, uint32_t port, uint32_t index, bool ethernet) {
  ibv_gid_entry entry = {};
  if (device.api().query_gid_ex(device.context(), port, index, &entry) != 0) {
    return ethernet ? "RoCE" : "IB";
  }
  switch (entry.gid_type) {
    case IBV_GID_TYPE_ROCE_V2:
      return "RoCE v2";
    case IBV_GID_TYPE_ROCE_V1:
      return "RoCE v1";
    default:
      return "IB";
  }
}

std::string Driver(const std::string& device) {
  char path[256];
  const std::string link = SysfsFolder(device) + "/device/driver";
  const ssize_t length = readlink(link.c_str(), path, sizeof(path));
  if (length <= 0) return "user space, shared memory of this host";
  const std::string_view target(path, static_cast<size_t>(length));
  return std::string(target.substr(target.rfind('/') + 1));
}

void AddGids(const device::Device& device, uint32_t port, int length, bool ethernet,
             PortInfo* out) {
  for (int i = 0; i < length; ++i) {
    ibv_gid gid = {};
    if (device.api().query_gid(device.context(), static_cast<uint8_t>(port), i, &gid) != 0)
      continue;
    if (gid.global.subnet_prefix == 0 && gid.global.interface_id == 0) continue;
    char text[INET6_ADDRSTRLEN] = "";
    inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
    GidInfo* info = out->add_gids();
    info->set_index(static_cast<uint32_t>(i));
    info->set_gid(text);
    info->set_type(GidType(device, port, static_cast<uint32_t>(i), ethernet));
  }
}

// Up to the last that is not empty.
void AddPkeys(const device::Device& device, uint8_t port, int length, PortInfo* out) {
  std::vector<uint32_t> keys;
  for (int i = 0; i < length; ++i) {
    __be16 key = 0;
    if (device.api().query_pkey(device.context(), port, i, &key) != 0) break;
    keys.push_back(ntohs(key));
  }
  while (!keys.empty() && keys.back() == 0) keys.pop_back();
  for (const uint32_t key : keys) out->add_pkeys(key);
}

void AddPorts(const device::Device& device, uint32_t count, DeviceInfo* out) {
  for (uint32_t port = 1; port <= count; ++port) {
    ibv_port_attr attr = {};
    if (device.api().query_port(device.context(), static_cast<uint8_t>(port), &attr) != 0) continue;
    const bool ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    PortInfo* info = out->add_ports();
    info->set_number(port);
    const std::string state = absl::AsciiStrToUpper(ibv_port_state_str(attr.state));
    info->set_state(state.rfind("PORT_", 0) == 0 ? state.substr(5) : state);
    info->set_link_layer(ethernet ? "Ethernet" : "InfiniBand");
    info->set_active_mtu_bytes(128u << attr.active_mtu);  // IBV_MTU_256 is 1
    AddGids(device, port, attr.gid_tbl_len, ethernet, info);
    AddPkeys(device, static_cast<uint8_t>(port), attr.pkey_tbl_len, info);
  }
}

template <typename Owner>
void AddLimit(Owner* owner, LimitInfo* (Owner::*add)(), const char* name, uint64_t value,
              const char* meaning) {
  LimitInfo* limit = (owner->*add)();
  limit->set_name(name);
  limit->set_value(value);
  limit->set_meaning(meaning);
}

void AddLimits(const device::Limits& limits, DeviceInfo* out) {
  const auto add = [out](const char* name, uint64_t value, const char* meaning) {
    AddLimit(out, &DeviceInfo::add_limits, name, value, meaning);
  };
  add("max_cqe", limits.max_cqe, "entries of a completion queue");
  add("max_srq_wr", limits.max_srq_wr, "receive buffers of a shared receive queue");
  add("max_qp_wr", limits.max_qp_wr, "requests of a send queue");
  add("max_qp", limits.max_qp, "queue pairs of the device");
  add("max_mr_bytes", limits.max_mr_bytes, "bytes of a memory region");
  add("port_mtu_bytes", limits.port_mtu_bytes, "largest packet of port 1");
  add("reads", limits.reads, "maximum READs of one DCI in flight");
  add("concurrent_streams", limits.log_streams == 0 ? 0 : uint64_t{1} << limits.log_streams,
      "streams of one DCI; 0: none");
  add("errored_streams",
      limits.log_errored_streams == 0 ? 0 : uint64_t{1} << limits.log_errored_streams,
      "of those, how many may be in error before the DCI stops");
}

DeviceInfo Collect(const device::DeviceEntry& entry, const verbs::VerbsApi* table) {
  DeviceInfo info;
  info.set_name(entry.name);
  info.set_provider(entry.provider);
  info.set_driver(Driver(entry.name));
  info.set_node_guid(absl::StrFormat("%016x", entry.guid));
  auto opened = device::Device::Open(entry.name, {table});
  if (!opened.ok()) {
    info.set_open_error(std::string(opened.status().message()));
    return info;
  }
  const device::Device& device = **opened;
  ibv_device_attr attr = {};
  if (device.api().query_device(device.context(), &attr) == 0) {
    info.set_vendor_id(attr.vendor_id);
    info.set_vendor_part_id(attr.vendor_part_id);
    info.set_firmware(attr.fw_ver);
    AddPorts(device, attr.phys_port_cnt, &info);
  }
  for (const CapabilityUse& use : CapabilitiesInUse(device.capabilities())) {
    CapabilityInfo* out = info.add_capabilities();
    out->set_name(use.name);
    out->set_on(use.in_use);
    out->set_why(use.why);
    out->set_fallback(use.fallback);
  }
  AddLimits(device.limits(), &info);
  return info;
}

void AddDefaults(SystemInfo* out) {
  const ChannelOptions channel;
  const ServerOptions server;
  const auto add = [out](const char* name, uint64_t value, const char* meaning) {
    AddLimit(out, &SystemInfo::add_defaults, name, value, meaning);
  };
  const auto ns = [](absl::Duration d) {
    return static_cast<uint64_t>(absl::ToInt64Nanoseconds(d));
  };
  add("max_message_bytes", channel.limits.max_message_bytes,
      "largest message that is sent as it is, with its header");
  add("max_large_message_bytes", channel.limits.max_large_message_bytes,
      "largest message at all; 0: the above");
  add("large_memory_bytes", channel.limits.large_memory_bytes,
      "for messages that are read from their sender's memory, each way");
  add("credits_per_peer", channel.limits.credits_per_peer,
      "messages that one peer may have in flight to this side");
  add("receive_buffers", channel.limits.receive_buffers, "shared by all peers");
  add("dead_peer_timeout_ns", ns(channel.limits.dead_peer_timeout),
      "time after which a silent peer is disconnected");
  add("keepalive_ns", ns(channel.limits.keepalive),
      "a peer that does not answer for this time is disconnected; 0: no probes");
  add("lane_memory_bytes", channel.limits.lane_memory_bytes,
      "that busy peers may write into, so that their payload is watched; 0: none");
  add("lane_slots", channel.limits.lane_slots, "of one lane at most");
  add("lane_slot_bytes", channel.limits.lane_slot_bytes, "of one message; longer ones are sent");
  add("path_mtu", channel.limits.path_mtu, "bytes in a packet; the same on all sides");
  add("lane_after_messages", channel.limits.lane_after_messages,
      "of one peer, while this side does not sleep, make a lane worth its while");
  add("connect_timeout_ns", ns(channel.connect_timeout), "of each attempt to connect");
  add("max_outstanding_calls", channel.max_outstanding_calls, "of one channel");
  add("max_reconnect_attempts", channel.max_reconnect_attempts, "in a row, then at the next call");
  add("spin_ns", ns(channel.spin), "polling before sleeping");
  add("max_waiting_replies_per_peer", server.max_waiting_replies_per_peer,
      "then it is disconnected");
}

}  // namespace

SystemInfo CollectSystemInfo(const device::Tables& tables) {
  SystemInfo system;
  system.set_schema_version(kSchemaVersion);
  *system.mutable_build() = ThisBuild();
  for (const verbs::VerbsApi* table : tables) {
    for (const device::DeviceEntry& entry : device::ListDevices({table})) {
      *system.add_devices() = Collect(entry, table);
    }
  }
  auto chosen = device::Device::Open("auto", tables);
  system.set_auto_choice(chosen.ok() ? (*chosen)->name() : "");
  system.set_auto_reason(chosen.ok() ? (*chosen)->choice()
                                     : std::string(chosen.status().message()));
  AddDefaults(&system);
  return system;
}

}  // namespace sluice::tools
