// SPDX-License-Identifier: Apache-2.0
#include "tools/hardware/nic.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "transport/base/error.h"
#include "transport/device/gids.h"

namespace sluice::hardware {
namespace {

// Why no DCI and DCT can be made; empty: they can.
std::string WhyNoDc(const Nic& nic) {
  auto cq = verbs::CreateCq(*nic.api, nic.context.get(), 16, nullptr);
  if (!cq.ok()) return std::string(cq.status().message());
  auto dci =
      verbs::CreateDci(*nic.api, nic.context.get(), nic.pd.get(), cq->get(), {.send_depth = 8});
  if (!dci.ok()) return std::string(dci.status().message());
  const absl::Status status = verbs::ActivateDci(*nic.api, dci->get(), nic.Path());
  return std::string(status.message());
}

absl::Status AskPort(Nic* nic) {
  const verbs::VerbsApi& api = *nic->api;
  int error = api.query_device(nic->context.get(), &nic->attributes);
  if (error == 0) error = api.query_port(nic->context.get(), nic->port_number, &nic->port);
  if (error == 0) return absl::OkStatus();
  return base::ErrnoError(error, absl::StrCat("asking ", nic->name, " what it has"),
                          {.layer = "hardware", .operation = "ibv_query_device"});
}

// Port `wanted`; 0: port 1, or of any device the first active one, if there is one.
absl::Status ChoosePort(Nic* nic, uint32_t wanted, bool any) {
  nic->port_number = static_cast<uint8_t>(wanted != 0 ? wanted : 1);
  absl::Status status = AskPort(nic);
  const int last = any && wanted == 0 ? nic->attributes.phys_port_cnt : 1;
  for (int port = 2; status.ok() && nic->port.state != IBV_PORT_ACTIVE && port <= last; ++port) {
    nic->port_number = static_cast<uint8_t>(port);
    status = AskPort(nic);
  }
  return status;
}

absl::Status Ask(Nic* nic) {
  const verbs::VerbsApi& api = *nic->api;
  nic->mlx5.comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS | MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD;
  if (api.dv_query_device(nic->context.get(), &nic->mlx5) != 0) nic->mlx5.comp_mask = 0;
  if ((nic->mlx5.comp_mask & MLX5DV_CONTEXT_MASK_DCI_STREAMS) != 0) {
    nic->streams = nic->mlx5.dci_streams_caps;
  }
  for (int i = 0; i < std::min(nic->port.gid_tbl_len, 255); ++i) {
    const device::GidEntry entry = device::ReadGid(api, nic->context.get(), nic->port_number, i);
    if (entry.index >= 0) nic->gids.push_back({i, entry.gid, entry.roce_v1});
  }
  const device::GidEntry own =
      device::PickGid(api, nic->context.get(), nic->port_number, nic->port.gid_tbl_len);
  if (own.index >= 0) nic->own = {own.index, own.gid, own.roce_v1};
  nic->no_dc = WhyNoDc(*nic);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Nic>> Nic::Open(const std::vector<const verbs::VerbsApi*>& tables,
                                               const std::string& spec) {
  std::string name = spec;
  uint32_t port = 0;
  if (const size_t colon = spec.rfind(':');
      colon != std::string::npos && absl::SimpleAtoi(spec.substr(colon + 1), &port)) {
    name = spec.substr(0, colon);
  }
  const bool any = name == "auto";
  std::vector<std::string> seen;
  for (const verbs::VerbsApi* api : tables) {
    int count = 0;
    ibv_device** list = api->get_device_list(&count);
    if (list == nullptr) continue;
    const auto free_list = [api](ibv_device** devices) { api->free_device_list(devices); };
    const std::unique_ptr<ibv_device*, decltype(free_list)> owned(list, free_list);
    for (int i = 0; i < count; ++i) {
      const std::string listed = api->get_device_name(list[i]);
      seen.push_back(listed);
      // A program under softdc may have softdc1 as well.
      const bool hardware = api->dv_is_supported(list[i]) && !listed.starts_with("softdc");
      if (any ? !hardware : listed != name) continue;
      auto nic = std::make_unique<Nic>();
      nic->api = api;
      nic->name = listed;
      auto context = verbs::OpenContext(*api, list[i]);
      if (!context.ok()) return base::Prefix(context.status(), "opening " + nic->name);
      nic->context = *std::move(context);
      if (absl::Status status = ChoosePort(nic.get(), port, any); !status.ok()) return status;
      if (nic->port.state != IBV_PORT_ACTIVE) {
        absl::StrAppend(&seen.back(), " (port ", static_cast<int>(nic->port_number),
                        " is not active)");
        if (any) continue;
        return base::Error(
            absl::StatusCode::kFailedPrecondition,
            absl::StrCat("port ", static_cast<int>(nic->port_number), " of ", nic->name,
                         " is not active"),
            {.layer = "hardware",
             .operation = "open",
             .cause =
                 "no cable, a switch port that is down, or InfiniBand without a subnet manager",
             .remedy = "bring the port up, or name another with --device NAME:PORT"});
      }
      auto pd = verbs::AllocPd(*api, nic->context.get());
      if (!pd.ok()) return pd.status();
      nic->pd = *std::move(pd);
      if (port != 0 || nic->port_number != 1) {
        nic->spec = absl::StrCat(nic->name, ":", static_cast<int>(nic->port_number));
      } else {
        nic->spec = nic->name;
      }
      if (absl::Status status = Ask(nic.get()); !status.ok()) return status;
      return nic;
    }
  }
  return base::Error(
      absl::StatusCode::kNotFound,
      any ? "no mlx5 device with an active port on this host" : "no device " + name,
      {.layer = "hardware",
       .operation = "open",
       .cause = "there are: " + (seen.empty() ? std::string("none") : absl::StrJoin(seen, ", ")),
       .remedy = "name one with --device; softdc0 is the software device"});
}

absl::Status Nic::HasAddress(const std::string& host) const {
  std::vector<std::string> addresses;
  for (const Gid& entry : gids) {
    std::string address = Ipv4Of(entry.gid);
    if (address.empty() || absl::c_linear_search(addresses, address)) continue;
    addresses.push_back(std::move(address));
  }
  addrinfo hints{};
  hints.ai_family = AF_INET;
  addrinfo* found = nullptr;
  if (infiniband() || addresses.empty() ||
      getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) {
    return absl::OkStatus();
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    char text[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(one->ai_addr)->sin_addr, text,
              sizeof(text));
    if (absl::c_linear_search(addresses, text)) return absl::OkStatus();
  }
  return base::Error(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("--listen: ", host, " is no address of ", name, ", port ",
                   static_cast<int>(port_number)),
      {.layer = "hardware",
       .operation = "listen",
       .cause = absl::StrCat("the port has ", absl::StrJoin(addresses, ", "),
                             "; the other side would reach another device by this one"),
       .remedy = "listen on an address of the port, or name the port that has it with --device"});
}

verbs::PathOptions Nic::Path() const {
  verbs::PathOptions path;
  path.port = port_number;
  path.sgid_index = static_cast<uint8_t>(own.index);
  path.mtu = std::min(port.active_mtu, IBV_MTU_1024);
  path.min_rnr_timer = 1;  // 10 us
  path.rnr_retry = 7;
  path.timeout = 12;  // 17 ms
  path.retry_count = 1;
  return path;
}

std::string Ipv4Of(const ibv_gid& gid) {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::memcmp(gid.raw, kMapped, sizeof(kMapped)) != 0) return "";
  return absl::StrCat(gid.raw[12], ".", gid.raw[13], ".", gid.raw[14], ".", gid.raw[15]);
}

uint32_t MtuBytes(ibv_mtu mtu) { return 128u << static_cast<uint32_t>(mtu); }

ibv_mtu MtuOf(uint32_t bytes) {
  ibv_mtu mtu = IBV_MTU_256;
  while (mtu < IBV_MTU_4096 && MtuBytes(mtu) < bytes) mtu = static_cast<ibv_mtu>(mtu + 1);
  return mtu;
}

std::string ErrnoName(int error_number) {
  if (error_number < 0) error_number = -error_number;
  const char* name = strerrorname_np(error_number);
  return name != nullptr ? name : absl::StrCat("errno ", error_number);
}

std::string StatusName(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return "SUCCESS";
    case IBV_WC_LOC_LEN_ERR:
      return "LOC_LEN_ERR";
    case IBV_WC_LOC_QP_OP_ERR:
      return "LOC_QP_OP_ERR";
    case IBV_WC_LOC_PROT_ERR:
      return "LOC_PROT_ERR";
    case IBV_WC_WR_FLUSH_ERR:
      return "WR_FLUSH_ERR";
    case IBV_WC_BAD_RESP_ERR:
      return "BAD_RESP_ERR";
    case IBV_WC_LOC_ACCESS_ERR:
      return "LOC_ACCESS_ERR";
    case IBV_WC_REM_INV_REQ_ERR:
      return "REM_INV_REQ_ERR";
    case IBV_WC_REM_ACCESS_ERR:
      return "REM_ACCESS_ERR";
    case IBV_WC_REM_OP_ERR:
      return "REM_OP_ERR";
    case IBV_WC_RETRY_EXC_ERR:
      return "RETRY_EXC_ERR";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "RNR_RETRY_EXC_ERR";
    default:
      return "another status";
  }
}

std::string StateName(ibv_qp_state state) {
  switch (state) {
    case IBV_QPS_RESET:
      return "RESET";
    case IBV_QPS_INIT:
      return "INIT";
    case IBV_QPS_RTR:
      return "RTR";
    case IBV_QPS_RTS:
      return "RTS";
    case IBV_QPS_SQD:
      return "SQD";
    case IBV_QPS_SQE:
      return "SQE";
    case IBV_QPS_ERR:
      return "ERR";
    default:
      return "another state";
  }
}

}  // namespace sluice::hardware
