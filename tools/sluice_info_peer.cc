// SPDX-License-Identifier: Apache-2.0
#include "tools/sluice_info_peer.h"

#include <poll.h>

#include <optional>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "transport/base/clock.h"
#include "transport/base/random.h"
#include "transport/endpoint/create.h"
#include "transport/peer/secrets.h"
#include "transport/poller/commands.h"

namespace sluice::tools {
namespace {

// Waits for the one peer.
struct Watcher final : endpoint::Handler {
  std::optional<endpoint::PeerInfo> up;
  std::optional<absl::Status> down;

  void OnPeerUp(endpoint::PeerId, const endpoint::PeerInfo& info) override { up = info; }
  void OnPeerDown(endpoint::PeerId, const absl::Status& why) override { down = why; }
  bool OnMessage(endpoint::PeerId, std::span<const std::byte>) override { return true; }
  void OnWritable(endpoint::PeerId) override {}
};

void FillEce(const endpoint::Ece& ece, EceInfo* info) {
  info->set_vendor_id(ece.vendor_id);
  info->set_options(ece.options);
}

void Sleep(endpoint::Endpoint& endpoint) {
  if (!endpoint.PrepareToSleep()) return;
  pollfd readable = {.fd = endpoint.fd(), .events = POLLIN, .revents = 0};
  const int64_t limit_ns = endpoint.SleepLimitNs();
  poll(&readable, 1, limit_ns < 0 ? -1 : static_cast<int>(limit_ns / 1'000'000) + 1);
}

std::string AddressHandleText(const endpoint::PeerReport& report) {
  if (!report.mapped) return "not mapped: " + report.why_unmapped;
  return absl::StrFormat("mapped to QP 0x%06x, a hint to the device%s", report.template_qp_number,
                         report.first_on_handle ? ", first on this handle" : "");
}

void AddCounts(const endpoint::ConnectionCounts& counts, ConnectionInfo* info) {
  const auto add = [info](const char* name, uint64_t value, const char* meaning) {
    LimitInfo* count = info->add_counts();
    count->set_name(name);
    count->set_value(value);
    count->set_meaning(meaning);
  };
  add("numbers_live", counts.numbers_live, "QP numbers of connections and attempts");
  add("numbers_quarantined", counts.numbers_quarantined,
      "QP numbers of closed connections, until no side can be in timewait");
  add("numbers_exhausted", counts.numbers_exhausted, "attempts for which there was none");
  add("stale_rejects", counts.stale_rejects, "numbers that the other host still knew");
  add("retries", counts.retries, "of connects");
  add("throttled", counts.throttled, "tries that waited for their turn");
  add("handles_in_use", counts.handles_in_use, "address handles");
  add("handles_idle", counts.handles_idle, "kept in case their peer comes back");
  add("handles_made", counts.handles_made, "one for each destination and template");
  add("handles_reused", counts.handles_reused, "by one more peer, or one that came back");
  add("handles_evicted", counts.handles_evicted, "idle ones");
  add("handle_failures", counts.handle_failures, "could not be made");
  add("map_failures", counts.map_failures, "could not be mapped, and are used as they are");
}

std::string EceText(const EceInfo& ece) {
  if (ece.vendor_id() == 0) return "nothing";
  return absl::StrFormat("vendor 0x%04x, options 0x%x", ece.vendor_id(), ece.options());
}

// It receives from all peers, so what one of them agreed on is not there.
std::string ReceivingText(const EceInfo& ece) {
  if (ece.vendor_id() == 0) return "the device has no ECE";
  if (ece.options() == 0) return "ECE as the device presets it, the same for all peers";
  return EceText(ece) + ", the same for all peers";
}

}  // namespace

absl::StatusOr<ConnectionInfo> DescribeConnection(const device::Tables& tables,
                                                  const std::string& device_spec,
                                                  const std::string& host, uint16_t port,
                                                  absl::Duration timeout,
                                                  const std::string& secret_file,
                                                  const ChannelOptions& channel) {
  auto device = device::Device::Open(device_spec, tables);
  if (!device.ok()) return device.status();
  if (absl::Status status = (*device)->UsePath(channel.path); !status.ok()) return status;
  base::RealClock clock;
  base::SystemRandom random;
  Watcher watcher;
  poller::ThreadCommands commands;
  // One peer, no messages: the smallest endpoint there is.
  endpoint::Options options;
  options.srq_size = 64;
  options.send_buffers = 64;
  options.max_peers = 2;
  options.dci_count = 1;
  options.dci_depth = 64;
  options.path_mtu_bytes = channel.limits.path_mtu;
  if (!secret_file.empty()) options.secrets = peer::SecretsFromFile(secret_file);
  auto endpoint = endpoint::CreateEndpoint(options, **device, clock, random, commands, &watcher);
  if (!endpoint.ok()) return endpoint.status();

  const int64_t start_ns = clock.NowNs();
  auto peer = (*endpoint)->Connect(host, port, start_ns + absl::ToInt64Nanoseconds(timeout));
  if (!peer.ok()) return peer.status();
  while (!watcher.up && !watcher.down) {
    if ((*endpoint)->Poll() == 0) Sleep(**endpoint);
  }
  if (watcher.down) return *watcher.down;
  const int64_t connect_ns = clock.NowNs() - start_ns;
  auto report = (*endpoint)->Report(*peer);
  // The command that made it may still hold the number.
  while (report.ok() && report->qp_number == 0 && !watcher.down) {
    if ((*endpoint)->Poll() == 0) Sleep(**endpoint);
    report = (*endpoint)->Report(*peer);
  }
  if (!report.ok()) return report.status();

  ConnectionInfo info;
  info.set_address(report->address);
  info.set_device((*device)->name());
  info.set_qp_number(report->qp_number);
  info.set_quarantined_numbers(report->quarantined_numbers);
  info.set_own_epoch(absl::StrFormat("%016x", report->own_epoch));
  info.set_peer_epoch(absl::StrFormat("%016x", report->peer_epoch));
  FillEce(report->offered, info.mutable_offered());
  FillEce(report->received, info.mutable_received());
  FillEce(report->accepted, info.mutable_accepted());
  info.set_profile(report->why_default.empty()
                       ? absl::StrFormat("template DCI 0x%06x", report->template_qp_number)
                       : "the device's default: " + report->why_default);
  info.set_address_handle(AddressHandleText(*report));
  info.set_mapped(report->mapped);
  info.set_first_on_handle(report->first_on_handle);
  info.set_why_unmapped(report->why_unmapped);
  FillEce(report->receiving, info.mutable_receiving());
  AddCounts((*endpoint)->Connections(), &info);
  info.set_max_message_bytes(watcher.up->max_message_bytes);
  info.set_authenticated(report->authenticated);
  info.set_mtu_bytes(report->mtu_bytes);
  info.set_reads_in_flight(report->reads_in_flight);
  info.set_service_level(report->service_level);
  info.set_gid_index((*device)->path().sgid_index);
  if ((*device)->path().traffic_class) info.set_traffic_class(*(*device)->path().traffic_class);
  info.set_pkey((*device)->pkey());
  info.set_connect_us(static_cast<uint64_t>(connect_ns / 1'000));
  (*endpoint)->Close();
  return info;
}

std::string ConnectionText(const ConnectionInfo& info) {
  std::string text;
  const auto line = [&text](const char* name, const std::string& value) {
    absl::StrAppendFormat(&text, "  %-22s %s\n", name, value);
  };
  absl::StrAppendFormat(&text, "connection to %s over %s, up after %.1f ms\n", info.address(),
                        info.device(), static_cast<double>(info.connect_us()) / 1e3);
  line("QP number", absl::StrFormat("0x%06x (%u others of this process in quarantine)",
                                    info.qp_number(), info.quarantined_numbers()));
  line("authentication", info.authenticated() ? "both sides have proved the secret"
                                              : "none: any host that reaches the port may connect");
  line("own epoch", info.own_epoch());
  line("peer's epoch", info.peer_epoch());
  line("ECE offered", EceText(info.offered()));
  line("ECE of the peer", EceText(info.received()));
  line("ECE accepted", EceText(info.accepted()));
  line("congestion control", info.profile());
  line("shared DCT", ReceivingText(info.receiving()));
  line("address handle", info.address_handle());
  line("largest message", absl::StrFormat("%u bytes", info.max_message_bytes()));
  line("agreed path",
       absl::StrFormat("MTU %u bytes, %u reads in flight, service level %u", info.mtu_bytes(),
                       info.reads_in_flight(), info.service_level()));
  line("own path",
       absl::StrCat("GID index ", info.gid_index(), ", traffic class ",
                    info.has_traffic_class() ? absl::StrCat(info.traffic_class()) : "of RDMA_CM",
                    ", partition key ",
                    info.pkey() != 0 ? absl::StrFormat("0x%04x", info.pkey()) : "at index 0"));
  absl::StrAppend(&text, "QP numbers and address handles of this process\n");
  for (const LimitInfo& count : info.counts()) {
    absl::StrAppendFormat(&text, "  %-22s %-10u %s\n", count.name(), count.value(),
                          count.meaning());
  }
  return text;
}

}  // namespace sluice::tools
