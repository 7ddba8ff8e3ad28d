// SPDX-License-Identifier: Apache-2.0
//
// SendQueue: the send queue of a DCI, RC, UC or UD queue pair, independent of the fabric.
//
// Posting follows ibv_wr_post(3) and ibv_post_send(3). Between wr_start and wr_complete the queue keeps the first error. If there was an
// error, wr_complete drops the whole batch. Otherwise it hands the batch to the fabric's Requester. WQEs that cannot run at once wait in
// the queue, stream by stream (a queue without streams is one stream). CQEs leave in posting order, or, if the dial says so, in the order
// of each stream. A slot becomes free when its CQE, or a later CQE, is polled.
//
// A slot's life:  free -> built -> kPosted <-> kWaiting -> kDone -> CQE left (emitted) -> free
//
// Sequences count WQEs from the first, never wrap, and name slots:
//
//   released <= emitted <= posted <= head        slot = sequence & mask
//
// Threads       lock() guards everything except released_. It is held from wr_start to wr_complete or wr_abort, and by a Requester that
//               continues on another thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_SEND_QUEUE_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_SEND_QUEUE_H_

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/base/zeroed_array.h"
#include "transport/softdc/model/address_handle.h"
#include "transport/softdc/model/fabric.h"
#include "transport/softdc/model/memory_region.h"
#include "transport/softdc/model/mkey_post.h"
#include "transport/softdc/model/mkey_stage.h"
#include "transport/softdc/model/mutation.h"
#include "transport/softdc/model/qp_kind.h"
#include "transport/softdc/model/wqe.h"
#include "transport/softdc/shm/spin_lock.h"

namespace sluice::softdc {

class Context;
class Cq;
class Qp;

inline constexpr uint32_t kStreamIds = 1 << 16;
inline constexpr uint32_t kQpNumberMask = 0xffffff;
inline constexpr uint32_t kMaxInlineSges =
    64;  // pieces of one inline message through ibv_post_send

class SendQueue {
 public:
  struct Attributes {
    uint32_t max_send_wr = 0;  // as reported to the user; a power of two
    uint32_t max_send_sge = 0;
    uint32_t max_inline_bytes = 0;
    bool has_streams = false;
    uint8_t log_concurrent_streams = 0;
    uint8_t log_errored_streams = 0;
    bool signal_all = false;
    bool wr_api = false;    // IBV_QP_INIT_ATTR_SEND_OPS_FLAGS was given
    uint64_t mkey_ops = 0;  // of MLX5DV_QP_EX_WITH_*
    bool signature_pipelining = false;
  };
  SendQueue(Qp& qp, const Attributes& attributes);
  ~SendQueue();

  static SendQueue& Of(ibv_qp_ex* qp);
  static SendQueue& Of(mlx5dv_qp_ex* dv);

  Qp& qp() { return qp_; }
  Context& context() const { return context_; }
  const QpTraits& traits() const { return traits_; }
  const Attributes& attributes() const { return attributes_; }
  Cq& cq();
  uint32_t number() const { return number_; }
  SpinLock& lock() { return lock_; }

