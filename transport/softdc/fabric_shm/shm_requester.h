// SPDX-License-Identifier: Apache-2.0
//
// ShmRequester: the send engine of one queue on the shared-memory fabric. Between passes (send_execution.h) it keeps targets, and the time
// of the next attempt.
//
// Threads       As Requester. Continue: the Loop thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_SHM_REQUESTER_H_
#define SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_SHM_REQUESTER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/softdc/fabric_shm/shm_fabric.h"
#include "transport/softdc/model/fabric.h"
#include "transport/softdc/model/traffic.h"
#include "transport/softdc/shm/outbound_links.h"

namespace sluice::softdc {

class SendQueue;
struct Wqe;

// Number of cached targets, direct-mapped by number. A miss asks the context's links.
inline constexpr uint32_t kTargetCacheEntries = 256;

class ShmRequester final : public Requester {
 public:
  ShmRequester(ShmPort& port, SendQueue& queue);
  ~ShmRequester() override;

  void RunPosted(uint64_t first) override;
  void RunWaiting() override;
  // A continuation that is still armed finds nothing to do.
  void Forget() override {}

  // Runs waiting WQEs, or retries later if the queue is locked. `timer_ns`: kAnswer after an answer about some target, or the time that was
  // given to ContinueAt.
  static constexpr int64_t kAnswer = 0;
  void Continue(int64_t timer_ns);
  // Returns true if no pass is in progress, and removes the targets of `dropped` from the cache. Returns false if a pass may be in
  // progress, which may use them. Called on the Loop thread.
  bool IsBetweenPasses(const Dropped& dropped);

 private:
  friend class SendExecution;
  // RunAlone and RunBatch: RunPosted for one request (lone_request.cc), and for any number.
  void RunAlone(uint64_t sequence);
  template <uint8_t kOpcode>
  [[gnu::noinline]] void RunPlain(uint64_t sequence);
  [[gnu::noinline, gnu::cold]] void RunUnplain(uint64_t sequence);
  [[gnu::noinline, gnu::cold]] void ContinueAlone(const Wqe& wqe);
  // Return false if nothing was done.
  bool WritePlain(Wqe& wqe, const std::byte* from, Target::Reach& reach);
  bool SendPlain(uint64_t sequence, Wqe& wqe, const std::byte* from, Target::Reach& reach);
  void RunBatch(uint64_t first);
  Target* Find(uint32_t number) {
    Target*& cached = targets_[number & (targets_.size() - 1)];
    if (cached == nullptr || cached->qp_number != number) cached = port_.outbound().Find(number);
    return cached;
  }
  void Forget(uint32_t number) { targets_[number & (targets_.size() - 1)] = nullptr; }
  void ContinueAt(int64_t when_ns);
  void ContinueIn(int64_t delay_ns, int64_t timer_ns);

  ShmPort& port_;
  SendQueue& queue_;
  const std::shared_ptr<Continuation> continuation_;
  std::vector<Target*> targets_;  // removed here before they are destroyed (IsBetweenPasses)
  TrafficCounter traffic_;
  int64_t scheduled_ns_ = 0;  // time of the valid timer; 0: none
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_SHM_REQUESTER_H_
