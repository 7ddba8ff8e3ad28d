// SPDX-License-Identifier: Apache-2.0
//
// Completion channels, completion queues and shared receive queues.
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/mutation.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace {

constexpr uint32_t kKnownCqMask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
constexpr uint32_t kKnownCqFlags =
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
constexpr uint64_t kKnownDvCqMask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE |
                                    MLX5DV_CQ_INIT_ATTR_MASK_FLAGS |
                                    MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
constexpr uint32_t kKnownSrqMask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                   IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
                                   IBV_SRQ_INIT_ATTR_TM;

template <typename T>
T* Refuse(int error) {
  errno = error;
  return nullptr;
}

// The size of a hardware CQE has no effect here. As the driver, softdc accepts only these two sizes, also from the environment.
bool IsCqeSize(int size_bytes) { return size_bytes == 64 || size_bytes == 128; }

bool EnvironmentNamesNoCqeSize() {
  const char* const size = std::getenv("MLX5_CQE_SIZE");
  return size != nullptr && !IsCqeSize(std::atoi(size));
}

Cq* NewCq(ibv_context* context, const Cq::Shape& shape, int64_t comp_vector) {
  if (comp_vector < 0 || comp_vector >= context->num_comp_vectors ||
      (shape.channel != nullptr && shape.channel->base.context != context)) {
    return Refuse<Cq>(EINVAL);
  }
  auto cq = Cq::Create(*Context::From(context), shape);
  if (cq == nullptr) return nullptr;
  Context::From(context)->objects().fetch_add(1);
  return cq.release();
}

}  // namespace

ibv_comp_channel* CreateCompChannel(ibv_context* context) {
  if (context == nullptr) return Refuse<ibv_comp_channel>(EINVAL);
  CompletionChannel* channel = CompletionChannel::Create(context);
  return channel == nullptr ? nullptr : &channel->base;
}

int DestroyCompChannel(ibv_comp_channel* base) {
  return base == nullptr ? EINVAL : CompletionChannel::From(base)->Destroy();
}

ibv_cq* CreateCq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                 int comp_vector) {
  if (context == nullptr || cqe <= 0 || EnvironmentNamesNoCqeSize()) return Refuse<ibv_cq>(EINVAL);
  Cq* cq = NewCq(context,
                 {.cqe = static_cast<uint32_t>(cqe),
                  .channel = channel == nullptr ? nullptr : CompletionChannel::From(channel),
                  .cq_context = cq_context},
                 comp_vector);
  return cq == nullptr ? nullptr : &cq->base;
}

