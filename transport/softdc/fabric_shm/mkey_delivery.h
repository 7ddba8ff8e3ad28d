// SPDX-License-Identifier: Apache-2.0
//
// The target's side of a transfer that names an indirect key of the peer, as a remote key or in a receive buffer. Configuration and record of
// the key are in the peer's arena. Its memory is reached as any other memory of the peer.
//
// Threads       Under the link's lock.
#ifndef SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_MKEY_DELIVERY_H_
#define SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_MKEY_DELIVERY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/softdc/model/mkey_transfer.h"
#include "transport/softdc/shm/outbound_links.h"

namespace sluice::softdc {

class MkeyDelivery {
 public:
  // `pd`: protection domain of the target; its keys must belong to it. `cq_id`: CQ of the target; polling it shows a mismatch.
  MkeyDelivery(OutboundLinks& links, shm::OutboundLink& link, uint32_t pd, uint32_t cq_id);

  // Move wire bytes through `key`, from wire byte `start` on. kAgain: the memory cannot be accessed yet.
  MkeyStatus Write(uint32_t key, uint64_t start, std::span<const std::byte> wire, uint32_t access);
  MkeyStatus Read(uint32_t key, uint64_t start, uint64_t wire_bytes, uint32_t access,
                  std::vector<std::byte>* wire);

 private:
  MkeyStatus Load(uint32_t key, uint32_t access, MkeyConfig* config);
  void Record(uint32_t key, const std::optional<signature::Mismatch>& mismatch);

  OutboundLinks& links_;
  shm::OutboundLink& link_;
  const uint32_t pd_;
  const uint32_t cq_id_;
  MkeyTableArea* const table_;  // null: the peer has no valid table
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_MKEY_DELIVERY_H_
