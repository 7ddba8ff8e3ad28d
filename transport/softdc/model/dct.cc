// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/dct.h"

#include <cerrno>
#include <utility>
#include <vector>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/gid_mark.h"
#include "transport/softdc/model/mtu.h"
#include "transport/softdc/model/mutation.h"
#include "transport/softdc/model/pkey.h"
#include "transport/softdc/model/qp.h"
#include "transport/softdc/model/qp_transitions.h"
#include "transport/softdc/model/srq.h"

namespace sluice::softdc {
namespace {
constexpr uint8_t kPort = 1;
constexpr uint8_t kMinHopLimit = 2;
constexpr uint8_t kDefaultHopLimit = 64;
constexpr int kQueryable = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT | IBV_QP_MIN_RNR_TIMER |
                           IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_PKEY_INDEX;
constexpr int kRemoteAccess =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
}  // namespace

bool Dct::Is(const ibv_qp* qp) {
  return qp != nullptr && qp->qp_type == IBV_QPT_DRIVER && qp->handle == kDctHandle;
}

Dct::Dct(Context& context, uint64_t dc_key) : context_(context), dc_key_(dc_key) {
  base.qp_type = IBV_QPT_DRIVER;
  base.handle = kDctHandle;
  base.state = IBV_QPS_RESET;
}

Dct::~Dct() {
  if (responder_ == nullptr) return;
  responder_.reset();
  context_.port().FreeNumber(base.qp_num);
}

int Dct::Modify(const ibv_qp_attr& attr, int attr_mask) {
  if ((attr_mask & IBV_QP_STATE) == 0 ||
      FindTransition(DctTransitions(), state_, attr.qp_state, attr_mask) == nullptr) {
    return EINVAL;
  }
  if (attr.qp_state == IBV_QPS_INIT) {
    if (attr.port_num != kPort || attr.pkey_index >= PkeyCount(context_.dials())) return EINVAL;
    if ((attr.qp_access_flags & ~static_cast<unsigned>(kRemoteAccess | IBV_ACCESS_LOCAL_WRITE)) !=
        0) {
      return EINVAL;
    }
    attr_.port_num = attr.port_num;
    attr_.pkey_index = attr.pkey_index;
    attr_.qp_access_flags = attr.qp_access_flags;
    if (Mutated(Mutation::kNumberBeforeReady)) base.qp_num = 1;
  } else {
    if (attr.ah_attr.port_num != attr_.port_num || attr.path_mtu < IBV_MTU_256 ||
        MtuBytes(attr.path_mtu) > context_.dials().port.active_mtu) {
      return EINVAL;
    }
    attr_.ah_attr = attr.ah_attr;
    if (attr_.ah_attr.grh.hop_limit < kMinHopLimit && !Mutated(Mutation::kKeepHopLimit)) {
      attr_.ah_attr.grh.hop_limit = kDefaultHopLimit;
    }
    attr_.path_mtu = attr.path_mtu;
    attr_.min_rnr_timer = attr.min_rnr_timer;
    if (ece_pending_options_ != 0) ece_options_ = ece_pending_options_;
    const int error = BecomeReady();
    if (error != 0) return error;
  }
  state_ = attr.qp_state;
  base.state = state_;
  return 0;
}

int Dct::BecomeReady() {
  auto responder =
      Responder::Create(context_, *Cq::From(base.recv_cq), *Srq::From(base.srq), /*life=*/nullptr);
  if (responder == nullptr) return ENOMEM;
  const uint32_t number = context_.port().AllocateNumber();
  if (number == kNoNumber) return ENOMEM;
  base.qp_num = number;
  responder_ = std::move(responder);
  responder_->Open({.type = shm::TargetType::kDct,
                    .number = number,
                    .key = dc_key_ ^ OwnMark(),
                    .access = attr_.qp_access_flags,
                    .pd = Pd::From(base.pd)->number,
                    .min_rnr_timer = attr_.min_rnr_timer,
                    .path_mtu = attr_.path_mtu,
                    .pkey = PkeyAt(context_.dials(), attr_.pkey_index)});
  return 0;
}

uint64_t Dct::OwnMark() const {
  const SoftDevice& device = context_.device();
  const std::vector<Gid> gids = device.fabric().Gids(device);
  const uint8_t index = attr_.ah_attr.grh.sgid_index;
  return index < gids.size() ? GidMark(device.dials(), gids, gids[index], attr_.ah_attr) : 0;
}

int Dct::Query(ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init) {
  if (state_ != IBV_QPS_RTR || (attr_mask & ~kQueryable) != 0) return EINVAL;
  *attr = attr_;
  attr->qp_state = IBV_QPS_RTR;
  attr->cur_qp_state = IBV_QPS_RTR;
  if (init != nullptr) {
    *init = {};
    init->qp_context = base.qp_context;
    init->send_cq = base.send_cq;
    init->recv_cq = base.recv_cq;
    init->srq = base.srq;
    init->qp_type = IBV_QPT_DRIVER;
  }
  return 0;
}

int Dct::SetEce(const ibv_ece& ece) {
  if (ece.comp_mask != 0 || ece.vendor_id != kEceVendor) return EINVAL;
  if (!context_.dials().features.ece) return EOPNOTSUPP;
  ece_pending_options_ = ece.options & context_.dials().features.ece_options;
  return 0;
}

int Dct::QueryEce(ibv_ece* ece) {
  *ece = {.vendor_id = kEceVendor, .options = ece_options_, .comp_mask = 0};
  return 0;
}

}  // namespace sluice::softdc
