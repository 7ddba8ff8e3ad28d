// SPDX-License-Identifier: Apache-2.0
//
// RDMA_CM of softdc: the functions of librdmacm without the prefix rdma_. Their contract is the man pages of
// that library (man 7 rdma_cm, man 3 rdma_connect ...), and the behaviour of a Linux kernel below it. They
// return 0, or -1 with errno, unless the man page says otherwise.
//
// Supported: RDMA_PS_TCP, RDMA_PS_UDP (and IPOIB), and event channels (blocking and O_NONBLOCK). The
// application can create its queue pairs itself and name them in rdma_conn_param.qp_num. It can also use
// rdma_create_qp: such a queue pair goes to INIT there, to RTS with the connection, and to ERR at its end.
//
// Not supported: synchronous ids (channel NULL) and multicast fail with EOPNOTSUPP.
//
// Peers are processes of the same host and user. Every local address, and no other address, belongs to
// softdc0.
//
// Descriptors: one for each event channel, one for each bound id, and another for each end of a live
// connection.
//
// Threads       As in librdmacm: any. Do not destroy an id while another thread uses it.
#ifndef SLUICE_TRANSPORT_SOFTDC_CM_CM_H_
#define SLUICE_TRANSPORT_SOFTDC_CM_CM_H_

#include <rdma/rdma_cma.h>

#include "transport/softdc/cm/process_engine.h"

namespace sluice::softdc::cm {

rdma_event_channel* create_event_channel();
void destroy_event_channel(rdma_event_channel* channel);
int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space ps);
int destroy_id(rdma_cm_id* id);
int bind_addr(rdma_cm_id* id, sockaddr* addr);
int resolve_addr(rdma_cm_id* id, sockaddr* src_addr, sockaddr* dst_addr, int timeout_ms);
int resolve_route(rdma_cm_id* id, int timeout_ms);
int connect(rdma_cm_id* id, rdma_conn_param* conn_param);
int establish(rdma_cm_id* id);
int listen(rdma_cm_id* id, int backlog);
int accept(rdma_cm_id* id, rdma_conn_param* conn_param);
int reject(rdma_cm_id* id, const void* private_data, uint8_t private_data_len);
int reject_ece(rdma_cm_id* id, const void* private_data, uint8_t private_data_len);
int notify(rdma_cm_id* id, ibv_event_type event);
int disconnect(rdma_cm_id* id);
__be16 get_src_port(rdma_cm_id* id);
__be16 get_dst_port(rdma_cm_id* id);
int get_cm_event(rdma_event_channel* channel, rdma_cm_event** event);
int ack_cm_event(rdma_cm_event* event);
int migrate_id(rdma_cm_id* id, rdma_event_channel* channel);
int set_option(rdma_cm_id* id, int level, int optname, void* optval, size_t optlen);
int init_qp_attr(rdma_cm_id* id, ibv_qp_attr* qp_attr, int* qp_attr_mask);
int set_local_ece(rdma_cm_id* id, ibv_ece* ece);
int get_remote_ece(rdma_cm_id* id, ibv_ece* ece);
int create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* qp_init_attr);
void destroy_qp(rdma_cm_id* id);

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_CM_H_
