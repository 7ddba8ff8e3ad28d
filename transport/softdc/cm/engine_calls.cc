// SPDX-License-Identifier: Apache-2.0
//
// Calls of the application: check the arguments as the kernel does, then apply the table.
#include <cerrno>
#include <cstring>
#include <vector>

#include "transport/softdc/cm/addresses.h"
#include "transport/softdc/cm/engine.h"
#include "transport/softdc/loop/gids.h"
#include "transport/softdc/model/mutation.h"

namespace sluice::softdc::cm {

int Engine::OpenChannel(std::shared_ptr<Channel>* channel) {
  auto opened = std::make_shared<Channel>(this);
  if (const int error = opened->Open(); error != 0) return error;
  *channel = std::move(opened);
  return 0;
}

void Engine::CloseChannel(Channel* channel) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<uint32_t> numbers;
  for (const auto& [number, id] : ids_) {
    if (id->channel == channel) numbers.push_back(number);
  }
  for (const uint32_t number : numbers) {
    const auto found = ids_.find(number);  // an earlier EndId may have ended its unread requests
    if (found != ids_.end()) EndId(found->second.get());
  }
}

int Engine::CreateId(Channel* channel, uint64_t uid, rdma_port_space ps, ibv_qp_type type,
                     uint32_t* id) {
  switch (ps) {
    case RDMA_PS_TCP:
      type = IBV_QPT_RC;
      break;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
      type = IBV_QPT_UD;
      break;
    case RDMA_PS_IB:
      break;
    default:
      return EINVAL;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  *id = NewId(channel, uid, ps, type)->number;
  return 0;
}

int Engine::DestroyId(Channel* channel, uint32_t number, uint32_t* events_reported) {
  std::lock_guard<std::mutex> lock(mutex_);
  Id* id = nullptr;
  if (const int error = Find(channel, number, Need::kId, &id); error != 0) return error;
  *events_reported = EndId(id);
  return 0;
}

int Engine::MigrateId(Channel* from, uint32_t number, Channel* to, uint32_t* events_reported) {
  std::lock_guard<std::mutex> lock(mutex_);
  Id* id = nullptr;
  if (const int error = Find(from, number, Need::kId, &id); error != 0) return error;
  if (from != to) {
    for (std::unique_ptr<Event>& event : from->Extract(id)) {
      if (event->request != nullptr) event->request->channel = to;
      to->Push(std::move(event));
    }
    id->channel = to;
  }
  *events_reported = id->events_reported;
  return 0;
}

int Engine::Bind(Channel* channel, uint32_t id, const sockaddr* address) {
  if (AddressLength(address) == 0) return EINVAL;
  Arguments arguments;
  arguments.source = address;
  return Call(channel, id, Need::kId, Input::kBindCall, &arguments);
}

int Engine::ResolveAddr(Channel* channel, uint32_t id, const sockaddr* source,
                        const sockaddr* destination) {
  if (AddressLength(destination) == 0) return EINVAL;
  if (source != nullptr && AddressLength(source) == 0) return EINVAL;
  Arguments arguments;
  arguments.source = source;
  arguments.destination = destination;
  return Call(channel, id, Need::kId, Input::kResolveAddrCall, &arguments);
}

int Engine::ResolveRoute(Channel* channel, uint32_t id) {
  Arguments arguments;
  return Call(channel, id, Need::kDevice, Input::kResolveRouteCall, &arguments);
}

int Engine::Listen(Channel* channel, uint32_t id, int backlog) {
  Arguments arguments;
  arguments.backlog = backlog;
  return Call(channel, id, Need::kId, Input::kListenCall, &arguments);
}

int Engine::Connect(Channel* channel, uint32_t number, const rdma_conn_param& param,
                    const ibv_ece& ece, uint32_t qkey) {
  std::lock_guard<std::mutex> lock(mutex_);
  Id* id = nullptr;
  if (const int error = Find(channel, number, Need::kDevice, &id); error != 0) return error;
  const bool datagram = IsDatagram(id->qp_type);
  const size_t limit = datagram ? kSidrReqPrivateDataBytes : kReqPrivateDataBytes;
  if (param.private_data_len > limit && !Mutated(Mutation::kSkipPrivateDataLimit)) {
    return EINVAL;
  }
  Arguments arguments;
  arguments.param = &param;
  arguments.ece = ece;
  arguments.qkey = qkey;
  return Apply(id, datagram ? Input::kConnectDatagramCall : Input::kConnectCall, &arguments);
}

int Engine::Accept(Channel* channel, uint32_t number, uint64_t uid, const rdma_conn_param* param,
                   const ibv_ece& ece, uint32_t qkey) {
  std::lock_guard<std::mutex> lock(mutex_);
  Id* id = nullptr;
  if (const int error = Find(channel, number, Need::kDevice, &id); error != 0) return error;
  Arguments arguments;
  const size_t limit = IsDatagram(id->qp_type) ? kSidrRepPrivateDataBytes : kRepPrivateDataBytes;
  const bool passive = id->state == State::kReqReceived || id->state == State::kSidrReceived;
  if (param == nullptr && !passive) return Apply(id, Input::kEstablishCall, &arguments);
  if (param == nullptr || param->private_data_len > limit) {
    // The kernel refuses the call and rejects the request, as after any failed accept.
    arguments.reject_reason = kRejConsumerDefined;
    Apply(id, Input::kAcceptRefusedCall, &arguments);
    return EINVAL;
  }
  arguments.param = param;
  arguments.ece = ece;
  arguments.qkey = qkey;
  const int error = Apply(id, Input::kAcceptCall, &arguments);
  if (error == 0) id->uid = uid;
  return error;
}

int Engine::Reject(Channel* channel, uint32_t number, const void* private_data, uint8_t length,
                   int reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  Id* id = nullptr;
  if (const int error = Find(channel, number, Need::kDevice, &id); error != 0) return error;
  if (length > (IsDatagram(id->qp_type) ? kSidrRepPrivateDataBytes : kRejPrivateDataBytes)) {
    return EINVAL;
  }
  Arguments arguments;
  arguments.private_data = private_data;
  arguments.private_data_bytes = length;
  arguments.reject_reason = reason;
  return Apply(id, Input::kRejectCall, &arguments);
}

int Engine::Disconnect(Channel* channel, uint32_t id) {
  Arguments arguments;
  return Call(channel, id, Need::kDevice, Input::kDisconnectCall, &arguments);
}

int Engine::Notify(Channel* channel, uint32_t id, ibv_event_type event) {
  Arguments arguments;
  if (event != IBV_EVENT_COMM_EST) return EINVAL;
  return Call(channel, id, Need::kDevice, Input::kNotifyCall, &arguments);
}

int Engine::SetOption(Channel* channel, uint32_t number, int level, int name, const void* value,
                      size_t length) {
  std::lock_guard<std::mutex> lock(mutex_);
  Id* id = nullptr;
  if (const int error = Find(channel, number, Need::kId, &id); error != 0) return error;
  if (level != RDMA_OPTION_ID) return ENOSYS;
  const bool is_int = name == RDMA_OPTION_ID_REUSEADDR || name == RDMA_OPTION_ID_AFONLY;
  const bool is_byte = name == RDMA_OPTION_ID_TOS || name == RDMA_OPTION_ID_ACK_TIMEOUT;
  if (!is_int && !is_byte) return ENOSYS;
  if (value == nullptr || length != (is_int ? sizeof(int) : 1)) return EINVAL;
  int setting = 0;
  if (is_int) {
    std::memcpy(&setting, value, sizeof(int));
  } else {
    setting = *static_cast<const uint8_t*>(value);
  }
  const bool idle = id->state == State::kIdle;
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      id->traffic_class = static_cast<uint8_t>(setting);
      return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (setting > 31 || id->qp_type != IBV_QPT_RC) return EINVAL;
      id->ack_timeout = static_cast<uint8_t>(setting);
      id->ack_timeout_set = true;
      return 0;
    case RDMA_OPTION_ID_REUSEADDR:
      if (!idle) return EINVAL;
      id->reuse_address = setting != 0;
      return 0;
    default:
      if (!idle && id->state != State::kAddrBound) return EINVAL;
      id->v6_only = setting != 0;
      return 0;
  }
}

