// SPDX-License-Identifier: Apache-2.0
//
// Dci: a DC initiator and its send queue.
//
// Posting follows ibv_wr_post(3): errors add up between wr_start and wr_complete, and wr_complete
// throws the whole batch away if there were any. What can run runs at once, inside wr_complete, on
// the poster's CPU; the rest waits in the queue, stream by stream, and is continued by the Loop
// thread. CQEs leave in posting order.
//
// Thread-safety: lock() guards the queue: held from wr_start to wr_complete or wr_abort, and by the
// Loop thread while it continues. Slots come back when their CQE, or a later one, is polled.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_DCI_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_DCI_H_

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/softdc/model/wqe.h"
#include "transport/softdc/shm/spin_lock.h"

namespace sluice::softdc {

class Context;
struct Continuation;
class Cq;
struct Target;

inline constexpr uint32_t kMaxSendWr = 32768;
inline constexpr uint32_t kMaxSendSge = 16;
inline constexpr uint32_t kMaxInlineBytes = 512;
inline constexpr uint8_t kMaxLogStreams = 6;
inline constexpr uint8_t kMaxLogErroredStreams = 4;
inline constexpr uint32_t kStreamIds = 1 << 16;
inline constexpr uint32_t kTargetCacheEntries =
    256;                                   // direct-mapped by number; a miss asks the context
inline constexpr uint32_t kDciHandle = 1;  // ibv_qp.handle, tells a DCI from a DCT
inline constexpr uint32_t kDctHandle = 2;
inline constexpr uint32_t kQpNumberMask = 0xffffff;
inline constexpr uint32_t kEceVendor = 0x15b3;
inline constexpr uint32_t kEceOptions = 0x30000003;  // what softdc0 can do; others are cut off

class Dci {
 public:
  struct Attributes {
    uint32_t max_send_wr;
    uint32_t max_send_sge;
    uint32_t max_inline_bytes;
    bool has_streams;
    uint8_t log_errored_streams;
    bool signal_all;
    bool wr_api;  // IBV_QP_INIT_ATTR_SEND_OPS_FLAGS was given
  };
  Dci(Context& context, const Attributes& attributes, uint32_t qp_number);
  ~Dci();

  static Dci* From(ibv_qp* qp) { return reinterpret_cast<Dci*>(qp); }
  static Dci* From(ibv_qp_ex* qp) { return reinterpret_cast<Dci*>(qp); }
  static Dci* From(mlx5dv_qp_ex* dv) { return reinterpret_cast<DvShell*>(dv)->dci; }
  static bool Is(const ibv_qp* qp);

  // Must stay first: users hold its address.
  ibv_qp_ex qp_ex{};
  struct DvShell {
    mlx5dv_qp_ex dv{};
    Dci* dci = nullptr;
  } dv_shell;

  Context& context() { return context_; }
  const Attributes& attributes() const { return attributes_; }
  Cq& send_cq();

  int Modify(const ibv_qp_attr& attr, int attr_mask);
  int Query(ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init);
  // mlx5dv_dci_stream_id_reset(3), without the checks on the handle.
  int ResetStream(uint16_t stream_id);
  int SetEce(const ibv_ece& ece);
  int QueryEce(ibv_ece* ece);

  // ibv_wr_post(3).
  void Start();
  int Complete();
  void Abort();
  Wqe* NewWqe(uint8_t opcode);  // null once the batch has an error
  void SetSges(size_t count, const ibv_sge* sges);
  void SetInline(size_t count, const ibv_data_buf* buffers);
  void SetAddress(const ibv_ah* ah, uint32_t target_number, uint64_t dc_key, uint16_t stream_id);

  // Loop thread: tries what waits.
  void Continue();

  // The CQE of slot `sequence` was polled: it and all before are free. Any thread.
  void Release(uint64_t sequence) { released_.store(sequence + 1, std::memory_order_release); }

 private:
  friend class SendExecution;
  static constexpr uint8_t kDataSetter = 1;
  static constexpr uint8_t kAddressSetter = 2;

  Wqe& slot(uint64_t sequence) { return wqes_[sequence & slot_mask_]; }
  ibv_sge* sges(uint64_t sequence) {
    return &sges_[(sequence & slot_mask_) * attributes_.max_send_sge];
  }
  std::byte* inline_data(uint64_t sequence) {
    return &inline_[(sequence & slot_mask_) * attributes_.max_inline_bytes];
  }
  StreamState& stream(const Wqe& wqe) {
    return streams_[attributes_.has_streams ? wqe.stream_id : 0];
  }
  void FillOps();
  void Fail(int error);  // of the batch; the first one stays
  void Finish(Wqe& wqe, ibv_wc_status status, uint32_t vendor_error);
  void EnterError();
  void FlushErrored();
  void EmitCompletions();
  void ScheduleContinuation(int64_t when_ns);
  void ResetQueue();

  Context& context_;
  const Attributes attributes_;
  const uint64_t slot_mask_;
  std::vector<Wqe> wqes_;
  std::vector<ibv_sge> sges_;
  std::vector<std::byte> inline_;
  std::vector<StreamState> streams_;
  std::shared_ptr<Continuation> continuation_;

  SpinLock lock_;
  // Below: under lock_. Sequences never wrap; slot = sequence & slot_mask_.
  uint64_t head_ = 0;        // next to build
  uint64_t batch_head_ = 0;  // head_ at wr_start
  uint64_t emitted_ = 0;     // next whose CQE leaves
  uint32_t waiting_ = 0;
  uint32_t errored_streams_ = 0;
  int batch_error_ = 0;
  uint8_t missing_setters_ = 0;  // of the WQE being built
  int64_t scheduled_ns_ = 0;     // of the continuation that is armed; 0: none
  ibv_qp_attr attr_{};           // as modified
  ibv_qp_state state_ = IBV_QPS_RESET;
  uint32_t ece_options_ = kEceOptions;  // at first what the device offers, later what was accepted
  uint32_t ece_pending_options_ = 0;
  std::vector<Target*>
      target_cache_;  // by low bits of the number; targets live as long as the context

  std::atomic<uint64_t> released_{0};  // slots below are free
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_DCI_H_