  // ibv_wr_post(3).
  void Start();
  int Complete();
  void Abort();
  // Returns a new WQE, or null if the batch has an error.
  Wqe* NewWqe(uint8_t opcode) {
    if (!RoomIsKnown() && !HasRoom()) [[unlikely]]
      return nullptr;
    return &TakeSlot(opcode);
  }
  // The steps of NewWqe, for builders that are called for each message. Returns whether the batch has no error, and a slot is free without
  // another read of released_.
  bool RoomIsKnown() const {
    return batch_error_ == 0 && missing_setters_ == 0 && head_ < room_end_;
  }
  // As RoomIsKnown, with a new read of released_. Fails the batch if no slot is free or a setter is missing.
  [[gnu::noinline]] bool HasRoom();
  Wqe& TakeSlot(uint8_t opcode) {
    Wqe& wqe = slot(head_++);
    newest_ = &wqe;
    Clear(&wqe);
    wqe.wr_id = said_.wr_id;
    static_assert(StateBits({.flags = 1}) == 1 << 8);
    SetStateBits(&wqe, opcode | (said_.wr_flags & kWqeFlags) << 8);
    if ((setters_ & kAddressSetter) == 0) [[unlikely]] {
      wqe.target_number = attr_.dest_qp_num;
      wqe.key = peer_key_;
      wqe.node = peer_node_;
    }
    missing_setters_ = IsLocal(opcode) ? 0 : setters_;
    return wqe;
  }
  WqeOperands& operands() { return operands_[(head_ - 1) & slot_mask_]; }  // of the newest WQE
  void SetSges(size_t count, const ibv_sge* sges);
  void SetSge(uint32_t lkey, uint64_t address, uint32_t length_bytes) {
    if (batch_error_ != 0 || head_ == posted_) return;
    if (length_bytes == 0 || attributes_.max_send_sge == 0) [[unlikely]] {
      return SetOneSge({.addr = address, .length = length_bytes, .lkey = lkey});
    }
    ibv_sge& sge = sges_[((head_ - 1) & slot_mask_) * attributes_.max_send_sge];
    sge.addr = address;
    sge.length = length_bytes;
    sge.lkey = lkey;
    newest_->length_bytes += length_bytes;
    newest_->num_sge = 1;
    missing_setters_ &= ~kDataSetter;
  }
  void SetInline(size_t count, const ibv_data_buf* buffers);
  void SetDcAddress(const ibv_ah* ah, uint32_t target_number, uint64_t dc_key, uint16_t stream_id) {
    if (batch_error_ != 0 || head_ == posted_) return;
    Wqe& wqe = *newest_;
    wqe.node = AddressHandle::From(ah)->node;
    wqe.target_number = target_number & kQpNumberMask;
    if (Mutated(Mutation::kAddressSetterLast) && (missing_setters_ & kDataSetter) != 0) return;
    wqe.key = dc_key ^ AddressHandle::From(ah)->gid_mark;
    wqe.stream_id = stream_id;
    wqe.service_level = AddressHandle::From(ah)->service_level;
    missing_setters_ &= ~kAddressSetter;
  }
  void SetDatagramAddress(const ibv_ah* ah, uint32_t target_number, uint32_t qkey);
  // ibv_post_send(3).
  int Post(ibv_send_wr* wr, ibv_send_wr** bad_wr);
  MkeyPoster& mkey_poster() { return mkey_poster_; }
  // mlx5dv_qp_cancel_posted_send_wrs(3).
  int Cancel(uint64_t wr_id);

  // --- For the Requester, under lock() ---
  // Number of CQEs that have left, and number of CQEs with an error among them.
  uint64_t completions() const { return completions_; }
  uint64_t failures() const { return failures_; }
  uint64_t emitted() const { return emitted_; }  // WQEs below have emitted their CQE
  uint64_t posted() const { return posted_; }    // WQEs below were handed over
  uint32_t capacity() const { return static_cast<uint32_t>(slot_mask_) + 1; }
  Wqe& slot(uint64_t sequence) { return wqes_[sequence & slot_mask_]; }
  std::span<const ibv_sge> sges(uint64_t sequence) {
    return {&sges_[(sequence & slot_mask_) * attributes_.max_send_sge], slot(sequence).num_sge};
  }
  const ibv_sge& first_sge(uint64_t sequence) const {
    return sges_[(sequence & slot_mask_) * attributes_.max_send_sge];
  }
  std::span<const std::byte> inline_data(uint64_t sequence) {
    if (slot(sequence).staged) return stages_.find(sequence & slot_mask_)->second.bytes();
    return {inline_place(sequence), slot(sequence).length_bytes};
  }
  // Returns the bytes of a WQE that is inlined and not staged.
  const std::byte* inline_place(uint64_t sequence) const {
    return inline_.data() + (sequence & slot_mask_) * attributes_.max_inline_bytes;
  }
  const WqeOperands& operands(uint64_t sequence) { return operands_[sequence & slot_mask_]; }
  StreamState& stream(const Wqe& wqe) {
    return streams_[attributes_.has_streams ? wqe.stream_id : 0];
  }
  static bool Ended(const Wqe& wqe) {
    return wqe.state == WqeState::kDone || wqe.state == WqeState::kEmitted;
  }
  uint32_t waiting() const { return waiting_; }  // WQEs that are kWaiting
  // timeout, retry_cnt, rnr_retry, path_mtu, dest_qp_num, ah_attr … as modified.
  const ibv_qp_attr& attr() const { return attr_; }
  ibv_qp_state state() const { return state_; }
  uint32_t pd() const { return pd_; }

