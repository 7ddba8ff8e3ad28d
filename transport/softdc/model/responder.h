// SPDX-License-Identifier: Apache-2.0
//
// Responder: the receiving side of a queue pair: a DCT, or the receiving half of RC, UC and UD. Its TargetDescriptor is in the arena;
// senders check their requests with it (arrival.h). The context finds an open Responder by its number.
//
//   closed --Open--> open --Close--> closed      Close reverses Open; both may be called any number of times
//
// Threads       As the queue pair it belongs to.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_RESPONDER_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_RESPONDER_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include "transport/softdc/shm/layout.h"

namespace sluice::softdc {

class Context;
class Cq;
class Qp;
class Srq;

// Access to a queue pair for other threads, which may still run after its destruction. `qp` is null after the queue pair is destroyed.
struct QpLife {
  std::mutex mutex;
  Qp* qp = nullptr;
};

class Responder {
 public:
  // Attributes that senders see while the responder is open.
  struct Terms {
    shm::TargetType type;
    uint32_t number;
    uint64_t key;  // DC key, Q_Key, or ConnectedKey of the peer
    uint32_t access;
    uint32_t pd;
    uint8_t min_rnr_timer;
    ibv_mtu path_mtu;
    uint16_t pkey;
  };

  // Returns null with errno ENOMEM on failure. Both queues outlive the responder.
  static std::unique_ptr<Responder> Create(Context& context, Cq& cq, Srq& srq,
                                           std::shared_ptr<QpLife> life);
  ~Responder();
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  void Open(const Terms& terms);
  // Changes rights and RNR timer, and the Q_Key of a datagram queue, while the responder is open. Requests that arrive at the same time see
  // the old or the new values.
  void Change(uint32_t access, uint8_t min_rnr_timer, uint64_t key);
  // Hides the responder from senders. Requests that were accepted before still end.
  void Close();

  Cq& cq() { return cq_; }
  Srq& srq() { return srq_; }
  const shm::TargetDescriptor& descriptor() const { return *descriptor_; }
  uint64_t descriptor_offset() const { return descriptor_offset_; }
  // Null for a DCT: no request can move a DCT to ERR.
  const std::shared_ptr<QpLife>& life() const { return life_; }

 private:
  Responder(Context& context, Cq& cq, Srq& srq, std::shared_ptr<QpLife> life, uint64_t offset);

  Context& context_;
  Cq& cq_;
  Srq& srq_;
  const std::shared_ptr<QpLife> life_;
  const uint64_t descriptor_offset_;
  shm::TargetDescriptor* const descriptor_;
  bool open_ = false;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_RESPONDER_H_
