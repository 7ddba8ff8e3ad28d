// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/cm/cm.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "transport/softdc/cm/addresses.h"
#include "transport/softdc/cm/cm_objects.h"
#include "transport/softdc/cm/cm_qp.h"
#include "transport/softdc/loop/gids.h"
#include "transport/verbs/verbs_api.h"

namespace sluice::softdc::cm {
namespace {

// Checks that the device of the id exists, before a call changes the id.
int CheckDevice(const CmId* id) {
  const DeviceHooks& hooks = id->engine().hooks();
  return hooks.context && hooks.context() == nullptr ? ENODEV : 0;
}

uint8_t MaxRdAtomic(const CmId* id) {
  const verbs::VerbsApi* const verbs = id->engine().hooks().verbs;
  ibv_device_attr attr{};
  if (verbs == nullptr || id->verbs == nullptr || verbs->query_device(id->verbs, &attr) != 0) {
    return kMaxRdAtomic;
  }
  return static_cast<uint8_t>(std::min(attr.max_qp_rd_atom, 0xfe));
}

// Builds the parameters for the kernel: limited by the device, with the number of the id's queue pair if it
// has one. An id without a queue pair needs the number from the caller.
int MakeParam(CmId* id, const rdma_conn_param* given, uint8_t most_responder, uint8_t most_depth,
              rdma_conn_param* param) {
  if (given == nullptr && id->qp == nullptr && !IsDatagram(id->qp_type)) return EINVAL;
  *param = rdma_conn_param{};
  param->retry_count = 7;
  param->rnr_retry_count = 7;
  param->responder_resources = RDMA_MAX_RESP_RES;
  param->initiator_depth = RDMA_MAX_INIT_DEPTH;
  if (given != nullptr) *param = *given;
  if (param->private_data == nullptr) param->private_data_len = 0;
  const uint8_t most = MaxRdAtomic(id);
  const auto refused = [most](uint8_t value, int unlimited) {
    return value != unlimited && value > most;
  };
  if (!IsDatagram(id->qp_type) && (refused(param->responder_resources, RDMA_MAX_RESP_RES) ||
                                   refused(param->initiator_depth, RDMA_MAX_INIT_DEPTH))) {
    return EINVAL;
  }
  if (param->responder_resources == RDMA_MAX_RESP_RES) {
    param->responder_resources = std::min(most, most_responder);
  }
  if (param->initiator_depth == RDMA_MAX_INIT_DEPTH) {
    param->initiator_depth = std::min(most, most_depth);
  }
  if (id->qp != nullptr) {
    param->qp_num = id->qp->qp_num;
    param->srq = id->qp->srq != nullptr;
  }
  id->responder_resources = param->responder_resources;
  id->initiator_depth = param->initiator_depth;
  return 0;
}

}  // namespace

CmId* NewCmId(CmChannel* channel, uint32_t number, void* context, rdma_port_space ps) {
  auto* const id = new CmId();
  static_cast<rdma_cm_id&>(*id) = rdma_cm_id{};
  id->channel = channel;
  id->context = context;
  id->ps = ps;
  id->kernel = channel->kernel;
  id->number = number;
  return id;
}

int Refresh(CmId* id) {
  IdInfo info;
  if (const int error = id->engine().Query(id->kernel.get(), id->number, &info); error != 0) {
    return error;
  }
  id->qp_type = info.qp_type;
  rdma_addr& route = id->route.addr;
  route.src_storage = info.source;
  if (info.destination.ss_family != 0) route.dst_storage = info.destination;
  if (!info.has_device) return 0;
  const DeviceHooks& hooks = id->engine().hooks();
  if (id->verbs == nullptr && hooks.context) {
    const bool second = hooks.second_context && IsOfSecondDevice(info.local_gid);
    ibv_context* const context = second ? hooks.second_context() : hooks.context();
    if (context == nullptr) return ENODEV;
    id->verbs = context;
    const auto& pd = second ? hooks.second_pd : hooks.pd;
    if (id->pd == nullptr && pd) id->pd = pd();
  }
  id->port_num = kPortNum;
  route.addr.ibaddr.sgid = info.local_gid;
  route.addr.ibaddr.dgid = info.peer_gid;
  route.addr.ibaddr.pkey = htons(0xffff);
  if (!info.has_path) return 0;
  ibv_sa_path_rec& path = id->path;
  path = {};
  path.dgid = info.peer_gid;
  path.sgid = info.local_gid;
  path.hop_limit = kHopLimit;
  path.traffic_class = info.traffic_class;
  path.reversible = 1;
  path.numb_path = 1;
  path.pkey = htons(0xffff);
  path.mtu = info.path_mtu;
  path.packet_life_time = info.packet_lifetime;
  id->route.path_rec = &path;
  id->route.num_paths = 1;
  return 0;
}

rdma_event_channel* create_event_channel() {
  auto channel = std::make_unique<CmChannel>();
  if (Result(ProcessEngine()->OpenChannel(&channel->kernel)) != 0) return nullptr;
  channel->fd = channel->kernel->fd();
  return channel.release();
}

void destroy_event_channel(rdma_event_channel* channel) {
  if (channel == nullptr) return;
  CmChannel* const mine = CmChannel::Of(channel);
  mine->kernel->engine()->CloseChannel(mine->kernel.get());
  delete mine;
}

int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space ps) {
  if (id == nullptr) return Result(EINVAL);
  if (channel == nullptr) return Result(EOPNOTSUPP);
  CmId* const created = NewCmId(CmChannel::Of(channel), 0, context, ps);
  created->qp_type = ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
  const int error =
      created->engine().CreateId(created->kernel.get(), reinterpret_cast<uintptr_t>(created), ps,
                                 created->qp_type, &created->number);
  if (error == 0) {
    *id = created;
  } else {
    delete created;
  }
  return Result(error);
}

