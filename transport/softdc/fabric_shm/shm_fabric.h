// SPDX-License-Identifier: Apache-2.0
//
// ShmFabric: processes of one user on one host, reached through shared memory. The clock is the
// kernel's, timers are the firmware thread's (loop/), all addresses of this host are one node, and
// numbers are unique over all processes (shm/number_space.h).
//
// ShmPort: one context there: the contexts it sends to, those that send to it, and the queues that
// wait for an answer about a target.
#ifndef SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_SHM_FABRIC_H_
#define SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_SHM_FABRIC_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/softdc/fabric_shm/inbound_links.h"
#include "transport/softdc/fabric_shm/pass_ends.h"
#include "transport/softdc/model/fabric.h"
#include "transport/softdc/shm/bounce.h"
#include "transport/softdc/shm/number_space.h"
#include "transport/softdc/shm/outbound_links.h"

namespace sluice::softdc {

class ShmRequester;

class ShmFabric final : public Fabric {
 public:
  // The fabric of this process, never destroyed.
  static ShmFabric& Get();

  int64_t NowNs() override;
  uint64_t After(int64_t delay_ns, std::function<void()> task) override;
  bool Cancel(uint64_t timer) override;
  std::unique_ptr<FabricPort> Attach(Context& context) override;
  std::vector<ibv_gid> Gids(const SoftDevice& device) override;
  NodeId NodeOf(const SoftDevice& from, const ibv_ah_attr& address) override;
  NodeId SelfNode(const SoftDevice& device) override;
  bool SharesMemory() const override { return true; }
  uint64_t ArenaBytes() const override { return shm::kArenaBytes; }
};

// Lets timers and tasks on the Loop thread find a queue with waiting work, or learn that it is gone.
struct Continuation {
  std::mutex mutex;
  ShmRequester* requester = nullptr;
  bool listed = false;  // among those of ShmPort that wait; under its mutex
};

class ShmPort final : public FabricPort {
 public:
  explicit ShmPort(Context& context);
  ~ShmPort() override;

  uint32_t AllocateNumber() override { return numbers_->Allocate(); }
  bool FreeNumber(uint32_t number) override { return numbers_->Free(number); }
  uint32_t AllocateReservedNumber() override { return reserved_numbers_->Allocate(); }
  bool FreeReservedNumber(uint32_t number) override { return reserved_numbers_->Free(number); }
  std::unique_ptr<Requester> NewRequester(SendQueue& queue) override;
  void WaitForCopies() override { inbound_->WaitForCopies(); }
  bool WindowInUse(uint32_t index) override { return inbound_->WindowInUse(index); }
  bool LinkIsUp() override { return true; }

  OutboundLinks& outbound() { return *outbound_; }
  PassEnds& pass_ends() { return pass_ends_; }
  // A queue that waits for an answer about a target; KickWaiting, on the Loop thread, continues each
  // once.
  void AddWaiting(const std::shared_ptr<Continuation>& continuation);
  // How many wait; for tests.
  size_t waiting();

 private:
  void KickWaiting();

  std::mutex waiting_mutex_;
  std::vector<std::shared_ptr<Continuation>> waiting_;
  PassEnds pass_ends_;
  std::unique_ptr<OutboundLinks> outbound_;
  std::unique_ptr<shm::BounceServer> bounce_;
  std::unique_ptr<InboundLinks> inbound_;
  std::unique_ptr<NumberSpace> numbers_;
  std::unique_ptr<NumberSpace> reserved_numbers_;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_SHM_FABRIC_H_
