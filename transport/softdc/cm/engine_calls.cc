// SPDX-License-Identifier: Apache-2.0
//
// The application's calls: checks of their arguments, as librdmacm and the kernel make them, then
// the table.
#include <cerrno>
#include <cstring>

#include "transport/softdc/cm/addresses.h"
#include "transport/softdc/cm/engine.h"
#include "transport/softdc/loop/gids.h"

namespace sluice::softdc::cm {
namespace {

constexpr uint32_t k24Bits = 0xffffff;

// librdmacm's ucma_valid_param for an id without a queue pair of its own.
int CheckParam(const rdma_conn_param* param) {
  if (param == nullptr) return EINVAL;
  if (param->responder_resources != RDMA_MAX_RESP_RES &&
      param->responder_resources > kMaxRdAtomic) {
    return EINVAL;
  }
  if (param->initiator_depth != RDMA_MAX_INIT_DEPTH && param->initiator_depth > kMaxRdAtomic) {
    return EINVAL;
  }
  return 0;
}

}  // namespace

int Engine::Bind(Id* id, const sockaddr* address) {
  if (AddressLength(address) == 0) return EINVAL;
  if (const int error = LoadDevice(); error != 0) return error;
  std::lock_guard<std::mutex> lock(mutex_);
  Arguments arguments;
  arguments.source = address;
  return Apply(id, Input::kBindCall, &arguments);
}

int Engine::ResolveAddr(Id* id, const sockaddr* source, const sockaddr* destination) {
  if (AddressLength(destination) == 0) return EINVAL;
  if (source != nullptr && AddressLength(source) == 0) return EINVAL;
  if (const int error = LoadDevice(); error != 0) return error;
  std::lock_guard<std::mutex> lock(mutex_);
  Arguments arguments;
  arguments.source = source;
  arguments.destination = destination;
  return Apply(id, Input::kResolveAddrCall, &arguments);
}

int Engine::ResolveRoute(Id* id) {
  std::lock_guard<std::mutex> lock(mutex_);
  Arguments arguments;
  return Apply(id, Input::kResolveRouteCall, &arguments);
}

int Engine::Listen(Id* id, int backlog) {
  if (const int error = LoadDevice(); error != 0) return error;
  std::lock_guard<std::mutex> lock(mutex_);
  Arguments arguments;
  arguments.backlog = backlog;
  return Apply(id, Input::kListenCall, &arguments);
}

int Engine::Connect(Id* id, const rdma_conn_param* param) {
  if (const int error = CheckParam(param); error != 0) return error;
  if (param->private_data != nullptr && param->private_data_len > kReqPrivateDataBytes) {
    return EINVAL;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  Arguments arguments;
  arguments.param = param;
  return Apply(id, Input::kConnectCall, &arguments);
}

int Engine::Accept(Id* id, const rdma_conn_param* param) {
  if (const int error = CheckParam(param); error != 0) return error;
  std::lock_guard<std::mutex> lock(mutex_);
  Arguments arguments;
  arguments.param = param;
  if (param->private_data != nullptr && param->private_data_len > kRepPrivateDataBytes) {
    // The kernel refuses the call and, as after any failed accept, rejects the request.
    arguments.reject_reason = kRejConsumerDefined;
    Apply(id, Input::kAcceptOversizeCall, &arguments);
    return EINVAL;
  }
  return Apply(id, Input::kAcceptCall, &arguments);
}

int Engine::Reject(Id* id, const void* private_data, uint8_t length, int reason) {
  if (private_data == nullptr) length = 0;
  if (length > kRejPrivateDataBytes) return EINVAL;
  std::lock_guard<std::mutex> lock(mutex_);
  Arguments arguments;
  arguments.private_data = private_data;
  arguments.private_data_bytes = length;
  arguments.reject_reason = reason;
  return Apply(id, Input::kRejectCall, &arguments);
}

int Engine::Establish(Id* id) {
  if (id->qp != nullptr) return EINVAL;
  std::lock_guard<std::mutex> lock(mutex_);
  Arguments arguments;
  return Apply(id, Input::kEstablishCall, &arguments);
}

int Engine::Disconnect(Id* id) {
  std::lock_guard<std::mutex> lock(mutex_);
  Arguments arguments;
  return Apply(id, Input::kDisconnectCall, &arguments);
}

int Engine::Notify(Id* id, ibv_event_type event) {
  if (event != IBV_EVENT_COMM_EST) return EINVAL;
  std::lock_guard<std::mutex> lock(mutex_);
  Arguments arguments;
  return Apply(id, Input::kNotifyCall, &arguments);
}

int Engine::SetOption(Id* id, int level, int name, const void* value, size_t length) {
  if (level != RDMA_OPTION_ID) return ENOSYS;
  const bool is_int = name == RDMA_OPTION_ID_REUSEADDR || name == RDMA_OPTION_ID_AFONLY;
  const bool is_byte = name == RDMA_OPTION_ID_TOS || name == RDMA_OPTION_ID_ACK_TIMEOUT;
  if (!is_int && !is_byte) return ENOSYS;
  if (value == nullptr || length != (is_int ? sizeof(int) : 1)) return EINVAL;
  int number = 0;
  if (is_int) {
    std::memcpy(&number, value, sizeof(int));
  } else {
    number = *static_cast<const uint8_t*>(value);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  const bool idle = id->state == State::kIdle;
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      id->traffic_class = static_cast<uint8_t>(number);
      return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (number > 31) return EINVAL;
      id->ack_timeout = static_cast<uint8_t>(number);
      id->ack_timeout_set = true;
      return 0;
    case RDMA_OPTION_ID_REUSEADDR:
      if (!idle) return EINVAL;
      id->reuse_address = number != 0;
      return 0;
    default:
      if (!idle && id->state != State::kAddrBound) return EINVAL;
      id->v6_only = number != 0;
      return 0;
  }
}

int Engine::InitQpAttr(Id* id, ibv_qp_attr* attr, int* mask) {
  std::lock_guard<std::mutex> lock(mutex_);
  bool has_device = false;
  bool connecting = false;
  bool has_peer = false;
  switch (id->state) {
    case State::kRepReceived:
    case State::kReqReceived:
    case State::kRepSent:
    case State::kEstablished:
      has_peer = true;
      [[fallthrough]];
    case State::kReqSent:
      connecting = true;
      [[fallthrough]];
    case State::kAddrResolved:
    case State::kRouteQuery:
    case State::kRouteResolved:
      has_device = true;
      break;
    case State::kAddrBound:
      has_device = id->port_num != 0;
      break;
    default:
      break;
  }
  const ibv_qp_state state = attr->qp_state;
  if (!has_device || (state != IBV_QPS_INIT && !has_peer)) return EINVAL;
  QpFacts facts = id->facts;
  facts.timeout = id->ack_timeout_set ? id->ack_timeout : id->path_ack_timeout;
  return FillQpAttr(state, connecting ? &facts : nullptr, attr, mask) ? 0 : EINVAL;
}

int Engine::SetLocalEce(Id* id, const ibv_ece* ece) {
  if (id->qp != nullptr || ece == nullptr || ece->vendor_id == 0 || ece->comp_mask != 0) {
    return EINVAL;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  id->local_ece.vendor_id = ece->vendor_id & k24Bits;
  id->local_ece.options = ece->options;
  return 0;
}

int Engine::GetRemoteEce(Id* id, ibv_ece* ece) {
  if (id->qp != nullptr || ece == nullptr) return EINVAL;
  std::lock_guard<std::mutex> lock(mutex_);
  *ece = id->remote_ece;
  return 0;
}

}  // namespace sluice::softdc::cm
