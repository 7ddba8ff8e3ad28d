// SPDX-License-Identifier: Apache-2.0
//
// What goes wrong with a request, which status says so, and what it leaves alone.
#include <fcntl.h>

#include <string>

#include "tests/transport/softdc/conformance/conformance_test.h"

namespace sluice::conformance {
namespace {

CONFORMANCE_SUITE(Errors);

// Posts one request on a stream of its own and returns its completion.
ibv_wc Try(Node& sender, const Address& to, const Request& request) {
  if (sender.Post(to, request) != 0) throw std::runtime_error("posting failed");
  return sender.AwaitSend();
}

TEST_P(Errors, NobodyAnswers) {
  PROVES(12);
  Node sender(bed()), target(bed(), OnHost(1));
  Address nowhere = target.address();
  nowhere.dctn = 0xfffff0;
  ibv_wc wc = Try(sender, nowhere, {.wr_id = 1, .text = "x", .stream = 1});
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
  if (bed().IsMlx5()) {
    EXPECT_EQ(wc.vendor_err, 0x81u);
  }
  EXPECT_EQ(wc.wr_id, 1u);
  // A number of the wrong kind is no target either.
  nowhere.dctn = target.dci->qp_num;
  EXPECT_EQ(Try(sender, nowhere, {.text = "x", .stream = 2}).status, IBV_WC_RETRY_EXC_ERR);
  // Others are not disturbed.
  EXPECT_EQ(Try(sender, target.address(), {.text = "x", .stream = 3}).status, IBV_WC_SUCCESS);
}

TEST_P(Errors, UnreachableAddress) {
  PROVES(12);
  if (!bed().IsSoftware()) GTEST_SKIP() << "needs an address that is surely nobody's";
  Node sender(bed()), target(bed(), OnHost(1));
  Address nowhere = target.address();
  for (int i = 0; i < 16; ++i) nowhere.path.grh.dgid.raw[i] = static_cast<uint8_t>(0xe0 + i);
  EXPECT_EQ(Try(sender, nowhere, {.text = "x"}).status, IBV_WC_RETRY_EXC_ERR);
}

TEST_P(Errors, DestroyedTargetLooksUnknown) {
  PROVES(12, 69);
  Node sender(bed()), target(bed(), OnHost(1));
  const Address to = target.address();
  EXPECT_EQ(Try(sender, to, {.text = "x", .stream = 1}).status, IBV_WC_SUCCESS);
  ASSERT_EQ(api().destroy_qp(target.dct), 0);
  target.dct = nullptr;
  EXPECT_EQ(Try(sender, to, {.text = "x", .stream = 2}).status, IBV_WC_RETRY_EXC_ERR);
  // What it had received stays.
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "x");
}

TEST_P(Errors, WrongDcKeyIsNotServed) {
  PROVES(13);
  Node sender(bed()), target(bed(), OnHost(1));
  for (int bit = 0; bit < 64; bit += 21) {
    Address to = target.address();
    to.dc_key ^= uint64_t{1} << bit;
    const ibv_wc wc = Try(sender, to, {.text = "x", .stream = 1});
    if (bed().IsSoftware()) {
      EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
    } else {
      EXPECT_NE(wc.status, IBV_WC_SUCCESS);  // nobody has written down which
    }
    sender.Recover();
  }
  EXPECT_EQ(Try(sender, target.address(), {.text = "right"}).status, IBV_WC_SUCCESS);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "right");
}

TEST_P(Errors, WrongRemoteKeyOrRangeIsDenied) {
  PROVES(14);
  Node sender(bed(), {.log_errored_streams = 4}), target(bed(), OnHost(1));
  const Address to = target.address();
  uint16_t stream = 0;
  const auto denied = [&](Request request) {
    for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
      request.opcode = opcode;
      request.stream = ++stream;
      request.local_offset = Node::kFreeOffset;
      const ibv_wc wc = Try(sender, to, request);
      EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR) << opcode;
      if (bed().IsMlx5()) {
        EXPECT_EQ(wc.vendor_err, 0x88u);
      }
    }
  };
  denied({.text = "x", .read_bytes = 1, .rkey = to.rkey + 1});
  denied({.text = "x", .read_bytes = 1, .rkey = 0xffffff00});
  denied({.text = "xy", .read_bytes = 2, .remote_offset = Node::kSlabBytes - 1});
  denied({.text = "x", .read_bytes = 1, .remote_offset = Node::kSlabBytes});
  denied({.text = "x", .read_bytes = 1, .remote_offset = size_t(0) - 1});
  sender.Recover();
  EXPECT_EQ(Try(sender, to,
                {.opcode = IBV_WR_RDMA_WRITE, .text = "xy", .remote_offset = Node::kSlabBytes - 2})
                .status,
            IBV_WC_SUCCESS);
}

