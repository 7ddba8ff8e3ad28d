// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/app.h"

#include <functional>

#include "gtest/gtest.h"

namespace sluice::simulation {
namespace app_test {

// The event of a connection had come before the process was killed, and is read when its remains are cleared away.
TEST(App, ConnectionOfAProcessThatIsDeadIsNobodys) {
  Scene scene(MakePlan({.seed = 1, .messages = 1'000, .faults = FaultSet::kNone}));
  App app(scene, 0, 1, [](int64_t, const std::function<void()>&) {});
  app.Die();
  endpoint::PeerInfo info;
  info.address = "10.0.0.2:7471";
  info.max_message_bytes = 256;
  app.OnPeerUp({}, info);
  EXPECT_EQ(scene.ledger.Up(0, 1), 0u) << "the first end of all";
  EXPECT_TRUE(scene.ledger.violations().empty());
}

}  // namespace app_test
}  // namespace sluice::simulation