// ibv_create_cq_ex without the check of the environment, over which an mlx5dv_cq_init_attr has precedence.
static ibv_cq_ex* CreateCqOf(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  if (context == nullptr || attr == nullptr || (attr->comp_mask & ~kKnownCqMask) != 0) {
    return Refuse<ibv_cq_ex>(EINVAL);
  }
  const bool has_domain = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0;
  if (has_domain && (attr->parent_domain == nullptr || attr->parent_domain->context != context ||
                     Pd::From(attr->parent_domain)->parent == nullptr)) {
    return Refuse<ibv_cq_ex>(EINVAL);
  }
  const uint32_t flags =
      (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attr->flags : uint32_t{0};
  if ((flags & ~kKnownCqFlags) != 0) return Refuse<ibv_cq_ex>(EINVAL);
  Cq* cq =
      NewCq(context,
            {.cqe = attr->cqe,
             .channel = attr->channel == nullptr ? nullptr : CompletionChannel::From(attr->channel),
             .cq_context = attr->cq_context,
             .extended = true,
             .wc_flags = attr->wc_flags,
             .single_threaded = (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0,
             .ignore_overrun = (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0 &&
                               !Mutated(Mutation::kIgnoredOverrunFails)},
            attr->comp_vector);
  return cq == nullptr ? nullptr : &cq->ex;
}

ibv_cq_ex* CreateCqEx(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  if (EnvironmentNamesNoCqeSize()) return Refuse<ibv_cq_ex>(EINVAL);
  return CreateCqOf(context, attr);
}

ibv_cq_ex* DvCreateCq(ibv_context* context, ibv_cq_init_attr_ex* attr, mlx5dv_cq_init_attr* dv) {
  if (dv == nullptr || (dv->comp_mask & ~kKnownDvCqMask) != 0) return Refuse<ibv_cq_ex>(EINVAL);
  // Without the capability (mlx5dv_query_device) there is no compressed form to choose.
  if ((dv->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE) != 0) {
    return Refuse<ibv_cq_ex>(EINVAL);
  }
  if ((dv->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_FLAGS) != 0 && dv->flags != 0) {
    return Refuse<ibv_cq_ex>(EINVAL);
  }
  const bool sized = (dv->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE) != 0;
  if (sized ? !IsCqeSize(dv->cqe_size) : EnvironmentNamesNoCqeSize()) {
    return Refuse<ibv_cq_ex>(EINVAL);
  }
  return CreateCqOf(context, attr);
}

int ResizeCq(ibv_cq* cq, int cqe) { return cq == nullptr ? EINVAL : Cq::From(cq)->Resize(cqe); }

int DestroyCq(ibv_cq* cq) {
  if (cq == nullptr) return EINVAL;
  if (Cq::From(cq)->users().load() != 0) return Mutated(Mutation::kBusyIsDestroyed) ? 0 : EBUSY;
  Context& context = *Context::From(cq->context);
  delete Cq::From(cq);
  context.objects().fetch_sub(1);
  return 0;
}

int GetCqEvent(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  if (channel == nullptr || cq == nullptr || cq_context == nullptr) {
    errno = EINVAL;
    return -1;
  }
  Cq* found = CompletionChannel::From(channel)->NextEvent();
  if (found == nullptr) return -1;
  *cq = &found->base;
  *cq_context = found->base.cq_context;
  return 0;
}

void AckCqEvents(ibv_cq* cq, unsigned int count) {
  if (cq != nullptr) Cq::From(cq)->events().Acknowledge(count);
}

ibv_srq* CreateSrq(ibv_pd* pd, ibv_srq_init_attr* init) {
  if (pd == nullptr || init == nullptr) return Refuse<ibv_srq>(EINVAL);
  auto srq = Srq::Create(pd, &init->attr);
  if (srq == nullptr) return nullptr;
  srq->base.srq_context = init->srq_context;
  Pd::From(pd)->users.fetch_add(1);
  return &srq.release()->base;
}

ibv_srq* CreateSrqEx(ibv_context* context, ibv_srq_init_attr_ex* init) {
  if (context == nullptr || init == nullptr) return Refuse<ibv_srq>(EINVAL);
  if ((init->comp_mask & ~kKnownSrqMask) != 0) return Refuse<ibv_srq>(ENOSYS);
  const bool typed = (init->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0;
  if (typed && init->srq_type != IBV_SRQT_BASIC) {
    return Refuse<ibv_srq>(
        init->srq_type == IBV_SRQT_XRC || init->srq_type == IBV_SRQT_TM ? EOPNOTSUPP : EINVAL);
  }
  if ((init->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || init->pd == nullptr ||
      init->pd->context != context) {
    return Refuse<ibv_srq>(EINVAL);
  }
  ibv_srq_init_attr basic{.srq_context = init->srq_context, .attr = init->attr};
  ibv_srq* srq = CreateSrq(init->pd, &basic);
  if (srq != nullptr) init->attr = basic.attr;
  return srq;
}

int GetSrqNum(ibv_srq* srq, uint32_t* number) {
  if (srq == nullptr || number == nullptr) return EINVAL;
  *number = Srq::From(srq)->id();
  return 0;
}

int ModifySrq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  return srq == nullptr || attr == nullptr ? EINVAL : Srq::From(srq)->Modify(*attr, mask);
}

int QuerySrq(ibv_srq* srq, ibv_srq_attr* attr) {
  return srq == nullptr || attr == nullptr ? EINVAL : Srq::From(srq)->Query(attr);
}

int DestroySrq(ibv_srq* srq) {
  if (srq == nullptr) return EINVAL;
  if (Srq::From(srq)->users().load() != 0) return EBUSY;
  Pd& pd = *Pd::From(srq->pd);
  delete Srq::From(srq);
  pd.users.fetch_sub(1);
  return 0;
}

}  // namespace sluice::softdc
