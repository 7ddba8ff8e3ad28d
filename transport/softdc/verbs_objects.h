// SPDX-License-Identifier: Apache-2.0
//
// The libibverbs and libmlx5 calls of softdc, with the signatures and results of the man pages.
// Only verbs.cc (the table) and device.cc use them by name.
#ifndef SLUICE_TRANSPORT_SOFTDC_VERBS_OBJECTS_H_
#define SLUICE_TRANSPORT_SOFTDC_VERBS_OBJECTS_H_

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace sluice::softdc {

ibv_device** GetDeviceList(int* count);
void FreeDeviceList(ibv_device** list);
const char* GetDeviceName(ibv_device* device);
__be64 GetDeviceGuid(ibv_device* device);
ibv_context* OpenDevice(ibv_device* device);
int CloseDevice(ibv_context* context);
int QueryGid(ibv_context* context, uint8_t port_num, int index, ibv_gid* gid);
// Sets ndev_ifindex to 0: unknown.
int QueryGidEx(ibv_context* context, uint32_t port_num, uint32_t index, ibv_gid_entry* entry);
int QueryPkey(ibv_context* context, uint8_t port_num, int index, __be16* pkey);
int GetAsyncEvent(ibv_context* context, ibv_async_event* event);
void AckAsyncEvent(ibv_async_event* event);

ibv_pd* AllocPd(ibv_context* context);
int DeallocPd(ibv_pd* pd);
ibv_td* AllocTd(ibv_context* context, ibv_td_init_attr* attr);
int DeallocTd(ibv_td* td);
ibv_pd* AllocParentDomain(ibv_context* context, ibv_parent_domain_init_attr* attr);
ibv_mr* RegMr(ibv_pd* pd, void* address, size_t length_bytes, int access);
// Returns 0, or IBV_REREG_MR_ERR_* with errno set.
int ReregMr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, size_t length_bytes, int access);
int DeregMr(ibv_mr* mr);
ibv_mw* AllocMw(ibv_pd* pd, ibv_mw_type type);
int DeallocMw(ibv_mw* mw);
ibv_comp_channel* CreateCompChannel(ibv_context* context);
int DestroyCompChannel(ibv_comp_channel* channel);
ibv_cq* CreateCq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                 int comp_vector);
ibv_cq_ex* CreateCqEx(ibv_context* context, ibv_cq_init_attr_ex* attr);
ibv_cq_ex* DvCreateCq(ibv_context* context, ibv_cq_init_attr_ex* attr, mlx5dv_cq_init_attr* dv);
int ResizeCq(ibv_cq* cq, int cqe);
int DestroyCq(ibv_cq* cq);
int GetCqEvent(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);
void AckCqEvents(ibv_cq* cq, unsigned int count);
ibv_srq* CreateSrq(ibv_pd* pd, ibv_srq_init_attr* init);
ibv_srq* CreateSrqEx(ibv_context* context, ibv_srq_init_attr_ex* init);
int GetSrqNum(ibv_srq* srq, uint32_t* number);
int ModifySrq(ibv_srq* srq, ibv_srq_attr* attr, int mask);
int QuerySrq(ibv_srq* srq, ibv_srq_attr* attr);
int DestroySrq(ibv_srq* srq);
ibv_ah* CreateAh(ibv_pd* pd, ibv_ah_attr* attr);
int DestroyAh(ibv_ah* ah);

ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr);
ibv_qp* CreateQpEx(ibv_context* context, ibv_qp_init_attr_ex* attr);
ibv_qp_ex* QpToQpEx(ibv_qp* qp);
int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask);
int QueryQp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init);
int DestroyQp(ibv_qp* qp);
int SetEce(ibv_qp* qp, ibv_ece* ece);
int QueryEce(ibv_qp* qp, ibv_ece* ece);
int QueryQpDataInOrder(ibv_qp* qp, ibv_wr_opcode op, uint32_t flags);

bool DvIsSupported(ibv_device* device);
ibv_qp* DvCreateQp(ibv_context* context, ibv_qp_init_attr_ex* attr, mlx5dv_qp_init_attr* dv);
mlx5dv_qp_ex* DvQpExFromIbvQpEx(ibv_qp_ex* qp);
int DvDciStreamIdReset(ibv_qp* qp, uint16_t stream_id);
int DvMapAhToQp(ibv_ah* ah, uint32_t qp_num);
int DvReservedQpnAlloc(ibv_context* context, uint32_t* qpn);
int DvReservedQpnDealloc(ibv_context* context, uint32_t qpn);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_VERBS_OBJECTS_H_
