// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/device.h"

#include <arpa/inet.h>
#include <endian.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/base/call_once.h"
#include "absl/strings/str_cat.h"
#include "transport/softdc/loop/gids.h"
#include "transport/softdc/loop/names.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/dci.h"
#include "transport/softdc/shm/srq_area.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace {

constexpr char kFirmwareVersion[] = "99.1.0";
constexpr int kMaxPds = 1 << 16;
constexpr int kMaxAhs = 1 << 20;
constexpr int kMaxReadAtomic = 16;
constexpr uint32_t kMaxMessageBytes = 1u << 30;
constexpr uint8_t kSpeedHdr = 64;  // IBTA encoding
constexpr uint8_t kWidth4x = 2;

// FNV-1a: the same everywhere, no secret.
uint64_t Hash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

ibv_device* Device() {
  static ibv_device* const device = [] {
    auto* d = new ibv_device{};
    d->node_type = IBV_NODE_CA;
    d->transport_type = IBV_TRANSPORT_IB;
    std::snprintf(d->name, sizeof(d->name), "%s", kDeviceName);
    std::snprintf(d->dev_name, sizeof(d->dev_name), "usoftdc0");
    return d;
  }();
  return device;
}

uint64_t NodeGuid() {
  const uint64_t hash = Hash(absl::StrCat("softdc/", geteuid(), "/", FabricDomain()));
  // Locally administered, so that it cannot be that of a real adapter.
  return htobe64((hash & ~(uint64_t{3} << 56)) | uint64_t{2} << 56);
}

int QueryDevice(ibv_context*, ibv_device_attr* attr) {
  *attr = {};
  std::snprintf(attr->fw_ver, sizeof(attr->fw_ver), "%s", kFirmwareVersion);
  attr->node_guid = NodeGuid();
  attr->sys_image_guid = attr->node_guid;
  attr->max_mr_size = UINT64_MAX;
  attr->page_size_cap = 4096;
  attr->vendor_id = kVendorId;
  attr->vendor_part_id = kVendorPartId;
  attr->max_qp = 1 << 18;
  attr->max_qp_wr = kMaxSendWr;
  attr->max_sge = kMaxSendSge;
  attr->max_sge_rd = kMaxSendSge;
  attr->max_cq = kMaxCqs - 1;
  attr->max_cqe = kMaxCqe;
  attr->max_mr = shm::kMaxMemoryRegions - 1;
  attr->max_pd = kMaxPds;
  attr->max_qp_rd_atom = kMaxReadAtomic;
  attr->max_res_rd_atom = attr->max_qp * kMaxReadAtomic;
  attr->max_qp_init_rd_atom = kMaxReadAtomic;
  attr->atomic_cap = IBV_ATOMIC_NONE;
  attr->max_ah = kMaxAhs;
  attr->max_srq = kMaxSrqs - 1;
  attr->max_srq_wr = static_cast<int>(shm::kMaxSrqCapacity);
  attr->max_srq_sge = kMaxSendSge;
  attr->max_pkeys = 1;
  attr->local_ca_ack_delay = 16;
  attr->phys_port_cnt = 1;
  return 0;
}

int QueryPort(ibv_context*, uint8_t port_num, ibv_port_attr* attr) {
  if (port_num != 1) return EINVAL;
  *attr = {};
  attr->state = IBV_PORT_ACTIVE;
  attr->max_mtu = IBV_MTU_4096;
  attr->active_mtu = IBV_MTU_4096;
  attr->gid_tbl_len = static_cast<int>(kMaxGids);
  attr->port_cap_flags = IBV_PORT_CM_SUP;
  attr->max_msg_sz = kMaxMessageBytes;
  attr->pkey_tbl_len = 1;
  attr->active_width = kWidth4x;
  attr->active_speed = kSpeedHdr;
  attr->phys_state = 5;  // link up
  attr->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}

int QueryDv(ibv_context*, mlx5dv_context* attr) {
  const uint64_t asked = attr->comp_mask;
  attr->version = 0;
  attr->flags = 0;
  attr->comp_mask = 0;
  if ((asked & MLX5DV_CONTEXT_MASK_DCI_STREAMS) != 0) {
    attr->dci_streams_caps = {.max_log_num_concurent = kMaxLogStreams,
                              .max_log_num_errored = kMaxLogErroredStreams};
    attr->comp_mask |= MLX5DV_CONTEXT_MASK_DCI_STREAMS;
  }
  return 0;
}

ibv_context* CmContext() {
  static ibv_context* const context = OpenDevice(Device());
  return context;
}

ibv_pd* CmPd() {
  static ibv_pd* const pd = CmContext() == nullptr ? nullptr : AllocPd(CmContext());
  return pd;
}

}  // namespace sluice::softdc
