// SPDX-License-Identifier: Apache-2.0
//
// InboundLinks::Link: one context that sends to this one. For inbound_links.cc and inbound_rounds.cc only.
//
// Threads       The Loop thread only.
#ifndef SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_INBOUND_LINK_H_
#define SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_INBOUND_LINK_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "transport/softdc/fabric_shm/inbound_links.h"

namespace sluice::softdc {

struct InboundLinks::Link {
  uint32_t id = 0;
  UniqueFd socket;
  uint64_t journal_offset = 0;
  std::optional<shm::ClaimJournal> journal;  // set by the hello
  std::shared_ptr<Copier> copier;            // set by the hello
  int listening_fd = -1;                     // socket that accepted it; -1: block not served
  uint32_t asked_round = 0;                  // last round that the sender was asked to forget
  uint32_t forgotten_round = 0;              // last round that the sender has forgotten
  bool shunned = false;                      // gets no further answers
  bool closed = false;                       // its process or its context has ended
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_INBOUND_LINK_H_
