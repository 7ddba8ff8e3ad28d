// SPDX-License-Identifier: Apache-2.0
//
// Repair: after the process of a Link died, finds the receive WQEs that it had claimed and not published, and
// posts them again. Never stops a living process, waits for it, or takes anything from it.
//
// A WQE belongs to the dead process if all of the following hold. Its ticket was claimed (below `claim`). It
// was not polled, and no ring holds it. The journal of the dead process covers it, and no journal of a living
// process does. The order of reads makes this certain: first `claim`, then the living journals, then the
// rings. Suppose that a living process L holds ticket t < claim. L wrote a journal word that covers t before
// its CAS moved `claim` past t, so we read that word or a later word. If we read that word, t is covered and
// we skip it. If we read a later word, L wrote it after it published t. Then t is in a ring (or was polled),
// and we read the rings afterwards. In both cases we do not take t for a ticket of the dead process.
// docs/decisions/0001-srq-and-cq-without-holes.md has the rest of the argument and the model.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_REPAIR_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_REPAIR_H_

#include <cstdint>
#include <span>

#include "transport/softdc/shm/claim_journal.h"
#include "transport/softdc/shm/cqe_ring.h"
#include "transport/softdc/shm/srq_owner.h"

namespace sluice::softdc::shm {

struct RepairResult {
  uint32_t reposted = 0;
  // Number of WQEs that the dead process may have held, but that a living process may hold as well. Each of
  // these cases resolves itself: the WQE is published, or no longer covered. While this is not 0, call Repair
  // again: soon if the living processes run, and at the latest when one of them dies.
  uint32_t deferred = 0;
};

// dead: the journal word of the dead Link. living: the journals of all other Links into this context that are
// not known to be dead. Other dead Links are excluded: each of several dead Links is repaired against the
// living Links only. rings: every ring that may hold a completion of this SRQ, rings of dead Links included.
//
// The caller must hold the locks of the SRQ and of every CQ that has one of the rings. It must have passed
// each CQE that it polled to SrqOwner::Complete. It keeps the dead journal until `deferred` is 0, and then
// never calls Repair with that journal again. Calls Ring of the SRQ itself. Does nothing if the last claim of
// the dead Link was on another SRQ. Cost: capacity of the SRQ × living Links; allocates. Not for the hot
// path.
RepairResult Repair(const ClaimIntent& dead, std::span<const ClaimJournal> living,
                    std::span<const CqeConsumer* const> rings, SrqOwner* srq);

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_REPAIR_H_
