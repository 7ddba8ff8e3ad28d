// SPDX-License-Identifier: Apache-2.0
#include "transport/queue/states.h"

#include "gtest/gtest.h"

namespace sluice::queue {
namespace states_test {

TEST(PrintTables, Snapshot) {
  EXPECT_EQ(PrintTables(),
            "dci ready: fatal -> draining\n"
            "dci ready: stuck -> resetting\n"
            "dci draining: drained -> resetting\n"
            "dci draining: stuck -> resetting\n"
            "dci draining: refused -> dead\n"
            "dci resetting: recovered -> ready\n"
            "dci resetting: refused -> dead\n"
            "stream free: bind -> bound\n"
            "stream bound: idle -> free\n"
            "stream bound: leave -> left\n"
            "stream left: idle -> free\n"
            "stream bound: error -> errored\n"
            "stream left: error -> errored\n"
            "stream errored: flushed -> resetting\n"
            "stream resetting: reset -> free\n"
            "stream errored: reset -> free\n"
            "stream bound: reset -> free\n"
            "stream left: reset -> free\n");
}

}  // namespace states_test
}  // namespace sluice::queue
