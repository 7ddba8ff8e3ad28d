// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/device_attributes.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "transport/softdc/device.h"
#include "transport/softdc/loop/gids.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/mtu.h"
#include "transport/softdc/model/pkey.h"
#include "transport/softdc/model/signature_attr.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/shm/srq_area.h"

namespace sluice::softdc {
namespace {

constexpr char kFirmwareVersion[] = "99.1.0";
// Limits as a ConnectX-7 reports them, unless a table of softdc is smaller.
constexpr int kMaxPds = 1 << 23;
constexpr int kMaxAhs = INT32_MAX;
constexpr uint16_t kMaxPkeys = 128;
constexpr uint64_t kPageSizes = ~uint64_t{4095};
constexpr int kMaxQps = 1 << 18;
constexpr uint8_t kPort = 1;
constexpr uint8_t kSpeedHdr = 64;  // IBTA encoding
constexpr uint8_t kWidth4x = 2;
constexpr uint8_t kPhysicalDisabled = 3;
constexpr uint8_t kPhysicalLinkUp = 5;
constexpr uint16_t kSubnetManagerLid = 1;
// The clock behind time stamps counts nanoseconds.
constexpr uint64_t kClockKhz = 1'000'000;

const Dials& DialsOf(ibv_context* context) { return Context::From(context)->dials(); }

int64_t NowNs(ibv_context* context) { return Context::From(context)->device().fabric().NowNs(); }

// Copies as much as the caller's structure can hold.
template <typename T>
void CopyOut(const T& value, T* out, size_t out_bytes) {
  std::memcpy(static_cast<void*>(out), &value, std::min(out_bytes, sizeof(T)));
}

}  // namespace

int QueryDevice(ibv_context* context, ibv_device_attr* attr) {
  if (attr == nullptr) return EINVAL;
  const Dials& dials = DialsOf(context);
  const Dials::Limits& limits = dials.limits;
  const auto rd_atomic = static_cast<int>(limits.max_rd_atomic);
  *attr = {};
  std::snprintf(attr->fw_ver, sizeof(attr->fw_ver), "%s", kFirmwareVersion);
  attr->node_guid = Context::From(context)->device().node_guid();
  attr->sys_image_guid = attr->node_guid;
  attr->max_mr_size = UINT64_MAX;
  attr->page_size_cap = kPageSizes;
  attr->vendor_id = kVendorId;
  attr->vendor_part_id = kVendorPartId;
  attr->max_qp = kMaxQps;
  attr->max_qp_wr = static_cast<int>(std::min(limits.max_send_wr, limits.max_recv_wr));
  attr->device_cap_flags = IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID |
                           IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_MEM_WINDOW |
                           IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  attr->max_sge = static_cast<int>(limits.max_sge);
  attr->max_sge_rd = attr->max_sge;
  attr->max_cq = kMaxCqs - 1;
  attr->max_cqe = static_cast<int>(limits.max_cqe);
  attr->max_mr = shm::kMaxMemoryRegions - 1;
  attr->max_pd = kMaxPds;
  attr->max_qp_rd_atom = rd_atomic;
  attr->max_res_rd_atom = attr->max_qp * rd_atomic;
  attr->max_qp_init_rd_atom = rd_atomic;
  attr->atomic_cap = dials.features.atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
  attr->max_mw = attr->max_mr;  // one table
  attr->max_ah = kMaxAhs;
  attr->max_srq = static_cast<int>(kMaxSrqs) - 1;
  attr->max_srq_wr = static_cast<int>(limits.max_srq_wr);
  attr->max_srq_sge = static_cast<int>(kMaxSrqSges);
  attr->max_pkeys = kMaxPkeys;
  attr->local_ca_ack_delay = 16;
  attr->phys_port_cnt = kPort;
  return 0;
}

int QueryDeviceEx(ibv_context* context, const ibv_query_device_ex_input* input,
                  ibv_device_attr_ex* attr, size_t attr_bytes) {
  if (attr == nullptr || (input != nullptr && input->comp_mask != 0) ||
      attr_bytes < sizeof(ibv_device_attr)) {
    return EINVAL;
  }
  // All other fields stay 0: no raw packets, no tag matching, no device memory, no CQ moderation.
  ibv_device_attr_ex all{};
  QueryDevice(context, &all.orig_attr);
  // On-demand paging needs peers that copy through the kernel; a simulated device has none. Not supported: on-demand paging of whole
  // address spaces.
  if (Context::From(context)->device().fabric().SharesMemory()) {
    constexpr uint32_t kConnected = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
                                    IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
                                    IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;
    all.odp_caps.general_caps = IBV_ODP_SUPPORT;
    all.odp_caps.per_transport_caps.rc_odp_caps = kConnected;
    all.odp_caps.per_transport_caps.ud_odp_caps = IBV_ODP_SUPPORT_SEND;
  }
  all.completion_timestamp_mask = UINT64_MAX;
  all.hca_core_clock = kClockKhz;
  all.device_cap_flags_ex = all.orig_attr.device_cap_flags;
  all.phys_port_cnt_ex = all.orig_attr.phys_port_cnt;
  CopyOut(all, attr, attr_bytes);
  return 0;
}

int QueryPort(ibv_context* context, uint8_t port_num, ibv_port_attr* attr) {
  if (port_num != kPort || attr == nullptr) return EINVAL;
  const Dials& dials = DialsOf(context);
  const bool infiniband = dials.port.link_layer == LinkLayer::kInfiniband;
  const bool up = Context::From(context)->port().LinkIsUp();
  *attr = {};
  attr->state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr->max_mtu = IBV_MTU_4096;
  attr->active_mtu = MtuOf(dials.port.active_mtu);
  attr->gid_tbl_len = static_cast<int>(kMaxGids);
  attr->port_cap_flags = IBV_PORT_CM_SUP;
  attr->max_msg_sz = dials.limits.max_message_bytes;
  attr->pkey_tbl_len = PkeyCount(dials);
  attr->active_width = kWidth4x;
  attr->active_speed = kSpeedHdr;
  attr->phys_state = up ? kPhysicalLinkUp : kPhysicalDisabled;
  attr->max_vl_num = 1;
  if (infiniband) {
    attr->link_layer = IBV_LINK_LAYER_INFINIBAND;
    attr->lid = dials.port.lid;
    attr->sm_lid = kSubnetManagerLid;
  } else {
    attr->link_layer = IBV_LINK_LAYER_ETHERNET;
    attr->flags = IBV_QPF_GRH_REQUIRED;
  }
  return 0;
}

int QueryPortSized(ibv_context* context, uint8_t port_num, ibv_port_attr* attr, size_t attr_bytes) {
  ibv_port_attr all;
  const int error = QueryPort(context, port_num, &all);
  if (error == 0) CopyOut(all, attr, attr_bytes);
  return error;
}

int QueryRtValues(ibv_context* context, ibv_values_ex* values) {
  if ((values->comp_mask & ~uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) != 0) return EINVAL;
  if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0) {
    // As on mlx5: cycles, in one field.
    values->raw_clock = {.tv_sec = 0, .tv_nsec = NowNs(context)};
  }
  return 0;
}