int destroy_id(rdma_cm_id* id) {
  if (id == nullptr) return Result(EINVAL);
  CmId* const mine = CmId::Of(id);
  uint32_t reported = 0;
  const int error = mine->engine().DestroyId(mine->kernel.get(), mine->number, &reported);
  // ENOENT: the channel was closed first, which ended the id.
  if (error != 0 && error != ENOENT) return Result(error);
  mine->AwaitAcks(reported);
  delete mine;
  return 0;
}

int bind_addr(rdma_cm_id* id, sockaddr* addr) {
  if (id == nullptr) return Result(EINVAL);
  CmId* const mine = CmId::Of(id);
  int error = CheckDevice(mine);
  if (error == 0) error = mine->engine().Bind(mine->kernel.get(), mine->number, addr);
  if (error == 0) error = Refresh(mine);
  return Result(error);
}

int resolve_addr(rdma_cm_id* id, sockaddr* src_addr, sockaddr* dst_addr, int /*timeout_ms*/) {
  if (id == nullptr) return Result(EINVAL);
  CmId* const mine = CmId::Of(id);
  int error = CheckDevice(mine);
  if (error != 0) return Result(error);
  // Copied before the call: after the call, a thread that reads events may write the address too.
  sockaddr_storage& destination = id->route.addr.dst_storage;
  const sockaddr_storage before = destination;
  if (dst_addr != nullptr) CopyAddress(dst_addr, &destination);
  error = mine->engine().ResolveAddr(mine->kernel.get(), mine->number, src_addr, dst_addr);
  if (error != 0) destination = before;
  return Result(error);
}

int resolve_route(rdma_cm_id* id, int /*timeout_ms*/) {
  if (id == nullptr) return Result(EINVAL);
  CmId* const mine = CmId::Of(id);
  return Result(mine->engine().ResolveRoute(mine->kernel.get(), mine->number));
}

int connect(rdma_cm_id* id, rdma_conn_param* conn_param) {
  if (id == nullptr) return Result(EINVAL);
  CmId* const mine = CmId::Of(id);
  rdma_conn_param param;
  int error = MakeParam(mine, conn_param, RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH, &param);
  if (error != 0) return Result(error);
  error = mine->engine().Connect(mine->kernel.get(), mine->number, param, mine->local_ece);
  return Result(error);
}

int establish(rdma_cm_id* id) {
  if (id == nullptr || id->qp != nullptr) return Result(EINVAL);
  CmId* const mine = CmId::Of(id);
  return Result(mine->engine().Accept(mine->kernel.get(), mine->number, 0, nullptr, ibv_ece{}));
}

int listen(rdma_cm_id* id, int backlog) {
  if (id == nullptr) return Result(EINVAL);
  CmId* const mine = CmId::Of(id);
  int error = CheckDevice(mine);
  if (error == 0) error = mine->engine().Listen(mine->kernel.get(), mine->number, backlog);
  if (error == 0) error = Refresh(mine);
  return Result(error);
}

int accept(rdma_cm_id* id, rdma_conn_param* conn_param) {
  if (id == nullptr) return Result(EINVAL);
  CmId* const mine = CmId::Of(id);
  // If the application passes the maximum, it gets the values of the requester.
  rdma_conn_param param;
  int error = MakeParam(mine, conn_param, mine->responder_resources, mine->initiator_depth, &param);
  if (error == 0) error = MakeReady(mine, param.responder_resources, param.initiator_depth);
  if (error != 0) return Result(error);
  // The answer keeps the vendor id of the requester.
  const ibv_ece ece{mine->remote_ece.vendor_id, mine->local_ece.options, 0};
  error = mine->engine().Accept(mine->kernel.get(), mine->number, reinterpret_cast<uintptr_t>(mine),
                                &param, ece);
  if (error != 0) MakeError(mine);
  return Result(error);
}

namespace {

int Refuse(rdma_cm_id* id, const void* private_data, uint8_t private_data_len, int reason) {
  if (id == nullptr) return Result(EINVAL);
  CmId* const mine = CmId::Of(id);
  if (private_data == nullptr) private_data_len = 0;
  return Result(mine->engine().Reject(mine->kernel.get(), mine->number, private_data,
                                      private_data_len, reason));
}

}  // namespace

