// SPDX-License-Identifier: Apache-2.0
//
// ShmFabric: processes of one user on one host reach each other through shared memory. The clock is the kernel's. The firmware thread runs
// timers (loop/). All addresses of this host are one node. Numbers are unique over all processes (shm/number_space.h).
//
// ShmPort: one context in the fabric. It holds the links to contexts that it sends to, and the links from contexts that send to it. It also
// lists the queues that wait for an answer about a target.
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
  // Returns the fabric of this process, which is never destroyed.
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

// Lets timers and tasks on the Loop thread find a queue with waiting work, or learn that the queue is gone.
struct Continuation {
  std::mutex mutex;
  ShmRequester* requester = nullptr;
  bool listed = false;  // in ShmPort::waiting_; under its mutex
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
  // Adds a queue that waits for an answer about a target. KickWaiting continues each queue once, on the Loop thread.
  void AddWaiting(const std::shared_ptr<Continuation>& continuation);
  // Returns the number of waiting queues; for tests.
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
