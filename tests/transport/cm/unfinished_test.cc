// SPDX-License-Identifier: Apache-2.0
//
// A manager that is destroyed while commands are under way.
#include <memory>

#include "gtest/gtest.h"
#include "tests/transport/cm/sim_peer.h"
#include "tests/transport/cm/sim_process.h"

namespace sluice::cm {
namespace unfinished_test {

using softdc::sim::Simulation;

constexpr int64_t kSecondNs = 1'000'000'000;

int made = 0;
int destroyed = 0;

verbs::VerbsApi Counting() {
  verbs::VerbsApi api = Simulation::Verbs();
  api.cm_create_id = [](rdma_event_channel* channel, rdma_cm_id** id, void* context,
                        rdma_port_space space) {
    const int result = Simulation::Verbs().cm_create_id(channel, id, context, space);
    made += result == 0;
    return result;
  };
  api.cm_destroy_id = [](rdma_cm_id* id) {
    ++destroyed;
    return Simulation::Verbs().cm_destroy_id(id);
  };
  return api;
}

TEST(ConnectionManager, DestroyedBeforeItHearsOfANewId_DestroysTheId) {
  made = destroyed = 0;
  const verbs::VerbsApi api = Counting();
  const auto simulation = Simulation::Create({}).value();
  SimUser user;
  auto process =
      std::make_unique<SimProcess>(*simulation, 0, api, /*ece=*/true, Options(), 5, user);
  user.manager = &process->manager();
  {
    const Simulation::As as(*simulation, 0);
    ASSERT_TRUE(process->manager()
                    .Connect(SimProcess::Address(1), kSimPort, simulation->NowNs() + kSecondNs, {})
                    .ok());
  }
  // Commands run with time; their ends are told by Poll() only.
  while (made == 0) {
    process->Poll();
    while (made == 0 && simulation->Step()) {
    }
  }
  process.reset();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(destroyed, made);
}

}  // namespace unfinished_test
}  // namespace sluice::cm