int Engine::InitQpAttr(Channel* channel, uint32_t number, ibv_qp_attr* attr, int* mask) {
  std::lock_guard<std::mutex> lock(mutex_);
  Id* id = nullptr;
  if (const int error = Find(channel, number, Need::kDevice, &id); error != 0) return error;
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
      break;
    case State::kAddrBound:
    case State::kAddrResolved:
    case State::kRouteQuery:
    case State::kRouteResolved:
    case State::kSidrSent:
    case State::kSidrReceived:
    case State::kDatagram:
      break;
    default:
      return EINVAL;
  }
  // Before the connect call, the kernel has no connection. It then answers each state with the attributes of
  // INIT.
  const ibv_qp_state state = connecting ? attr->qp_state : IBV_QPS_INIT;
  if (state != IBV_QPS_INIT && !has_peer) return EINVAL;
  QpFacts facts = FactsOf(*id);
  facts.timeout = id->ack_timeout_set ? id->ack_timeout : id->path_ack_timeout;
  if (!FillQpAttr(state, connecting ? &facts : nullptr, attr, mask)) return EINVAL;
  if (IsDatagram(id->qp_type)) {
    attr->qkey = RDMA_UDP_QKEY;
    *mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  }
  return 0;
}

int Engine::Query(Channel* channel, uint32_t number, IdInfo* info) {
  std::lock_guard<std::mutex> lock(mutex_);
  Id* id = nullptr;
  if (const int error = Find(channel, number, Need::kId, &id); error != 0) return error;
  info->ps = id->ps;
  info->qp_type = id->qp_type;
  info->source = id->source;
  info->destination = id->destination;
  info->has_device = id->has_device;
  info->node_guid = hooks_.node_guid;
  info->local_gid = id->facts.local_gid;
  info->peer_gid = id->facts.peer_gid;
  info->has_path = id->has_path;
  info->traffic_class = id->facts.traffic_class;
  info->packet_lifetime = id->packet_lifetime;
  info->path_mtu = hooks_.path_mtu;
  return 0;
}

}  // namespace sluice::softdc::cm