int reject(rdma_cm_id* id, const void* private_data, uint8_t private_data_len) {
  return Refuse(id, private_data, private_data_len, kRejConsumerDefined);
}

int reject_ece(rdma_cm_id* id, const void* private_data, uint8_t private_data_len) {
  return Refuse(id, private_data, private_data_len, kRejVendorOptionNotSupported);
}

int notify(rdma_cm_id* id, ibv_event_type event) {
  if (id == nullptr) return Result(EINVAL);
  CmId* const mine = CmId::Of(id);
  return Result(mine->engine().Notify(mine->kernel.get(), mine->number, event));
}

int disconnect(rdma_cm_id* id) {
  if (id == nullptr) return Result(EINVAL);
  CmId* const mine = CmId::Of(id);
  if (!IsDatagram(id->qp_type)) MakeError(mine);
  return Result(mine->engine().Disconnect(mine->kernel.get(), mine->number));
}

__be16 get_src_port(rdma_cm_id* id) { return PortOf(&id->route.addr.src_addr); }

__be16 get_dst_port(rdma_cm_id* id) { return PortOf(&id->route.addr.dst_addr); }

int get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  if (channel == nullptr || event == nullptr) return Result(EINVAL);
  CmChannel* const mine = CmChannel::Of(channel);
  Engine& engine = *mine->kernel->engine();
  for (;;) {
    Event taken;
    const int error = engine.TakeEvent(mine->kernel.get(), [&taken](const Event& first) {
      taken = first;
      return 0;
    });
    if (error == EAGAIN) {
      if (const int wait = mine->kernel->Await(); wait != 0) return Result(wait);
      continue;
    }
    if (error != 0) return Result(error);
    auto made = std::make_unique<CmEvent>();
    static_cast<rdma_cm_event&>(*made) = rdma_cm_event{};
    if (Translate(mine, taken, made.get())) {
      *event = made.release();
      return 0;
    }
    ack_cm_event(made.release());
  }
}

int ack_cm_event(rdma_cm_event* event) {
  if (event == nullptr) return Result(EINVAL);
  CmEvent* const mine = static_cast<CmEvent*>(event);
  {
    std::lock_guard<std::mutex> lock(mine->owner->mutex);
    ++mine->owner->events_acked;
    mine->owner->acked.notify_all();  // under the lock: after it, the owner may be destroyed
  }
  delete mine;
  return 0;
}

int migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  if (id == nullptr) return Result(EINVAL);
  if (channel == nullptr) return Result(EOPNOTSUPP);
  CmId* const mine = CmId::Of(id);
  CmChannel* const to = CmChannel::Of(channel);
  if (id->channel == channel) return 0;
  if (to->kernel->engine() != mine->kernel->engine()) return Result(EINVAL);
  uint32_t reported = 0;
  const int error =
      mine->engine().MigrateId(mine->kernel.get(), mine->number, to->kernel.get(), &reported);
  if (error != 0) return Result(error);
  id->channel = channel;
  mine->kernel = to->kernel;
  mine->AwaitAcks(reported);
  return 0;
}

int set_option(rdma_cm_id* id, int level, int optname, void* optval, size_t optlen) {
  if (id == nullptr) return Result(EINVAL);
  CmId* const mine = CmId::Of(id);
  return Result(
      mine->engine().SetOption(mine->kernel.get(), mine->number, level, optname, optval, optlen));
}

int init_qp_attr(rdma_cm_id* id, ibv_qp_attr* qp_attr, int* qp_attr_mask) {
  if (id == nullptr || qp_attr == nullptr || qp_attr_mask == nullptr) return Result(EINVAL);
  CmId* const mine = CmId::Of(id);
  return Result(mine->engine().InitQpAttr(mine->kernel.get(), mine->number, qp_attr, qp_attr_mask));
}

int set_local_ece(rdma_cm_id* id, ibv_ece* ece) {
  if (id == nullptr || id->qp != nullptr || ece == nullptr) return Result(EINVAL);
  if (ece->vendor_id == 0 || ece->comp_mask != 0) return Result(EINVAL);
  CmId::Of(id)->local_ece = *ece;
  return 0;
}

int get_remote_ece(rdma_cm_id* id, ibv_ece* ece) {
  if (id == nullptr || id->qp != nullptr || ece == nullptr) return Result(EINVAL);
  *ece = CmId::Of(id)->remote_ece;
  ece->comp_mask = 0;
  return 0;
}

int create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* qp_init_attr) {
  return Result(id == nullptr ? EINVAL : CreateQp(CmId::Of(id), pd, qp_init_attr));
}

void destroy_qp(rdma_cm_id* id) {
  if (id != nullptr) DestroyQp(CmId::Of(id));
}

}  // namespace sluice::softdc::cm
