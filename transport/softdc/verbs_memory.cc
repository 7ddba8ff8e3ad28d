// SPDX-License-Identifier: Apache-2.0
//
// Protection domains, thread domains, memory regions and windows.
#include <atomic>
#include <cerrno>
#include <memory>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/memory_region.h"
#include "transport/softdc/model/memory_window.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace {

constexpr uint32_t kKnownDomainMask =
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
constexpr int kReregFlags =
    IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;

// Optional flags, which a device may ignore. softdc ignores all except IBV_ACCESS_RELAXED_ORDERING.
constexpr int kIgnoredAccess =
    static_cast<int>(IBV_ACCESS_OPTIONAL_RANGE) & ~IBV_ACCESS_RELAXED_ORDERING;

// The user promises that one thread at a time uses the objects of a thread domain. softdc does not depend on the promise.
struct ThreadDomain {
  ibv_td base{};
  std::atomic<int> users{0};
  static ThreadDomain* From(ibv_td* td) { return reinterpret_cast<ThreadDomain*>(td); }
};

template <typename T>
T* Refuse(int error) {
  errno = error;
  return nullptr;
}

}  // namespace

ibv_pd* AllocPd(ibv_context* context) {
  if (context == nullptr) return Refuse<ibv_pd>(EINVAL);
  auto pd = std::make_unique<Pd>();
  pd->base.context = context;
  pd->number = Context::From(context)->NextPdNumber();
  pd->base.handle = pd->number;
  Context::From(context)->objects().fetch_add(1);
  return &pd.release()->base;
}

int DeallocPd(ibv_pd* pd) {
  if (pd == nullptr) return EINVAL;
  if (Pd::From(pd)->users.load() != 0) return EBUSY;
  const std::unique_ptr<Pd> ended(Pd::From(pd));
  if (ended->parent != nullptr) ended->parent->users.fetch_sub(1);
  if (ended->td != nullptr) ThreadDomain::From(ended->td)->users.fetch_sub(1);
  Context::From(pd->context)->objects().fetch_sub(1);
  return 0;
}

ibv_td* AllocTd(ibv_context* context, ibv_td_init_attr* attr) {
  if (context == nullptr || attr == nullptr) return Refuse<ibv_td>(EINVAL);
  if (attr->comp_mask != 0) return Refuse<ibv_td>(EINVAL);
  auto td = std::make_unique<ThreadDomain>();
  td->base.context = context;
  Context::From(context)->objects().fetch_add(1);
  return &td.release()->base;
}

int DeallocTd(ibv_td* td) {
  if (td == nullptr) return EINVAL;
  if (ThreadDomain::From(td)->users.load() != 0) return EBUSY;
  Context::From(td->context)->objects().fetch_sub(1);
  delete ThreadDomain::From(td);
  return 0;
}

ibv_pd* AllocParentDomain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  if (context == nullptr || attr == nullptr || attr->pd == nullptr ||
      attr->pd->context != context || (attr->comp_mask & ~kKnownDomainMask) != 0) {
    return Refuse<ibv_pd>(EINVAL);
  }
  Pd* parent = Pd::From(attr->pd);
  if (parent->parent != nullptr || (attr->td != nullptr && attr->td->context != context)) {
    return Refuse<ibv_pd>(EINVAL);
  }
  auto domain = std::make_unique<Pd>();
  domain->base.context = context;
  domain->base.handle = parent->base.handle;
  domain->number = parent->number;  // protection is that of the parent
  domain->parent = parent;
  domain->td = attr->td;
  parent->users.fetch_add(1);
  if (attr->td != nullptr) ThreadDomain::From(attr->td)->users.fetch_add(1);
  Context::From(context)->objects().fetch_add(1);
  return &domain.release()->base;
}

ibv_mr* RegMr(ibv_pd* pd, void* address, size_t length_bytes, int access) {
  if (pd == nullptr) return Refuse<ibv_mr>(EINVAL);
  return RegisterMemory(pd, address, length_bytes, access & ~kIgnoredAccess);
}

int ReregMr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, size_t length_bytes, int access) {
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  if (mr == nullptr || flags == 0 || (flags & ~kReregFlags) != 0 ||
      (moves && (address == nullptr || length_bytes == 0)) ||
      ((flags & IBV_REREG_MR_CHANGE_PD) != 0 && (pd == nullptr || pd->context != mr->context)) ||
      (access != 0 && (flags & IBV_REREG_MR_CHANGE_ACCESS) == 0)) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  if ((flags & IBV_REREG_MR_CHANGE_PD) == 0) pd = mr->pd;
  access = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? access & ~kIgnoredAccess : AccessOf(*mr);
  int error = moves ? kNeedsNewKeys : ChangeRights(mr, pd, access);
  if (error == kNeedsNewKeys) {
    error = ReregisterMemory(mr, pd, moves ? address : mr->addr, moves ? length_bytes : mr->length,
                             access);
  }
  return error == 0 ? 0 : IBV_REREG_MR_ERR_CMD;
}

int DeregMr(ibv_mr* mr) { return mr == nullptr ? EINVAL : DeregisterMemory(mr); }

ibv_mw* AllocMw(ibv_pd* pd, ibv_mw_type type) {
  return pd == nullptr ? Refuse<ibv_mw>(EINVAL) : AllocateWindow(pd, type);
}

int DeallocMw(ibv_mw* mw) { return mw == nullptr ? EINVAL : DeallocateWindow(mw); }

}  // namespace sluice::softdc
