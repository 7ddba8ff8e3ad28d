// SPDX-License-Identifier: Apache-2.0
//
// Device, PD, MR, CQ, SRQ and AH. QPs are in verbs_qp.cc.
#include "transport/softdc/verbs_objects.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "transport/softdc/device.h"
#include "transport/softdc/loop/gids.h"
#include "transport/softdc/model/address_handle.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/memory_region.h"
#include "transport/softdc/model/srq.h"

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
  auto** list = new ibv_device* [2] { Device(), nullptr };
  if (count != nullptr) *count = 1;
  return list;
}

void FreeDeviceList(ibv_device** list) { delete[] list; }
const char* GetDeviceName(ibv_device* device) { return device->name; }
__be64 GetDeviceGuid(ibv_device*) { return NodeGuid(); }

ibv_context* OpenDevice(ibv_device* device) {
  if (device != Device()) return Refuse<ibv_context>(EINVAL);
  Context* context = Context::Open(device);
  return context == nullptr ? nullptr : context->base();
}

int CloseDevice(ibv_context* context) {
  Context* softdc_context = Context::From(context);
  if (softdc_context->objects().load() != 0) return EBUSY;
  delete softdc_context;
  return 0;
}

int QueryGid(ibv_context*, uint8_t port_num, int index, ibv_gid* gid) {
  const std::vector<Gid> gids = LocalGids();
  if (port_num != kPort || index < 0 || index >= static_cast<int>(kMaxGids)) {
    errno = EINVAL;
    return -1;
  }
  *gid = static_cast<size_t>(index) < gids.size() ? gids[index] : Gid{};
  return 0;
}

int QueryPkey(ibv_context*, uint8_t port_num, int index, __be16* pkey) {
  if (port_num != kPort || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *pkey = 0xffff;
  return 0;
}

int GetAsyncEvent(ibv_context* context, ibv_async_event* event) {
  return Context::From(context)->GetAsyncEvent(event);
}

void AckAsyncEvent(ibv_async_event*) {}

ibv_pd* AllocPd(ibv_context* context) {
  auto pd = std::make_unique<Pd>();
  pd->base.context = context;
  pd->number = Context::From(context)->NextPdNumber();
  pd->base.handle = pd->number;
  Context::From(context)->objects().fetch_add(1);
  return &pd.release()->base;
}

int DeallocPd(ibv_pd* pd) {
  if (Pd::From(pd)->users.load() != 0) return EBUSY;
  Context::From(pd->context)->objects().fetch_sub(1);
  delete Pd::From(pd);
  return 0;
}

ibv_mr* RegMr(ibv_pd* pd, void* address, size_t length_bytes, int access) {
  return RegisterMemory(pd, address, length_bytes, access);
}

int DeregMr(ibv_mr* mr) { return DeregisterMemory(mr); }

ibv_comp_channel* CreateCompChannel(ibv_context* context) {
  auto channel = std::make_unique<CompletionChannel>();
  channel->base.context = context;
  channel->base.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  if (channel->base.fd < 0) return nullptr;
  Context::From(context)->objects().fetch_add(1);
  return &channel.release()->base;
}

int DestroyCompChannel(ibv_comp_channel* base) {
  CompletionChannel* channel = CompletionChannel::From(base);
  {
    std::lock_guard lock(channel->mutex);
    if (!channel->cqs.empty()) return EBUSY;
  }
  close(base->fd);
  Context::From(base->context)->objects().fetch_sub(1);
  delete channel;
  return 0;
}

ibv_cq* CreateCq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                 int comp_vector) {
  if (comp_vector < 0 || comp_vector >= context->num_comp_vectors) return Refuse<ibv_cq>(EINVAL);
  auto cq = Cq::Create(*Context::From(context), cqe,
                       channel == nullptr ? nullptr : CompletionChannel::From(channel), cq_context);
  if (cq == nullptr) return nullptr;
  Context::From(context)->objects().fetch_add(1);
  return &cq.release()->base;
}

int DestroyCq(ibv_cq* cq) {
  if (Cq::From(cq)->users().load() != 0) return EBUSY;
  Context::From(cq->context)->objects().fetch_sub(1);
  delete Cq::From(cq);
  return 0;
}

int GetCqEvent(ibv_comp_channel* base, ibv_cq** cq, void** cq_context) {
  CompletionChannel* channel = CompletionChannel::From(base);
  for (;;) {
    uint64_t one = 0;
    if (read(base->fd, &one, sizeof(one)) != sizeof(one))
      return -1;  // errno of read, EAGAIN as well
    std::lock_guard lock(channel->mutex);
    for (size_t i = 0; i < channel->cqs.size(); ++i) {
      Cq* candidate = channel->cqs[channel->next++ % channel->cqs.size()];
      if (!candidate->TakeEvent()) continue;
      *cq = &candidate->base;
      *cq_context = candidate->base.cq_context;
      return 0;
    }
    // Rung twice for one event, which happens when the process that owed it died in between: wait
    // on.
  }
}

void AckCqEvents(ibv_cq*, unsigned int) {}

ibv_srq* CreateSrq(ibv_pd* pd, ibv_srq_init_attr* init) {
  auto srq = Srq::Create(*Context::From(pd->context), &init->attr);
  if (srq == nullptr) return nullptr;
  srq->base.context = pd->context;
  srq->base.srq_context = init->srq_context;
  srq->base.pd = pd;
  srq->base.handle = srq->id();
  Pd::From(pd)->users.fetch_add(1);
  return &srq.release()->base;
}

int ModifySrq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  return Srq::From(srq)->Modify(*attr, mask);
}

int QuerySrq(ibv_srq* srq, ibv_srq_attr* attr) { return Srq::From(srq)->Query(attr); }

int DestroySrq(ibv_srq* srq) {
  if (Srq::From(srq)->users().load() != 0) return EBUSY;
  Pd::From(srq->pd)->users.fetch_sub(1);
  delete Srq::From(srq);
  return 0;
}

ibv_ah* CreateAh(ibv_pd* pd, ibv_ah_attr* attr) {
  // RoCE has no address but the GID.
  if (attr->port_num != kPort || attr->is_global == 0 ||
      attr->grh.sgid_index >= LocalGids().size()) {
    return Refuse<ibv_ah>(EINVAL);
  }
  auto ah = std::make_unique<AddressHandle>();
  ah->base.context = pd->context;
  ah->base.pd = pd;
  ah->is_global = true;
  ah->reachable = IndexOfGid(attr->grh.dgid) >= 0;
  Pd::From(pd)->users.fetch_add(1);
  return &ah.release()->base;
}

int DestroyAh(ibv_ah* ah) {
  Pd::From(ah->pd)->users.fetch_sub(1);
  delete AddressHandle::From(ah);
  return 0;
}

}  // namespace sluice::softdc