int QueryDv(ibv_context* context, mlx5dv_context* attr) {
  if (context == nullptr || attr == nullptr) return EINVAL;
  const uint64_t requested = attr->comp_mask;
  const Dials::Streams& streams = DialsOf(context).streams;
  attr->version = 0;
  attr->flags = 0;
  attr->comp_mask = 0;
  if ((requested & MLX5DV_CONTEXT_MASK_DCI_STREAMS) != 0 && streams.enabled) {
    attr->dci_streams_caps = {.max_log_num_concurent = streams.max_log_concurrent,
                              .max_log_num_errored = streams.max_log_errored};
    attr->comp_mask |= MLX5DV_CONTEXT_MASK_DCI_STREAMS;
  }
  if ((requested & MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD) != 0) {
    attr->sig_caps = DialsOf(context).features.signature ? SignatureCaps() : mlx5dv_sig_caps{};
    attr->comp_mask |= MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD;
  }
  return 0;
}

int DvQueryPort(ibv_context* context, uint32_t port_num, mlx5dv_port* info, size_t info_bytes) {
  if (context == nullptr || info == nullptr || port_num != kPort) return EINVAL;
  std::memset(static_cast<void*>(info), 0, info_bytes);
  return 0;
}

int DvGetClockInfo(ibv_context* context, mlx5dv_clock_info* info) {
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  *info = {.nsec = static_cast<uint64_t>(wall.tv_sec) * 1'000'000'000 +
                   static_cast<uint64_t>(wall.tv_nsec),
           .last_cycles = static_cast<uint64_t>(NowNs(context)),
           .frac = 0,
           .mult = 1,
           .shift = 0,
           .mask = UINT64_MAX};
  return 0;
}

}  // namespace sluice::softdc
