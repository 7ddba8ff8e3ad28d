// SPDX-License-Identifier: Apache-2.0
//
// The tables of modify masks, as text. The conformance suite tries the masks.
#include "transport/softdc/model/qp_transitions.h"

#include "gtest/gtest.h"

namespace sluice::softdc {
namespace qp_transitions_test {

TEST(QpTransitions, PrintedTables) {
  EXPECT_EQ(PrintTransitions(DciTransitions()),
            "RESET -> INIT  required PKEY_INDEX|PORT  optional -\n"
            "INIT -> INIT  required -  optional PKEY_INDEX|PORT\n"
            "INIT -> RTR  required PATH_MTU  optional PKEY_INDEX|AV\n"
            "RTR -> RTS  required TIMEOUT|RETRY_CNT|RNR_RETRY|MAX_QP_RD_ATOMIC|SQ_PSN  optional "
            "MIN_RNR_TIMER\n"
            "RTS -> RTS  required -  optional MIN_RNR_TIMER\n"
            "any -> RESET  required -  optional -\n"
            "INIT -> ERR  required -  optional -\n"
            "RTR -> ERR  required -  optional -\n"
            "RTS -> ERR  required -  optional -\n"
            "ERR -> ERR  required -  optional -\n");
  EXPECT_EQ(PrintTransitions(DctTransitions()),
            "RESET -> INIT  required ACCESS_FLAGS|PKEY_INDEX|PORT  optional -\n"
            "INIT -> RTR  required AV|PATH_MTU|MIN_RNR_TIMER  optional -\n");
}

}  // namespace qp_transitions_test
}  // namespace sluice::softdc
