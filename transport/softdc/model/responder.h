// SPDX-License-Identifier: Apache-2.0
//
// Responder: the side of a queue pair that others send to: a DCT, or the receiving half of RC, UC
// and UD. The arena has its TargetDescriptor, with which senders check their requests
// (arrival.h), and in the context's register by its number.
//
//   closed --Open--> open --Close--> closed      Close ends what Open began; both any number of times
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

// A way to a queue pair for whoever comes later and from elsewhere: null once it is destroyed.
struct QpLife {
  std::mutex mutex;
  Qp* qp = nullptr;
};

class Responder {
 public:
  // What others are told when it opens.
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

  // Null with errno ENOMEM. Both queues outlive it.
  static std::unique_ptr<Responder> Create(Context& context, Cq& cq, Srq& srq,
                                           std::shared_ptr<QpLife> life);
  ~Responder();
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  void Open(const Terms& terms);
  // New rights and RNR timer, and Q_Key of a datagram queue, while open. Requests that arrive meanwhile see the old or the new ones.
  void Change(uint32_t access, uint8_t min_rnr_timer, uint64_t key);
  // Nobody finds it any more; requests that have been let in still end.
  void Close();

  Cq& cq() { return cq_; }
  Srq& srq() { return srq_; }
  const shm::TargetDescriptor& descriptor() const { return *descriptor_; }
  uint64_t descriptor_offset() const { return descriptor_offset_; }
  // Null for a DCT, which no request can bring down.
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
