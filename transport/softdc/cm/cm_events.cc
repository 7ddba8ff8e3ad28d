// SPDX-License-Identifier: Apache-2.0
//
// Translates events of the kernel to events of librdmacm.
#include <arpa/inet.h>

#include <cstring>
#include <utility>

#include "transport/softdc/cm/cm_objects.h"
#include "transport/softdc/cm/cm_qp.h"

namespace sluice::softdc::cm {
namespace {

// Creates the new id of a CONNECT_REQUEST. Returns nullptr if there is no device; the request is then
// rejected.
CmId* TakeRequest(CmChannel* channel, CmId* listener, const Event& from) {
  CmId* const id = NewCmId(channel, from.id, listener->context, listener->ps);
  id->remote_ece = from.ece;
  id->responder_resources = from.conn.responder_resources;
  id->initiator_depth = from.conn.initiator_depth;
  if (Refresh(id) == 0) return id;
  uint32_t reported = 0;
  id->engine().DestroyId(id->kernel.get(), id->number, &reported);
  delete id;
  return nullptr;
}

// Answers a response. If the id has a queue pair, makes it ready and sends the answer. Otherwise the
// application must answer.
void AnswerResponse(CmId* id, CmEvent* event) {
  if (id->qp == nullptr) return;
  int error = MakeReady(id, id->responder_resources, id->initiator_depth);
  if (error == 0) {
    error = id->engine().Accept(id->kernel.get(), id->number, 0, nullptr, ibv_ece{});
  }
  event->event = error == 0 ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_ERROR;
  if (error == 0) return;
  event->status = -error;
  MakeError(id);
  id->connect_error = true;
}

}  // namespace

bool Translate(CmChannel* channel, const Event& from, CmEvent* to) {
  CmId* id = reinterpret_cast<CmId*>(static_cast<uintptr_t>(from.uid));
  to->owner = id;
  to->event = from.type;
  to->status = from.status;
  std::memcpy(to->private_data, from.private_data, from.private_data_bytes);
  const void* const data = from.private_data_bytes != 0 ? to->private_data : nullptr;
  if (from.is_ud) {
    to->param.ud = from.ud;
    to->param.ud.private_data = data;
    to->param.ud.private_data_len = from.private_data_bytes;
  } else {
    to->param.conn = from.conn;
    to->param.conn.private_data = data;
    to->param.conn.private_data_len = from.private_data_bytes;
  }
  switch (from.type) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      to->listen_id = id;
      id = TakeRequest(channel, id, from);
      if (id == nullptr) return false;
      break;
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (const int error = Refresh(id); error != 0) {
        to->event = RDMA_CM_EVENT_ADDR_ERROR;
        to->status = -error;
      }
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      Refresh(id);
      break;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      id->remote_ece = from.ece;
      AnswerResponse(id, to);
      break;
    case RDMA_CM_EVENT_REJECTED:
      if (id->connect_error) return false;
      MakeError(id);
      break;
    case RDMA_CM_EVENT_DISCONNECTED:
      if (id->connect_error) return false;
      break;
    default:
      break;
  }
  to->id = id;
  return true;
}

}  // namespace sluice::softdc::cm
