// SPDX-License-Identifier: Apache-2.0
//
// ReceiveDelivery: the far end of a transfer, done by the sender's CPU: takes receive WQEs, copies,
// publishes completions there, and wakes the receiver once, at its end. Lives for one doorbell,
// under the link's lock.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_RECEIVE_DELIVERY_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_RECEIVE_DELIVERY_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/softdc/model/wqe.h"
#include "transport/softdc/shm/outbound_links.h"

namespace sluice::softdc {

// The local bytes of a message: inline data, or checked SGEs of our own memory.
struct MessageSource {
  std::span<const std::byte> inlined;
  std::span<const ibv_sge> sges;
  uint32_t length_bytes = 0;
};

enum class DeliveryStatus {
  kDelivered,
  kTooLong,     // longer than the receive WQE
  kDenied,      // key, range, right or protection domain
  kNotMapped,   // the segment was asked for; try again
  kFailed,      // the other side's memory cannot be written
  kNoResponse,  // the other side's queue holds nonsense, or it is gone
};

class ReceiveDelivery {
 public:
  enum class WhyNot { kNoReceive, kNoCompletionSpace, kBroken };
  struct Claim {
    uint32_t count = 0;
    WhyNot why_not = WhyNot::kNoReceive;  // if count is 0
  };

  ReceiveDelivery(OutboundLinks& links, Target::Reach& reach, uint32_t source_qp)
      : links_(links), reach_(reach), source_qp_(source_qp) {}
  ~ReceiveDelivery();  // wakes the receiver if it sleeps and something was published

  // Up to `want` receive WQEs, each of which is then delivered into, or given back.
  Claim ClaimWqes(uint32_t want, std::span<shm::ClaimedWqe> claimed);
  // SEND: copies and publishes. Anything but kDelivered and kTooLong gives the WQE back.
  DeliveryStatus Deliver(const Wqe& wqe, const MessageSource& source,
                         const shm::ClaimedWqe& claimed);
  void GiveBack(const shm::ClaimedWqe& claimed);
  // WRITE_WITH_IMM, after its data: the completion alone.
  void PublishImmediate(const Wqe& wqe, const shm::ClaimedWqe& claimed);
  // WRITE or READ of the range that the WQE names.
  DeliveryStatus OneSided(const Wqe& wqe, const MessageSource& source, uint32_t access, bool write);

 private:
  enum class Direction { kToRemote, kFromRemote };
  DeliveryStatus DeliverTo(const Wqe& wqe, const MessageSource& source,
                           const shm::ClaimedWqe& claimed, std::span<const shm::Sge> sges);
  DeliveryStatus Locate(const shm::RemotePlace& place);
  DeliveryStatus Move(const MessageSource& source, uint64_t source_offset, uint64_t length_bytes,
                      const shm::RemotePlace& place, Direction direction);
  void Publish(const Wqe& wqe, uint32_t wqe_index, ibv_wc_opcode opcode, ibv_wc_status status,
               uint8_t flags);

  OutboundLinks& links_;
  Target::Reach& reach_;
  const uint32_t source_qp_;
  bool published_ = false;
  bool solicited_ = false;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_RECEIVE_DELIVERY_H_
