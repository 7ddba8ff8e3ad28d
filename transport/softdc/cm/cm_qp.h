// SPDX-License-Identifier: Apache-2.0
//
// Queue pairs that belong to an id (rdma_create_qp), which librdmacm moves through their states. If the id
// has no queue pair (id->qp is nullptr), the application manages its own, and these functions do nothing.
// They return 0 or an errno value.
//
// Threads       As the id.
#ifndef SLUICE_TRANSPORT_SOFTDC_CM_CM_QP_H_
#define SLUICE_TRANSPORT_SOFTDC_CM_CM_QP_H_

#include "transport/softdc/cm/cm_objects.h"

namespace sluice::softdc::cm {

// Moves the queue pair from INIT to RTR and RTS, with the attributes of the connection manager. 0xff: use the
// resources that the connection manager knows.
int MakeReady(CmId* id, uint8_t responder_resources, uint8_t initiator_depth);

void MakeError(CmId* id);

// Creates the queue pair of an id on the id's device (man rdma_create_qp). Creates completion queues and
// channels for the id where `attr` has none. The queue pair is in INIT, a datagram queue pair in RTS. EINVAL:
// the id has a queue pair already, or no device.
int CreateQp(CmId* id, ibv_pd* pd, ibv_qp_init_attr* attr);

// Does nothing if the id has no queue pair.
void DestroyQp(CmId* id);

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_CM_QP_H_
