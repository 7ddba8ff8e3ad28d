// SPDX-License-Identifier: Apache-2.0
//
// Extended polling: ibv_create_cq_ex(3). Polling takes one completion at a time. The functions that the user requested at creation read its
// fields.
#include <cerrno>
#include <ctime>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/mutation.h"

namespace sluice::softdc {

struct CqExOps {
  static int Take(Cq& cq) {
    if (cq.PollStamped(1, &cq.current_.wc, &cq.current_.timestamp_ns) == 0) return ENOENT;
    cq.ex.wr_id = cq.current_.wc.wr_id;
    cq.ex.status = cq.current_.wc.status;
    return 0;
  }
  static int StartPoll(ibv_cq_ex* ex, ibv_poll_cq_attr* attr) {
    if (attr == nullptr || attr->comp_mask != 0) return EINVAL;
    Cq& cq = *Cq::From(ex);
    if (!cq.single_threaded_) cq.ex_lock_.Lock();
    const int result = Take(cq);
    // Without a completion, the user does not call end_poll.
    if (result != 0 && !cq.single_threaded_) cq.ex_lock_.Unlock();
    return result;
  }
  static int NextPoll(ibv_cq_ex* ex) { return Take(*Cq::From(ex)); }
  static void EndPoll(ibv_cq_ex* ex) {
    Cq& cq = *Cq::From(ex);
    if (!cq.single_threaded_) cq.ex_lock_.Unlock();
  }

  static const ibv_wc& Wc(ibv_cq_ex* ex) { return Cq::From(ex)->current_.wc; }
  static ibv_wc_opcode Opcode(ibv_cq_ex* ex) { return Wc(ex).opcode; }
  static uint32_t VendorError(ibv_cq_ex* ex) { return Wc(ex).vendor_err; }
  static uint32_t ByteLen(ibv_cq_ex* ex) { return Wc(ex).byte_len; }
  static __be32 ImmData(ibv_cq_ex* ex) { return Wc(ex).imm_data; }
  static uint32_t QpNum(ibv_cq_ex* ex) { return Wc(ex).qp_num; }
  static uint32_t SrcQp(ibv_cq_ex* ex) {
    return Mutated(Mutation::kExtendedForgetsSource) ? 0 : Wc(ex).src_qp;
  }
  static unsigned WcFlags(ibv_cq_ex* ex) { return Wc(ex).wc_flags; }
  static uint32_t Slid(ibv_cq_ex* ex) { return Wc(ex).slid; }
  static uint8_t Sl(ibv_cq_ex* ex) { return Wc(ex).sl; }
  static uint8_t DlidPathBits(ibv_cq_ex* ex) { return Wc(ex).dlid_path_bits; }
  // The device's clock ticks once a nanosecond (ibv_query_device_ex: hca_core_clock).
  static uint64_t Timestamp(ibv_cq_ex* ex) {
    return static_cast<uint64_t>(Cq::From(ex)->current_.timestamp_ns);
  }
  static uint64_t WallclockNs(ibv_cq_ex* ex) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t wall_ns = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
    const Cq& cq = *Cq::From(ex);
    const int64_t now_ns = cq.context_.device().fabric().NowNs();
    return static_cast<uint64_t>(wall_ns - (now_ns - cq.current_.timestamp_ns));
  }
};

void Cq::FillExOps(uint64_t wc_flags) {
  const auto requested = [wc_flags](uint64_t flag) { return (wc_flags & flag) != 0; };
  ex.start_poll = &CqExOps::StartPoll;
  ex.next_poll = &CqExOps::NextPoll;
  ex.end_poll = &CqExOps::EndPoll;
  ex.read_opcode = &CqExOps::Opcode;
  ex.read_vendor_err = &CqExOps::VendorError;
  ex.read_wc_flags = &CqExOps::WcFlags;
  if (requested(IBV_WC_EX_WITH_BYTE_LEN)) ex.read_byte_len = &CqExOps::ByteLen;
  if (requested(IBV_WC_EX_WITH_IMM)) ex.read_imm_data = &CqExOps::ImmData;
  if (requested(IBV_WC_EX_WITH_QP_NUM)) ex.read_qp_num = &CqExOps::QpNum;
  if (requested(IBV_WC_EX_WITH_SRC_QP)) ex.read_src_qp = &CqExOps::SrcQp;
  if (requested(IBV_WC_EX_WITH_SLID)) ex.read_slid = &CqExOps::Slid;
  if (requested(IBV_WC_EX_WITH_SL)) ex.read_sl = &CqExOps::Sl;
  if (requested(IBV_WC_EX_WITH_DLID_PATH_BITS)) ex.read_dlid_path_bits = &CqExOps::DlidPathBits;
  if (requested(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)) ex.read_completion_ts = &CqExOps::Timestamp;
  if (requested(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)) {
    ex.read_completion_wallclock_ns = &CqExOps::WallclockNs;
  }
}

}  // namespace sluice::softdc
