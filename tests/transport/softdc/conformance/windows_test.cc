// SPDX-License-Identifier: Apache-2.0
//
// Memory windows of type 2, bound and taken back by work requests.
#include <arpa/inet.h>

#include <string>

#include "tests/transport/softdc/conformance/conformance_test.h"
#include "tests/transport/softdc/conformance/plain_node.h"

namespace sluice::conformance {
namespace {

constexpr size_t kInside = PlainNode::kFreeOffset + 1024;
constexpr uint32_t kBytes = 64;

// b opens windows, a writes through them.
class Windows : public ConformanceTest {
 protected:
  void SetUp() override {
    ConformanceTest::SetUp();
    if (IsSkipped()) return;
    Connect();
  }
  void TearDown() override {
    if (window_ != nullptr) {
      EXPECT_EQ(ibv_dealloc_mw(window_), 0);
    }
  }
  void Connect() {
    pair_ = std::make_unique<PlainPair>(bed());
    window_ = ibv_alloc_mw(b().pd, IBV_MW_TYPE_2);
    ASSERT_NE(window_, nullptr);
  }
  PlainNode& a() { return pair_->a; }
  PlainNode& b() { return pair_->b; }
  ibv_mw_bind_info Info(unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ) {
    return {
        .mr = b().mr, .addr = b().Address(kInside), .length = kBytes, .mw_access_flags = access};
  }
  // Runs the bind on b; how it completed.
  ibv_wc Bind(uint32_t key, const ibv_mw_bind_info& info) {
    ibv_wr_start(b().ex);
    b().ex->wr_id = 1;
    b().ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_bind_mw(b().ex, window_, key, &info);
    EXPECT_EQ(ibv_wr_complete(b().ex), 0);
    return b().AwaitSend();
  }
  ibv_wc Invalidate(PlainNode& node, uint32_t key) {
    ibv_wr_start(node.ex);
    node.ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_local_inv(node.ex, key);
    EXPECT_EQ(ibv_wr_complete(node.ex), 0);
    return node.AwaitSend();
  }
  ibv_wc_status WriteWith(uint32_t key, size_t offset) {
    a().Fill(PlainNode::kFreeOffset, "window");
    ibv_send_wr wr = a().WrTo(b(), offset, IBV_WR_RDMA_WRITE, PlainNode::kFreeOffset, 6);
    wr.wr.rdma.rkey = key;
    EXPECT_EQ(a().Post(wr), 0);
    return a().AwaitSend().status;
  }
  uint32_t NextKey() { return ibv_inc_rkey(window_->rkey); }

