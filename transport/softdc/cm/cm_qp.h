// SPDX-License-Identifier: Apache-2.0
//
// Queue pairs of an id's own (rdma_create_qp), which librdmacm moves through their states. Those of
// ids without one (id->qp is nullptr) are the application's business: these functions do nothing.
// Return 0 or an errno value.
//
// Threads       As their id.
#ifndef SLUICE_TRANSPORT_SOFTDC_CM_CM_QP_H_
#define SLUICE_TRANSPORT_SOFTDC_CM_CM_QP_H_

#include "transport/softdc/cm/cm_objects.h"

namespace sluice::softdc::cm {

// INIT to RTR to RTS with what the connection manager knows. 0xff: the resources it knows of.
int MakeReady(CmId* id, uint8_t responder_resources, uint8_t initiator_depth);

void MakeError(CmId* id);

// man rdma_create_qp: on the id's device, with completion queues and channels of the id's own where
// `attr` has none; in INIT, a datagram one in RTS. EINVAL: the id has one, or no device.
int CreateQp(CmId* id, ibv_pd* pd, ibv_qp_init_attr* attr);

// No-op without one.
void DestroyQp(CmId* id);

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_CM_QP_H_
