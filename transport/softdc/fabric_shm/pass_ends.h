// SPDX-License-Identifier: Apache-2.0
//
// PassEnds: reports when every pass of a context's send queues that had begun has ended. Then the objects of a dead peer are destroyed.
//
// Cost          None for a poster. A pass holds the lock of its queue, so the firmware thread needs this lock once.
// Threads       Add, Remove: any. The rest: the Loop thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_PASS_ENDS_H_
#define SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_PASS_ENDS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "transport/softdc/shm/outbound_links.h"

namespace sluice::softdc {

struct Continuation;

class PassEnds {
 public:
  PassEnds() = default;
  ~PassEnds();
  PassEnds(const PassEnds&) = delete;
  PassEnds& operator=(const PassEnds&) = delete;

  void Add(const std::shared_ptr<Continuation>& queue);
  void Remove(const std::shared_ptr<Continuation>& queue);

  // Destroys `dropped` on the Loop thread, after all passes that have begun and all tasks that these passes gave to the Loop. A program
  // that holds a queue's lock, between ibv_wr_start and ibv_wr_complete, delays the destruction.
  void Destroy(std::shared_ptr<Dropped> dropped);

 private:
  struct Wait {
    std::vector<std::shared_ptr<Continuation>> running;  // queues not seen between two passes yet
    std::shared_ptr<Dropped> dropped;
  };
  void Look();

  std::mutex mutex_;
  std::unordered_set<std::shared_ptr<Continuation>> queues_;  // mutex_

  // Loop thread.
  std::deque<Wait> waits_;
  uint64_t timer_ = 0;
  int64_t next_look_ns_ = 0;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_PASS_ENDS_H_
