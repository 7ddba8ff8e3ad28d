// SPDX-License-Identifier: Apache-2.0
//
// Nic: the device that the probes examine, opened through the verbs table only, with its own attributes.
//
// Ownership     The creator. Objects made from it are destroyed first.
// Threads       Any: constant after it was opened.
#ifndef SLUICE_TOOLS_HARDWARE_NIC_H_
#define SLUICE_TOOLS_HARDWARE_NIC_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/verbs/handles.h"

namespace sluice::hardware {

struct Gid {
  int index = 0;
  ibv_gid gid{};
  bool roce_v1 = false;
};

class Nic {
 public:
  // `spec`: a device's name, with a port if wanted ("mlx5_0:2"), or "auto": the first active port of an mlx5 device of the
  // system. NOT_FOUND lists what there is. FAILED_PRECONDITION: the port is not active.
  static absl::StatusOr<std::unique_ptr<Nic>> Open(
      const std::vector<const verbs::VerbsApi*>& tables, const std::string& spec);

  bool has_dc() const { return no_dc.empty(); }
  bool has_streams() const { return streams.max_log_num_concurent > 0; }
  bool infiniband() const { return port.link_layer == IBV_LINK_LAYER_INFINIBAND; }
  // Whether RDMA_CM finds this port by `host`, an IPv4 address or a name. INVALID_ARGUMENT lists the port's addresses. OK where that
  // can't be told: an InfiniBand port (IPoIB), a port without IPv4 addresses, a name that has none.
  absl::Status HasAddress(const std::string& host) const;
  // With the path MTU that every fabric bears, unless the port has less.
  verbs::PathOptions Path() const;

  const verbs::VerbsApi* api = nullptr;
  std::string name;
  std::string spec;  // its name, with the port if it was given or is not 1
  verbs::Context context;
  verbs::Pd pd;
  uint8_t port_number = 1;
  ibv_port_attr port{};
  ibv_device_attr attributes{};
  mlx5dv_context mlx5{};  // asked for streams and signatures; comp_mask says which were answered
  mlx5dv_dci_streams_caps streams{};
  std::vector<Gid> gids;  // in the order of the table
  Gid own;                // the one that the queues have
  std::string no_dc;      // why the device has no DC; empty: it has
};

// Of a GID that is an IPv4 address; else empty.
std::string Ipv4Of(const ibv_gid& gid);
uint32_t MtuBytes(ibv_mtu mtu);
ibv_mtu MtuOf(uint32_t bytes);  // the smallest that is not below
std::string ErrnoName(int error_number);
std::string StatusName(ibv_wc_status status);  // "REM_ACCESS_ERR"
std::string StateName(ibv_qp_state state);     // "RTS"

}  // namespace sluice::hardware

#endif  // SLUICE_TOOLS_HARDWARE_NIC_H_
