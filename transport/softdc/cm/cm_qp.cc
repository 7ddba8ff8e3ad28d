// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/cm/cm_qp.h"

#include <algorithm>
#include <cerrno>

#include "transport/verbs/qp_init.h"
#include "transport/verbs/verbs_api.h"

namespace sluice::softdc::cm {
namespace {

// Moves the queue pair to a state, with the attributes of the connection manager, after `amend` has changed
// them.
template <typename Amend>
int Move(CmId* id, ibv_qp_state state, Amend amend) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  int mask = 0;
  const int error = id->engine().InitQpAttr(id->kernel.get(), id->number, &attr, &mask);
  if (error != 0) return error;
  amend(&attr);
  return id->engine().hooks().verbs->modify_qp(id->qp, &attr, mask);
}

constexpr auto kAsGiven = [](ibv_qp_attr*) {};

// A datagram queue pair becomes ready without a peer.
int MakeDatagramReady(CmId* id) {
  const verbs::VerbsApi& verbs = *id->engine().hooks().verbs;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  if (const int error = verbs.modify_qp(id->qp, &attr, IBV_QP_STATE); error != 0) return error;
  attr.qp_state = IBV_QPS_RTS;
  return verbs.modify_qp(id->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

int CreateCq(CmId* id, uint32_t entries, ibv_comp_channel** channel, ibv_cq** cq) {
  const verbs::VerbsApi& verbs = *id->engine().hooks().verbs;
  *channel = verbs.create_comp_channel(id->verbs);
  if (*channel == nullptr) return errno;
  *cq = verbs.create_cq(id->verbs, static_cast<int>(entries), id, *channel, 0);
  return *cq == nullptr ? errno : 0;
}

void DestroyCqs(CmId* id) {
  const verbs::VerbsApi& verbs = *id->engine().hooks().verbs;
  const auto destroy = [&verbs](ibv_comp_channel*& channel, ibv_cq*& cq) {
    if (cq != nullptr) verbs.destroy_cq(cq);
    cq = nullptr;
    if (channel != nullptr) verbs.destroy_comp_channel(channel);
    channel = nullptr;
  };
  destroy(id->send_cq_channel, id->send_cq);
  destroy(id->recv_cq_channel, id->recv_cq);
}

int CreateMissingCqs(CmId* id, ibv_qp_init_attr* attr) {
  int error = 0;
  if (attr->send_cq == nullptr) {
    error = CreateCq(id, std::max(attr->cap.max_send_wr, 1u), &id->send_cq_channel, &id->send_cq);
    attr->send_cq = id->send_cq;
  }
  if (error == 0 && attr->recv_cq == nullptr) {
    error = CreateCq(id, std::max(attr->cap.max_recv_wr, 1u), &id->recv_cq_channel, &id->recv_cq);
    attr->recv_cq = id->recv_cq;
  }
  return error;
}

// Does the same as ibv_create_qp, without using that symbol: the device may be simulated.
ibv_qp* MakeQp(ibv_context* context, ibv_pd* pd, ibv_qp_init_attr* attr) {
  const verbs_context* const operations = verbs_get_ctx_op(context, create_qp_ex);
  if (operations == nullptr) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  ibv_qp_init_attr_ex extended = verbs::ToExtended(pd, *attr);
  ibv_qp* const qp = operations->create_qp_ex(context, &extended);
  if (qp != nullptr) attr->cap = extended.cap;
  return qp;
}

}  // namespace

int MakeReady(CmId* id, uint8_t responder_resources, uint8_t initiator_depth) {
  if (id->qp == nullptr || id->qp_type == IBV_QPT_UD) return 0;
  // INIT again: only now the connection manager knows the remote access that the peer requests.
  int error = Move(id, IBV_QPS_INIT, kAsGiven);
  if (error == 0) {
    error = Move(id, IBV_QPS_RTR, [&](ibv_qp_attr* attr) {
      if (responder_resources != RDMA_MAX_RESP_RES) attr->max_dest_rd_atomic = responder_resources;
    });
  }
  if (error == 0) {
    error = Move(id, IBV_QPS_RTS, [&](ibv_qp_attr* attr) {
      if (initiator_depth != RDMA_MAX_INIT_DEPTH) attr->max_rd_atomic = initiator_depth;
    });
  }
  return error;
}

void MakeError(CmId* id) {
  if (id->qp == nullptr) return;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  id->engine().hooks().verbs->modify_qp(id->qp, &attr, IBV_QP_STATE);
}

int CreateQp(CmId* id, ibv_pd* pd, ibv_qp_init_attr* attr) {
  if (id->qp != nullptr || id->verbs == nullptr || attr == nullptr) return EINVAL;
  if (id->engine().hooks().verbs == nullptr) return ENODEV;
  if (pd == nullptr) pd = id->pd;
  if (pd == nullptr || pd->context != id->verbs || attr->qp_type != id->qp_type) return EINVAL;
  int error = CreateMissingCqs(id, attr);
  if (error == 0) {
    id->qp = MakeQp(id->verbs, pd, attr);
    if (id->qp == nullptr) error = errno;
  }
  if (error == 0) error = Move(id, IBV_QPS_INIT, kAsGiven);
  if (error == 0 && IsDatagram(id->qp_type)) error = MakeDatagramReady(id);
  if (error == 0) {
    id->pd = pd;
  } else {
    DestroyQp(id);
    DestroyCqs(id);
  }
  return error;
}

void DestroyQp(CmId* id) {
  if (id->qp == nullptr) return;
  id->engine().hooks().verbs->destroy_qp(id->qp);
  id->qp = nullptr;
  DestroyCqs(id);
}

}  // namespace sluice::softdc::cm
