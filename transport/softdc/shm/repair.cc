// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/repair.h"

#include <algorithm>
#include <vector>

namespace sluice::softdc::shm {

RepairResult Repair(const ClaimIntent& dead, std::span<const ClaimJournal> living,
                    std::span<const CqeConsumer* const> rings, SrqOwner* srq) {
  RepairResult result;
  const uint32_t srq_id = srq->srq_id();
  if (dead.count == 0 || dead.srq_id != srq_id) return result;

  const uint64_t claim = srq->LoadClaim();

  std::vector<ClaimIntent> intents;
  for (const ClaimJournal& journal : living) {
    const ClaimIntent intent = journal.Read();
    if (intent.count != 0 && intent.srq_id == srq_id) intents.push_back(intent);
  }

  std::vector<bool> published(srq->capacity(), false);
  for (const CqeConsumer* ring : rings) {
    ring->ForEachUnread([&](const Cqe& cqe) {
      if (cqe.srq_id == srq_id && cqe.wqe_index < srq->capacity()) published[cqe.wqe_index] = true;
    });
  }

  for (uint32_t i = 0; i < srq->capacity(); ++i) {
    const auto ticket = srq->TicketOf(i);
    if (!ticket || *ticket >= claim || published[i] || !dead.Covers(srq_id, *ticket)) continue;
    const bool ambiguous = std::any_of(intents.begin(), intents.end(), [&](const ClaimIntent& it) {
      return it.Covers(srq_id, *ticket);
    });
    if (ambiguous) {
      ++result.deferred;
    } else {
      srq->Repost(i);
      ++result.reposted;
    }
  }
  if (result.reposted != 0) srq->Ring();
  return result;
}

}  // namespace sluice::softdc::shm
