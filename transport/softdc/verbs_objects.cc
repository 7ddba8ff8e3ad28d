// SPDX-License-Identifier: Apache-2.0
//
// Devices, ports, asynchronous events and address handles. The rest of verbs_objects.h is in
// verbs_memory.cc, verbs_queues.cc and verbs_qp.cc.
#include "transport/softdc/verbs_objects.h"

#include <arpa/inet.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "transport/softdc/device.h"
#include "transport/softdc/loop/gids.h"
#include "transport/softdc/model/address_handle.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/gid_mark.h"
#include "transport/softdc/model/grh.h"
#include "transport/softdc/model/mutation.h"
#include "transport/softdc/model/pkey.h"

namespace sluice::softdc {
namespace {
constexpr uint8_t kPort = 1;

template <typename T>
T* Refuse(int error) {
  errno = error;
  return nullptr;
}
}  // namespace

ibv_device** GetDeviceList(int* count) {
  auto** list = new ibv_device* [3] { Device(), SecondDevice(), nullptr };
  if (count != nullptr) *count = list[1] == nullptr ? 1 : 2;
  return list;
}

void FreeDeviceList(ibv_device** list) { delete[] list; }
const char* GetDeviceName(ibv_device* device) { return device->name; }
__be64 GetDeviceGuid(ibv_device* device) {
  const SoftDevice* known = SoftDevice::Find(device);
  return known == nullptr ? 0 : known->node_guid();
}

ibv_context* OpenDevice(ibv_device* device) {
  SoftDevice* known = SoftDevice::Find(device);
  if (known == nullptr) return Refuse<ibv_context>(EINVAL);
  Context* context = Context::Open(*known);
  return context == nullptr ? nullptr : context->base();
}

int CloseDevice(ibv_context* context) {
  if (context == nullptr) return EINVAL;
  Context* softdc_context = Context::From(context);
  // Closing releases only the context. Objects left in it stay until the process ends (man ibv_close_device), and so does a context that
  // has objects.
  if (softdc_context->objects().load() == 0) delete softdc_context;
  return 0;
}

int QueryGid(ibv_context* context, uint8_t port_num, int index, ibv_gid* gid) {
  if (context == nullptr || gid == nullptr || port_num != kPort || index < 0 ||
      index >= static_cast<int>(kMaxGids)) {
    errno = EINVAL;
    return -1;
  }
  const SoftDevice& device = Context::From(context)->device();
  const std::vector<Gid> gids = device.fabric().Gids(device);
  *gid = static_cast<size_t>(index) < gids.size() ? gids[index] : Gid{};
  return 0;
}

int QueryGidEx(ibv_context* context, uint32_t port_num, uint32_t index, ibv_gid_entry* entry) {
  if (context == nullptr || entry == nullptr || port_num != kPort || index >= kMaxGids) {
    return EINVAL;
  }
  const SoftDevice& device = Context::From(context)->device();
  const std::vector<Gid> gids = device.fabric().Gids(device);
  static constexpr Gid kEmpty{};
  if (index >= gids.size() || SameGid(gids[index], kEmpty)) return ENODATA;
  const Dials::Port& port = device.dials().port;
  uint32_t type = IsRoceV1(gids, index, port.roce_v1) ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
  if (port.link_layer == LinkLayer::kInfiniband) type = IBV_GID_TYPE_IB;
  *entry = {.gid = gids[index],
            .gid_index = index,
            .port_num = port_num,
            .gid_type = type,
            .ndev_ifindex = 0};
  return 0;
}

int QueryPkey(ibv_context* context, uint8_t port_num, int index, __be16* pkey) {
  if (context == nullptr || pkey == nullptr || port_num != kPort || index < 0 ||
      index >= PkeyCount(Context::From(context)->device().dials())) {
    errno = EINVAL;
    return -1;
  }
  *pkey = htons(PkeyAt(Context::From(context)->device().dials(), static_cast<uint16_t>(index)));
  return 0;
}

int GetAsyncEvent(ibv_context* context, ibv_async_event* event) {
  if (context == nullptr || event == nullptr) {
    errno = EINVAL;
    return -1;
  }
  return Context::From(context)->async_events().Get(event);
}

void AckAsyncEvent(ibv_async_event* event) {
  if (event == nullptr) return;
  ibv_context* context = nullptr;
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
      context = event->element.cq->context;
      break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      context = event->element.srq->context;
      break;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_DEVICE_FATAL:
      return;  // no destruction waits for these
    default:
      context = event->element.qp->context;
      break;
  }
  Context::From(context)->async_events().Acknowledge(*event);
}

ibv_ah* CreateAh(ibv_pd* pd, ibv_ah_attr* attr) {
  if (pd == nullptr || attr == nullptr) return Refuse<ibv_ah>(EINVAL);
  const SoftDevice& device = Context::From(pd->context)->device();
  const std::vector<Gid> gids = device.fabric().Gids(device);
  // On RoCE, the GID is the only address.
  const bool needs_gid = device.dials().port.link_layer == LinkLayer::kRoce;
  if (attr->port_num != kPort ||
      (needs_gid && attr->is_global == 0 && !Mutated(Mutation::kAnyAddress)) ||
      (attr->is_global != 0 && attr->grh.sgid_index >= gids.size())) {
    return Refuse<ibv_ah>(EINVAL);
  }
  auto ah = std::make_unique<AddressHandle>();
  ah->base.context = pd->context;
  ah->base.pd = pd;
  ah->attr = *attr;
  if (attr->is_global != 0) ah->source_gid = gids[attr->grh.sgid_index];
  ah->gid_mark = GidMark(device.dials(), gids, attr->grh.dgid, *attr);
  ah->node = device.fabric().NodeOf(device, *attr);
  ah->service_level = needs_gid ? RocePacketType(ah->source_gid, attr->grh.dgid) : attr->sl;
  Pd::From(pd)->users.fetch_add(1);
  return &ah.release()->base;
}

int DestroyAh(ibv_ah* ah) {
  if (ah == nullptr) return EINVAL;
  Pd::From(ah->pd)->users.fetch_sub(1);
  delete AddressHandle::From(ah);
  return 0;
}

}  // namespace sluice::softdc
