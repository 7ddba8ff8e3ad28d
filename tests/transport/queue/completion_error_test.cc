// SPDX-License-Identifier: Apache-2.0
#include "transport/queue/completion_error.h"

#include <string>

#include "gtest/gtest.h"
#include "transport/base/error.h"

namespace sluice::queue {
namespace completion_error_test {

TEST(CompletionError, DecodesTheRequestAndThePeer) {
  ibv_wc wc = {};
  wc.status = IBV_WC_RETRY_EXC_ERR;
  wc.vendor_err = 0x81;
  wc.qp_num = 0x123;
  const absl::Status status = CompletionError(
      wc, {.operation = "send", .peer = "h:7", .dctn = 0x456, .stream = 9, .length_bytes = 80});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(
      std::string(status.message()),
      "send of 80 bytes failed with IBV_WC_RETRY_EXC_ERR (vendor error 0x81; DCI 0x123 stream "
      "9, DCTN 0x456) (peer h:7): the peer's process or host is gone, its DC key has changed, "
      "the path is broken, or it is in another partition (option path.pkey); reconnect when the "
      "peer is running again");
  const auto detail = base::DetailOf(status);
  EXPECT_EQ(detail->syndrome(), static_cast<uint32_t>(IBV_WC_RETRY_EXC_ERR));
  EXPECT_EQ(detail->vendor_code(), 0x81u);
  EXPECT_FALSE(detail->retry_safe());  // it may have been executed
}

TEST(CompletionError, OnRcAnOperationErrorMayBeAMissingRoute) {
  ibv_wc wc = {};
  wc.status = IBV_WC_LOC_QP_OP_ERR;
  const auto text = [&](bool rc) {
    return std::string(
        CompletionError(wc, {.operation = "send", .peer = "h:7", .rc = rc}).message());
  };
  EXPECT_NE(text(true).find("no route to the peer"), std::string::npos) << text(true);
  EXPECT_EQ(text(false).find("route"), std::string::npos) << text(false);
}

TEST(StatusName, EveryStatusThatADciReports) {
  EXPECT_EQ(StatusName(IBV_WC_RNR_RETRY_EXC_ERR), "IBV_WC_RNR_RETRY_EXC_ERR");
  EXPECT_EQ(StatusName(IBV_WC_REM_INV_REQ_ERR), "IBV_WC_REM_INV_REQ_ERR");
  EXPECT_EQ(StatusName(static_cast<ibv_wc_status>(999)), "an unknown completion status");
}

}  // namespace completion_error_test
}  // namespace sluice::queue