TEST_P(Errors, DeregisteredMemoryIsDenied) {
  PROVES(14);
  Node sender(bed()), target(bed(), OnHost(1));
  ibv_mr* mr = api().reg_mr(target.pd, target.slab + Node::kFreeOffset, 64,
                            IBV_ACCESS_LOCAL_WRITE | kRemoteRights);
  ASSERT_NE(mr, nullptr);
  const Request write{.opcode = IBV_WR_RDMA_WRITE,
                      .text = "x",
                      .remote_offset = Node::kFreeOffset,
                      .stream = 1,
                      .rkey = mr->rkey};
  EXPECT_EQ(Try(sender, target.address(), write).status, IBV_WC_SUCCESS);
  EXPECT_EQ(api().dereg_mr(mr), 0);
  EXPECT_EQ(Try(sender, target.address(), write).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Errors, BothTheRegionAndTheTargetMustGiveTheRight) {
  PROVES(14, 39);
  constexpr int kWrite = IBV_ACCESS_REMOTE_WRITE, kRead = IBV_ACCESS_REMOTE_READ;
  for (const int region : {0, kWrite, kRead, kWrite | kRead}) {
    for (const int target_rights : {0, kWrite, kRead, kWrite | kRead}) {
      Node sender(bed());
      Node target(bed(), OnHost(1, {.mr_access = IBV_ACCESS_LOCAL_WRITE | region,
                                    .dct_access = static_cast<unsigned>(target_rights)}));
      const auto status = [&](ibv_wr_opcode opcode, uint16_t stream) {
        return Try(sender, target.address(),
                   {.opcode = opcode,
                    .text = "x",
                    .read_bytes = 1,
                    .local_offset = Node::kFreeOffset,
                    .remote_offset = Node::kFreeOffset,
                    .stream = stream})
            .status;
      };
      const auto want = [&](int right) {
        if ((target_rights & right) == 0) return Node::WithoutRight(bed());
        return (region & right) != 0 ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR;
      };
      EXPECT_EQ(status(IBV_WR_RDMA_WRITE, 1), want(kWrite)) << region << " " << target_rights;
      EXPECT_EQ(status(IBV_WR_RDMA_READ, 2), want(kRead)) << region << " " << target_rights;
      EXPECT_EQ(status(IBV_WR_SEND, 3), IBV_WC_SUCCESS);
    }
  }
}

TEST_P(Errors, RegionOfAnotherProtectionDomainIsDenied) {
  PROVES(14, 57);
  Node sender(bed()), target(bed(), OnHost(1));
  ibv_pd* foreign = api().alloc_pd(target.context);
  ASSERT_NE(foreign, nullptr);
  ibv_mr* mr =
      api().reg_mr(foreign, target.slab, Node::kSlabBytes, IBV_ACCESS_LOCAL_WRITE | kRemoteRights);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(Try(sender, target.address(),
                {.opcode = IBV_WR_RDMA_WRITE, .text = "x", .stream = 1, .rkey = mr->rkey})
                .status,
            IBV_WC_REM_ACCESS_ERR);
  // The same at home.
  EXPECT_EQ(Try(target, sender.address(), {.text = "x", .stream = 1, .lkey = mr->lkey}).status,
            IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(api().dereg_mr(mr), 0);
  EXPECT_EQ(api().dealloc_pd(foreign), 0);
}

TEST_P(Errors, LocalKeyMustCoverTheData) {
  PROVES(57);
  Node sender(bed(), {.log_errored_streams = 3}), target(bed(), OnHost(1));
  const Address to = target.address();
  EXPECT_EQ(Try(sender, to, {.text = "x", .stream = 1, .lkey = sender.mr->lkey + 1}).status,
            IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(Try(sender, to,
                {.opcode = IBV_WR_RDMA_READ,
                 .read_bytes = 16,
                 .local_offset = Node::kSlabBytes - 15,
                 .stream = 2})
                .status,
            IBV_WC_LOC_PROT_ERR);
  // A read needs the right to write at home.
  ibv_mr* read_only = api().reg_mr(sender.pd, sender.slab, Node::kSlabBytes, 0);
  ASSERT_NE(read_only, nullptr);
  EXPECT_EQ(Try(sender, to,
                {.opcode = IBV_WR_RDMA_READ,
                 .read_bytes = 16,
                 .local_offset = Node::kFreeOffset,
                 .stream = 3,
                 .lkey = read_only->lkey})
                .status,
            IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(Try(sender, to, {.text = "x", .stream = 4, .lkey = read_only->lkey}).status,
            IBV_WC_SUCCESS);
  EXPECT_EQ(api().dereg_mr(read_only), 0);
  EXPECT_EQ(sender.QueryState(sender.dci), IBV_QPS_RTS);
}

TEST_P(Errors, MessageLongerThanTheBufferFailsAtBothEnds) {
  PROVES(15);
  Node sender(bed()), target(bed(), OnHost(1, {.receive_bytes = 16}));
  const Address to = target.address();
  EXPECT_EQ(Try(sender, to, {.text = std::string(16, 'x'), .stream = 1}).status, IBV_WC_SUCCESS);
  EXPECT_EQ(target.AwaitReceive().byte_len, 16u);
  const ibv_wc wc = Try(sender, to, {.text = std::string(17, 'x'), .stream = 2});
  EXPECT_EQ(wc.status, IBV_WC_REM_INV_REQ_ERR);
  if (bed().IsMlx5()) {
    EXPECT_EQ(wc.vendor_err, 0x8au);
  }
  if (bed().IsSoftware()) {
    EXPECT_EQ(target.AwaitReceive().status, IBV_WC_LOC_LEN_ERR);
  }
}

TEST_P(Errors, TargetIsUndisturbedByBadRequests) {
  PROVES(14, 61);
  Node sender(bed(), {.log_errored_streams = 4}), target(bed(), OnHost(1));
  const Address to = target.address();
  for (uint16_t stream = 1; stream < 10; ++stream) {
    EXPECT_EQ(Try(sender, to,
                  {.opcode = IBV_WR_RDMA_WRITE, .text = "x", .stream = stream, .rkey = 0xffffff01})
                  .status,
              IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(Try(sender, to, {.text = "good"}).status, IBV_WC_SUCCESS);
    EXPECT_EQ(target.TextOf(target.AwaitReceive()), "good");
  }
  EXPECT_EQ(target.QueryState(target.dct), IBV_QPS_RTR);
}

TEST_P(Errors, ErrorsOfRequestsRaiseNoAsyncEvent) {
  PROVES(63);
  Node sender(bed(), {.streams = false}), target(bed(), OnHost(1));
  for (Node* node : {&sender, &target}) {
    const int flags = fcntl(node->context->async_fd, F_GETFL);
    ASSERT_EQ(fcntl(node->context->async_fd, F_SETFL, flags | O_NONBLOCK), 0);
  }
  EXPECT_EQ(
      Try(sender, target.address(), {.opcode = IBV_WR_RDMA_WRITE, .text = "x", .rkey = 0xffffff01})
          .status,
      IBV_WC_REM_ACCESS_ERR);
  bed().Await("the error state", [&] { return sender.QueryState(sender.dci) == IBV_QPS_ERR; });
  for (Node* node : {&sender, &target}) {
    ibv_async_event event{};
    EXPECT_EQ(api().get_async_event(node->context, &event), -1);
    EXPECT_EQ(errno, EAGAIN);
  }
}

TEST_P(Errors, EmptyRequestsNeedNoKey) {
  PROVES(70);
  Node sender(bed()), target(bed(), OnHost(1));
  EXPECT_EQ(
      Try(sender, target.address(), {.opcode = IBV_WR_RDMA_WRITE, .text = "", .rkey = 0xffffff01})
          .status,
      IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace sluice::conformance
