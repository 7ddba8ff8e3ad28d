// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/verbs.h"

#include "transport/softdc/cm/cm.h"
#include "transport/softdc/device.h"
#include "transport/softdc/device_attributes.h"
#include "transport/softdc/model/mtu.h"
#include "transport/softdc/model/soft_device.h"
#include "transport/softdc/verbs_mkey.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace {

cm::DeviceHooks HooksOf(const Dials& dials, const verbs::VerbsApi& table) {
  cm::DeviceHooks hooks;
  hooks.context = &CmContext;
  hooks.pd = &CmPd;
  hooks.node_guid = NodeGuid();
  hooks.verbs = &table;
  hooks.roce_v1 = dials.port.roce_v1;
  hooks.path_mtu = MtuOf(dials.port.active_mtu);
  if (dials.port.second_device) {
    hooks.second_context = &SecondCmContext;
    hooks.second_pd = &SecondCmPd;
  }
  return hooks;
}

}  // namespace

// Every member is named. A function that is added to verbs_functions.inc therefore does not compile until it is here
// (-Werror=missing-field-initializers).
const verbs::VerbsApi& Verbs() {
  static constexpr verbs::VerbsApi kTable = {
      .name = "softdc",
      .get_device_list = &GetDeviceList,
      .free_device_list = &FreeDeviceList,
      .get_device_name = &GetDeviceName,
      .get_device_guid = &GetDeviceGuid,
      .open_device = &OpenDevice,
      .close_device = &CloseDevice,
      .query_device = &QueryDevice,
      .query_gid = &QueryGid,
      .query_pkey = &QueryPkey,
      .get_async_event = &GetAsyncEvent,
      .ack_async_event = &AckAsyncEvent,
      .alloc_pd = &AllocPd,
      .dealloc_pd = &DeallocPd,
      .rereg_mr = &ReregMr,
      .dereg_mr = &DeregMr,
      .create_comp_channel = &CreateCompChannel,
      .destroy_comp_channel = &DestroyCompChannel,
      .create_cq = &CreateCq,
      .resize_cq = &ResizeCq,
      .destroy_cq = &DestroyCq,
      .get_cq_event = &GetCqEvent,
      .ack_cq_events = &AckCqEvents,
      .create_srq = &CreateSrq,
      .modify_srq = &ModifySrq,
      .query_srq = &QuerySrq,
      .destroy_srq = &DestroySrq,
      .create_ah = &CreateAh,
      .destroy_ah = &DestroyAh,
      .create_qp = &CreateQp,
      .qp_to_qp_ex = &QpToQpEx,
      .modify_qp = &ModifyQp,
      .query_qp = &QueryQp,
      .destroy_qp = &DestroyQp,
      .set_ece = &SetEce,
      .query_ece = &QueryEce,
      .query_qp_data_in_order = &QueryQpDataInOrder,
      .dv_is_supported = &DvIsSupported,
      .dv_query_device = &QueryDv,
      .dv_get_clock_info = &DvGetClockInfo,
      .dv_create_cq = &DvCreateCq,
      .dv_create_qp = &DvCreateQp,
      .dv_qp_ex_from_ibv_qp_ex = &DvQpExFromIbvQpEx,
      .dv_dci_stream_id_reset = &DvDciStreamIdReset,
      .dv_map_ah_to_qp = &DvMapAhToQp,
      .dv_create_mkey = &DvCreateMkey,
      .dv_destroy_mkey = &DvDestroyMkey,
      .dv_qp_cancel_posted_send_wrs = &DvQpCancelPostedSendWrs,
      .dv_reserved_qpn_alloc = &DvReservedQpnAlloc,
      .dv_reserved_qpn_dealloc = &DvReservedQpnDealloc,
#define SLUICE_IBV(name)
#define SLUICE_DV(name)
#define SLUICE_CM(name) .cm_##name = &cm::name,
#include "transport/verbs/verbs_functions.inc"
#undef SLUICE_IBV
#undef SLUICE_DV
#undef SLUICE_CM
      .reg_mr = &RegMr,
      .query_port = &QueryPort,
      .query_gid_ex = &QueryGidEx,
      .dv_mkey_check = &DvMkeyCheck,
  };
  // Before any event channel exists, so that ids find their device.
  static const bool hooked [[maybe_unused]] =
      (cm::SetDeviceHooks(HooksOf(SoftDevice::Find(Device())->dials(), kTable),
                          SoftDevice::Find(Device())->dials().cm),
       true);
  return kTable;
}

}  // namespace sluice::softdc
