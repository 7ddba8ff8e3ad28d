// SPDX-License-Identifier: Apache-2.0
//
// Senders are killed in full flight: what their receiver sees.
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_child.h"
#include "tests/transport/softdc/dc_node.h"

namespace sluice::softdc {
namespace sender_death_test {

TEST(ProcessDeath, KilledSendersCostTheReceiverNothing) {
  constexpr int kRounds = 20;
  Child survivor(&Sender);
  std::vector<std::unique_ptr<Child>> victims;
  for (int i = 0; i < kRounds; ++i) victims.push_back(std::make_unique<Child>(&Sender));
  DcNode b;
  survivor.Put(b.Address());
  for (auto& victim : victims) {
    victim->Put(b.Address());
    // Until messages of both have come, then kill in full flight.
    uint32_t sources[2] = {};
    while (sources[1] == 0) {
      const ibv_wc wc = b.PollReceive();
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      b.PostReceives(1);
      if (sources[0] == 0) sources[0] = wc.src_qp;
      if (wc.src_qp != sources[0]) sources[1] = wc.src_qp;
    }
    victim->Kill();
  }
  // All receive WQEs are still in circulation: the survivor alone fills every one of them many
  // times over.
  for (int i = 0; i < 64 * 100; ++i) {
    ASSERT_EQ(b.PollReceive().status, IBV_WC_SUCCESS);
    b.PostReceives(1);
  }
}

}  // namespace sender_death_test
}  // namespace sluice::softdc