  std::unique_ptr<PlainPair> pair_;
  ibv_mw* window_ = nullptr;
};
ON_EVERY_DEVICE(Windows);

TEST_P(Windows, KeyWorksInsideOnceItIsBound) {
  PROVES(162);
  const ibv_wc wc = Bind(NextKey(), Info());
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_BIND_MW);
  EXPECT_EQ(WriteWith(NextKey(), kInside), IBV_WC_SUCCESS);
  EXPECT_EQ(WriteWith(NextKey(), kInside + kBytes - 6), IBV_WC_SUCCESS);
  EXPECT_EQ(b().Text(kInside, 6), "window");
  EXPECT_EQ(WriteWith(NextKey(), kInside + kBytes - 5), IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Windows, KeyIsNothingBeforeTheBind) {
  PROVES(162);
  EXPECT_EQ(WriteWith(NextKey(), kInside), IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Windows, RightsAreItsOwn) {
  PROVES(162);
  ASSERT_EQ(Bind(NextKey(), Info(IBV_ACCESS_REMOTE_READ)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(WriteWith(NextKey(), kInside), IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Windows, LocalInvalidationEndsIt) {
  PROVES(163);
  ASSERT_EQ(Bind(NextKey(), Info()).status, IBV_WC_SUCCESS);
  const ibv_wc wc = Invalidate(b(), NextKey());
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_LOCAL_INV);
  EXPECT_EQ(WriteWith(NextKey(), kInside), IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Windows, InvalidatedWindowIsBoundAnew) {
  PROVES(163);
  ASSERT_EQ(Bind(NextKey(), Info()).status, IBV_WC_SUCCESS);
  ASSERT_EQ(Invalidate(b(), NextKey()).status, IBV_WC_SUCCESS);
  const uint32_t second = ibv_inc_rkey(NextKey());
  ASSERT_EQ(Bind(second, Info()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(WriteWith(second, kInside), IBV_WC_SUCCESS);
  EXPECT_EQ(WriteWith(NextKey(), kInside), IBV_WC_REM_ACCESS_ERR);  // the first one's key
}

TEST_P(Windows, SendWithInvalidateEndsItFromAfar) {
  PROVES(50, 163);
  ASSERT_EQ(Bind(NextKey(), Info()).status, IBV_WC_SUCCESS);
  ASSERT_EQ(WriteWith(NextKey(), kInside), IBV_WC_SUCCESS);
  ibv_send_wr wr = a().Wr(IBV_WR_SEND_WITH_INV, PlainNode::kFreeOffset, 6);
  wr.invalidate_rkey = NextKey();
  ASSERT_EQ(a().Post(wr), 0);
  EXPECT_EQ(a().AwaitSend().opcode, IBV_WC_SEND);
  const ibv_wc got = b().AwaitReceive();
  EXPECT_EQ(got.opcode, IBV_WC_RECV);
  EXPECT_EQ(Node::FlagsOf(got), static_cast<unsigned>(IBV_WC_WITH_INV));
  EXPECT_EQ(got.invalidated_rkey, NextKey());
  EXPECT_EQ(WriteWith(NextKey(), kInside), IBV_WC_REM_ACCESS_ERR);
}

// Nothing of either program is known to the other's device yet.
TEST_P(Windows, SendWithInvalidateMayBeTheFirstMessage) {
  PROVES(163);
  ASSERT_EQ(Bind(NextKey(), Info()).status, IBV_WC_SUCCESS);
  ibv_send_wr wr = a().Wr(IBV_WR_SEND_WITH_INV, PlainNode::kFreeOffset, 6);
  wr.invalidate_rkey = NextKey();
  ASSERT_EQ(a().Post(wr), 0);
  EXPECT_EQ(a().AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b().AwaitReceive().invalidated_rkey, NextKey());
}

TEST_P(Windows, InvalidatingWhatIsNotBoundIsDenied) {
  PROVES(163);
  ibv_send_wr wr = a().Wr(IBV_WR_SEND_WITH_INV, PlainNode::kFreeOffset, 6);
  wr.invalidate_rkey = NextKey();
  ASSERT_EQ(a().Post(wr), 0);
  EXPECT_EQ(a().AwaitSend().status, IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Windows, LocalInvalidationOfWhatIsNotBoundFails) {
  PROVES(163);
  EXPECT_EQ(Invalidate(b(), NextKey()).status, IBV_WC_MW_BIND_ERR);
}

TEST_P(Windows, BindOfNothingEndsIt) {
  PROVES(163);
  ASSERT_EQ(Bind(NextKey(), Info()).status, IBV_WC_SUCCESS);
  const ibv_mw_bind_info nothing{};
  EXPECT_EQ(Bind(NextKey(), nothing).status, IBV_WC_SUCCESS);
  EXPECT_EQ(WriteWith(NextKey(), kInside), IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Windows, OnlyTheLowByteOfTheNewKeyCounts) {
  PROVES(162);
  EXPECT_EQ(Bind(NextKey() + 256, Info()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(WriteWith(NextKey(), kInside), IBV_WC_SUCCESS);
}

TEST_P(Windows, BindsThatTheRegionDoesNotAllowFail) {
  PROVES(164);
  ibv_mw_bind_info outside = Info();
  outside.addr = b().Address(PlainNode::kSlabBytes - 8);
  ibv_mw_bind_info without = Info();
  PlainNode other(bed(), {.host = 1});
  ibv_mr* plain = api().reg_mr(b().pd, b().slab, PlainNode::kSlabBytes, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(plain, nullptr);
  without.mr = plain;  // lacks IBV_ACCESS_MW_BIND
  ibv_mr* read_only = api().reg_mr(b().pd, b().slab, PlainNode::kSlabBytes, IBV_ACCESS_MW_BIND);
  ASSERT_NE(read_only, nullptr);
  ibv_mw_bind_info writes = Info(IBV_ACCESS_REMOTE_WRITE);
  writes.mr = read_only;
  for (const ibv_mw_bind_info& info : {outside, without, writes}) {
    EXPECT_EQ(Bind(NextKey(), info).status, IBV_WC_MW_BIND_ERR);
    // The error has stopped the queue pair.
    ASSERT_EQ(b().ToState(IBV_QPS_RESET), 0);
    b().ToInit();
    b().ConnectTo(a());
  }
  EXPECT_EQ(api().dereg_mr(plain), 0);
  EXPECT_EQ(api().dereg_mr(read_only), 0);
}

TEST_P(Windows, BoundWindowIsForOneQueuePair) {
  PROVES(164);
  ASSERT_EQ(Bind(NextKey(), Info()).status, IBV_WC_SUCCESS);
  // Another pair of the same two programs.
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = b().send_cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {.max_send_wr = 4,
              .max_recv_wr = 4,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  ibv_qp* second = api().create_qp(b().pd, &init);
  ASSERT_NE(second, nullptr);
  PlainNode writer(bed());
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kAllRights;
  ASSERT_EQ(api().modify_qp(second, &attr, kRcInit), 0);
  attr = b().AttributesTo(writer);
  ASSERT_EQ(api().modify_qp(second, &attr, kRcRtr), 0);
  attr = writer.AttributesTo(b());
  attr.dest_qp_num = second->qp_num;
  ASSERT_EQ(api().modify_qp(writer.qp, &attr, kRcRtr), 0);
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(api().modify_qp(writer.qp, &attr, kRcRts), 0);
  ibv_send_wr wr = writer.WrTo(b(), kInside, IBV_WR_RDMA_WRITE, PlainNode::kFreeOffset, 6);
  ASSERT_EQ(writer.Post(wr), 0);  // by the region's own key: the way is right
  EXPECT_EQ(writer.AwaitSend().status, IBV_WC_SUCCESS);
  wr.wr.rdma.rkey = NextKey();
  ASSERT_EQ(writer.Post(wr), 0);
  EXPECT_EQ(writer.AwaitSend().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(api().destroy_qp(second), 0);
}

TEST_P(Windows, RegionUnderABoundWindowIsBusy) {
  PROVES(64, 164);
  ASSERT_EQ(Bind(NextKey(), Info()).status, IBV_WC_SUCCESS);
  const int error = api().dereg_mr(b().mr);
  EXPECT_TRUE(error == EBUSY || (error != 0 && !bed().IsMlx5())) << error;
  ASSERT_EQ(Invalidate(b(), NextKey()).status, IBV_WC_SUCCESS);
}

// On a DCI: what it binds is used through the DCTs of its protection domain.
TEST_P(Windows, DciBindsForItsDcts) {
  PROVES(162, 163);
  if (!bed().IsMlx5()) GTEST_SKIP() << "the device has no DC";
  Node sender(bed(), {.log_errored_streams = 4});
  Node target(
      bed(), OnHost(1, {.mr_access = IBV_ACCESS_LOCAL_WRITE | kRemoteRights | IBV_ACCESS_MW_BIND}));
  ibv_mw* window = ibv_alloc_mw(target.pd, IBV_MW_TYPE_2);
  ASSERT_NE(window, nullptr);
  const uint32_t key = ibv_inc_rkey(window->rkey);
  const ibv_mw_bind_info info{.mr = target.mr,
                              .addr = target.address().slab + Node::kFreeOffset,
                              .length = kBytes,
                              .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
  ibv_wr_start(target.dci_ex);
  target.dci_ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_bind_mw(target.dci_ex, window, key, &info);
  ASSERT_EQ(ibv_wr_complete(target.dci_ex), 0);
  ibv_wc wc = target.AwaitSend();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_BIND_MW);
  const Address to = target.address();
  const auto write = [&](uint16_t stream) {
    EXPECT_EQ(sender.Post(to, {.opcode = IBV_WR_RDMA_WRITE,
                               .text = "window",
                               .remote_offset = Node::kFreeOffset,
                               .stream = stream,
                               .rkey = key}),
              0);
    return sender.AwaitSend().status;
  };
  EXPECT_EQ(write(1), IBV_WC_SUCCESS);
  EXPECT_EQ(target.SlabText(Node::kFreeOffset, 6), "window");
  // SEND with invalidate: the DCT's completion names the key.
  ibv_wr_start(sender.dci_ex);
  sender.dci_ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send_inv(sender.dci_ex, key);
  ibv_wr_set_inline_data(sender.dci_ex, const_cast<char*>("bye"), 3);
  mlx5dv_wr_set_dc_addr_stream(sender.dci_dv, sender.AhTo(to), to.dctn, to.dc_key, 1);
  ASSERT_EQ(ibv_wr_complete(sender.dci_ex), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
  wc = target.AwaitReceive();
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
  EXPECT_EQ(wc.invalidated_rkey, key);
  EXPECT_EQ(target.TextOf(wc), "bye");
  EXPECT_EQ(write(2), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

}  // namespace
}  // namespace sluice::conformance