  // Next step of a WQE: run, be flushed, or stay behind because its stream waits, its fence is not open, or the queue is in SQD.
  enum class Turn { kRun, kFlush, kBehind };
  Turn TurnOf(uint64_t sequence) {
    const Wqe& wqe = slot(sequence);
    const StreamState& of = stream(wqe);
    if (state_ == IBV_QPS_ERR || of.errored) return Turn::kFlush;
    if (of.waiting != 0 || state_ == IBV_QPS_SQD) return Turn::kBehind;
    if ((wqe.flags & IBV_SEND_FENCE) != 0 && (signature_stop_ || !FenceIsOpen(sequence))) {
      return Turn::kBehind;
    }
    return Turn::kRun;
  }
  // Wait: kPosted -> kWaiting. StopWaiting: back to kPosted, before the WQE is examined again.
  void Wait(Wqe& wqe);
  void StopWaiting(Wqe& wqe);
  // Checks local protection and length, as the own device does before it sends. Returns false if the WQE was finished with an error.
  bool CheckLocalSide(uint64_t sequence) {
    const Wqe& wqe = slot(sequence);
    if (wqe.num_sge == 1 && !ReturnsData(wqe.opcode) && !wqe.inlined && !wqe.staged &&
        wqe.length_bytes <= max_plain_bytes_ &&
        FindLocalRegion(context_, first_sge(sequence), pd_, /*access=*/0) != nullptr) {
      return true;
    }
    return CheckLocalSideFully(sequence);
  }
  // The part of the check that stays valid for one doorbell: the region of the last SGE.
  struct LocalRange {
    uint32_t lkey = 0;
    uint64_t begin = 0;
    uint64_t bytes = 0;

    bool Covers(const ibv_sge& sge) const {
      const uint64_t into = sge.addr - begin;
      return sge.lkey == lkey && into <= bytes && sge.length <= bytes - into;
    }
  };
  // Checks an SGE that is only read, in a WQE of at most max_plain_bytes(). Returns false without side effects if CheckLocalSide must
  // decide.
  bool CheckPlainSide(const ibv_sge& sge, LocalRange* known) const {
    if (known->Covers(sge)) [[likely]]
      return true;
    const shm::MemoryRegionEntry* region = FindLocalRegion(context_, sge, pd_, /*access=*/0);
    if (region == nullptr) return false;
    *known = {.lkey = sge.lkey, .begin = region->address, .bytes = region->length_bytes};
    return true;
  }
  uint32_t max_plain_bytes() const { return max_plain_bytes_; }
  // Returns whether nothing waits and nothing has failed. TurnOf then returns kRun for each WQE without a fence, until a WQE fails or
  // waits.
  bool Calm() const { return state_ == IBV_QPS_RTS && errored_streams_ == 0 && waiting_ == 0; }
  // Executes and finishes an operation of the own device alone (IsLocal), or a cancelled WQE. Returns false while copies through the window
  // that the WQE names are in progress; the caller retries soon.
  bool RunLocally(uint64_t sequence);
  // Sets the status of the WQE. An error stops its stream, and the whole queue once the error budget is spent.
  void Finish(Wqe& wqe, ibv_wc_status status, uint32_t vendor_error);
  // As Finish with success, for a WQE that never waited and is not staged.
  static void FinishPlain(Wqe& wqe) {
    // The status of a new WQE is already success.
    static_assert(IBV_WC_SUCCESS == 0 && static_cast<int>(WqeState::kPosted) == 0);
    SetStateBits(&wqe, StateBits({.state = WqeState::kDone}));
  }
  void Flush(Wqe& wqe) { Finish(wqe, IBV_WC_WR_FLUSH_ERR, kVendorErrorFlushed); }
  // Ends a pass: flushes WQEs behind an error, and emits CQEs.
  void Settle() {
    if (errored_streams_ != 0) FlushErrored();
    if (emitted_ != posted_) EmitCompletions();
    if (signature_stop_) DrainAfterMismatch();
  }
  // As Settle, for a pass over one WQE, at `sequence`, which has succeeded.
  [[gnu::always_inline]] void SettleAlone(uint64_t sequence, const Wqe& wqe) {
    const uint64_t signalled = StateWord(wqe) & StateBits({.flags = IBV_SEND_SIGNALED});
    if (signalled == 0 && emitted_ == sequence && silent_unless_asked_ && !signature_stop_ &&
        !Mutated(Mutation::kCqeOrderOff)) [[likely]] {
      emitted_ = sequence + 1;
    } else {
      Settle();
    }
  }
  // Returns whether some WQE of the stream has no status yet.
  bool HasUnfinished(uint16_t stream_id);

