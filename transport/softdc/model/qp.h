// SPDX-License-Identifier: Apache-2.0
//
// Qp: a queue pair that sends: DCI, RC, UC or UD. It has one send queue. A kind that receives also has a Responder, with an SRQ of the user
// or a receive queue of its own. Tables define what a kind may do (qp_kind.h, qp_transitions.h).
//
// Threads       As libibverbs; the send queue's lock guards states and attributes.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_QP_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_QP_H_

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "transport/softdc/model/qp_kind.h"
#include "transport/softdc/model/responder.h"
#include "transport/softdc/model/send_queue.h"

namespace sluice::softdc {

class Context;
class Cq;
class Fabric;
class Srq;

inline constexpr uint32_t kDciHandle = 1;  // ibv_qp.handle of the two DRIVER types
inline constexpr uint32_t kDctHandle = 2;
inline constexpr uint32_t kPlainQpHandle = 3;
inline constexpr uint32_t kEceVendor = 0x15b3;

class Qp {
 public:
  // Must stay first: users hold its address.
  ibv_qp_ex qp_ex{};
  struct DvShell {
    mlx5dv_qp_ex dv{};
    Qp* qp = nullptr;
  } dv_shell;

  static Qp* From(ibv_qp* qp) { return reinterpret_cast<Qp*>(qp); }
  static Qp* From(ibv_qp_ex* qp) { return reinterpret_cast<Qp*>(qp); }
  static Qp* From(mlx5dv_qp_ex* dv) { return reinterpret_cast<DvShell*>(dv)->qp; }
  static bool Is(const ibv_qp* qp);
  static bool IsDci(const ibv_qp* qp);

  struct Receive {
    std::unique_ptr<Srq> own;  // null: `base.srq` is the user's, or the kind receives nothing
    uint32_t max_wr = 0;
    uint32_t max_sge = 0;
  };
  // `base`: the user's handle without state and type. Returns null with errno on failure.
  static std::unique_ptr<Qp> Create(const ibv_qp& base, const QpTraits& traits,
                                    const SendQueue::Attributes& send, Receive receive);
  ~Qp();

  Context& context() { return context_; }
  const QpTraits& traits() const { return traits_; }
  SendQueue& send_queue() { return *send_; }
  ibv_qp& base() { return qp_ex.qp_base; }
  uint32_t number() const { return qp_ex.qp_base.qp_num; }

  int Modify(const ibv_qp_attr& attr, int attr_mask);
  int Query(ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init);
  int PostReceive(ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
  // mlx5dv_dci_stream_id_reset(3), without the checks on the handle.
  int ResetStream(uint16_t stream_id);
  int SetEce(const ibv_ece& ece);
  int QueryEce(ibv_ece* ece);

  // Called by fabrics after a bad request from the peer: moves the queue pair to ERR (IBA 9.9). `event`: asynchronous event to post, or -1.
  static void OnBadRequest(const std::shared_ptr<QpLife>& life, int event);

 private:
  friend class SendQueue;
  // Runs `act` under the send queue's lock, unless the queue pair was destroyed. If the lock is held, retries later on a timer. The
  // firmware thread must not wait for the lock: a poster holds it from wr_start to wr_complete, and may need that thread in between to
  // register memory.
  static void WhenUnlocked(Fabric& fabric, const std::shared_ptr<QpLife>& life,
                           const std::function<void(Qp&)>& act);
  Qp(const ibv_qp& base, const QpTraits& traits, Receive receive);
  void FillOps();

  int CheckAttributes(const ibv_qp_attr& attr, int attr_mask) const;
  void TakeAttributes(const ibv_qp_attr& attr, int attr_mask);
  void Enter(ibv_qp_state to);
  void OpenResponder(bool receives);
  // Called under the send queue's lock when its state has become ERR, for any reason.
  void StopReceiving();

  Context& context_;
  const QpTraits& traits_;
  const Receive receive_;
  const std::shared_ptr<QpLife> life_;
  std::unique_ptr<SendQueue> send_;
  std::unique_ptr<Responder> responder_;
  uint32_t ece_options_ = 0;  // initially what the device offers, later what was accepted
  uint32_t ece_pending_options_ = 0;
};

inline SendQueue& SendQueue::Of(ibv_qp_ex* qp) { return Qp::From(qp)->send_queue(); }
inline SendQueue& SendQueue::Of(mlx5dv_qp_ex* dv) { return Qp::From(dv)->send_queue(); }

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_QP_H_
