// SPDX-License-Identifier: Apache-2.0
//
// Repair: after a Link's process died, finds the receive WQEs it had claimed and not published, and
// posts them again. Never stops, waits for or takes anything from a living process.
//
// A WQE belongs to the dead if its ticket was claimed (below `claim`), it was not polled, is
// published in no ring, the dead one's journal covers it, and no living one's does. The order of
// looking makes that certain: first `claim`, then the living journals, then the rings. Say a living
// process L holds ticket t < claim. L wrote a journal word covering t before its CAS moved `claim`
// past t, so we read that word or a later one. If that word: t is covered, we leave it. If a later
// one: L wrote it after publishing t, so t is in a ring (or was polled), and we look at the rings
// afterwards. Either way t is not taken for a dead one's.
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
  // WQEs that the dead one may have held but that a living one may hold as well. Each goes away by
  // itself: published, or no longer covered. While this is not 0, call Repair again: soon if the
  // living run, and at the latest when one of them dies.
  uint32_t deferred = 0;
};

// dead: the dead Link's journal word. living: the journals of all other Links into this context
// that are not known to be dead, other dead Links excepted: of several dead, each is repaired
// against the living ones alone. rings: every ring that may hold a completion of this SRQ, rings of
// dead Links included.
//
// The caller holds the locks of the SRQ and of every CQ that has one of the rings, from before the
// call until after it, and each CQE it has polled was already given to SrqOwner::Complete. It keeps
// the dead one's journal until a call returned deferred == 0, and never calls Repair with that
// journal again afterwards. Rings the bell of the SRQ itself. Does nothing if the dead one's last
// claim was on another SRQ. Cost: capacity of the SRQ × living Links; allocates. Not for the hot
// path.
RepairResult Repair(const ClaimIntent& dead, std::span<const ClaimJournal> living,
                    std::span<const CqeConsumer* const> rings, SrqOwner* srq);

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_REPAIR_H_