 private:
  friend class MkeyPoster;
  friend class Qp;
  static constexpr uint8_t kDataSetter = 1;
  static constexpr uint8_t kAddressSetter = 2;
  static constexpr uint8_t kMkeySetters = 4;

  static constexpr unsigned kWqeFlags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE;

  void Fail(int error);  // fails the batch; the first error stays
  [[gnu::noinline]] void SetOneSge(const ibv_sge& sge) { SetSges(1, &sge); }
  int BuildPosted(const ibv_send_wr& wr);
  void HandOver();
  bool FenceIsOpen(uint64_t sequence);
  bool CheckLocalSideFully(uint64_t sequence);
  // Stages a WQE with a local SGE that names an indirect key. Returns false if the WQE was finished with an error.
  bool StageMkeys(uint64_t sequence);
  void LeaveStage(const Wqe& wqe, bool succeeded);
  // RTS -> SQD, once all WQEs before the first fenced WQE have ended.
  void DrainAfterMismatch();
  void FlushErrored();
  void SpendBudget();
  void EmitCompletions();
  void EmitPerStream();
  void Emit(const Wqe& wqe, uint64_t sequence);
  // For Qp, under lock(). EnterError flushes all WQEs in the queue; Reset drops them without completions.
  void EnterError();
  void Reset();

  Qp& qp_;
  Context& context_;
  const QpTraits& traits_;
  const Attributes attributes_;
  const uint32_t number_;
  const uint32_t pd_;
  const uint32_t max_plain_bytes_;  // maximum that the device sends in one message
  const ibv_qp_ex& said_;           // wr_id and wr_flags of the next WQE
  const uint64_t slot_mask_;
  std::vector<Wqe> wqes_;
  std::vector<ibv_sge> sges_;
  std::vector<std::byte> inline_;
  std::vector<WqeOperands> operands_;
  base::ZeroedArray<StreamState> streams_;
  const bool per_stream_;           // CQEs leave in the order of each stream, not of the queue
  const bool flush_completes_;      // flushed WQEs complete, even if they are not signalled
  const bool silent_unless_asked_;  // neither per_stream_ nor signal_all

  SpinLock lock_;
  // Below: under lock_.
  uint64_t head_ = 0;     // next to build
  uint64_t posted_ = 0;   // head_ at wr_start
  uint64_t emitted_ = 0;  // next WQE to emit its CQE
  uint32_t waiting_ = 0;
  uint32_t errored_streams_ = 0;
  uint64_t latest_emitted_ = 0;  // the highest sequence whose CQE has left
  uint64_t emit_pass_ = 0;
  uint64_t completions_ = 0;
  uint64_t failures_ = 0;
  uint64_t resets_ = 0;
  bool stopping_ = false;  // the budget is spent, ERR follows
  Wqe* newest_ = nullptr;  // WQE at head_ - 1, if head_ != posted_
  uint64_t room_end_ = 0;  // slots below are free; when head_ is there, HasRoom reads released_
  int batch_error_ = 0;
  uint8_t setters_ = 0;          // setters that a WQE of this queue needs
  uint8_t missing_setters_ = 0;  // of the WQE being built; 0 when a batch begins
  NodeId peer_node_ = kNoNode;   // of a connected queue
  uint64_t peer_key_ = 0;
  ibv_qp_attr attr_{};
  ibv_qp_state state_ = IBV_QPS_RESET;
  MkeyPoster mkey_poster_{*this};
  std::unordered_map<uint64_t, MkeyStage> stages_;  // by slot
  bool signature_stop_ = false;  // a mismatch was found: fenced WQEs do not start
  std::unique_ptr<Requester> requester_;

  std::atomic<uint64_t> released_{0};  // stored by the CQ when a CQE of this queue is polled
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_SEND_QUEUE_H_
