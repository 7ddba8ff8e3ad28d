// SPDX-License-Identifier: Apache-2.0
//
// Where devices differ, or nobody has said what they do: each setting of softdc's dials
// (proto/softdc_config.proto) does what it says, on both fabrics.
#include <endian.h>

#include <atomic>
#include <cstring>
#include <string>

#include "tests/transport/softdc/conformance/conformance_test.h"
#include "tests/transport/softdc/conformance/plain_node.h"

namespace sluice::conformance {
namespace {

constexpr uint32_t kNoKey = 0xffffff01;
constexpr Request kBad{
    .opcode = IBV_WR_RDMA_WRITE, .wr_id = 99, .text = "x", .stream = 1, .rkey = kNoKey};

class Dial : public ConformanceTest {
 protected:
  // What the device says that it can do with streams; the bit is cleared if it does not say.
  mlx5dv_context Caps(Node& node) {
    mlx5dv_context caps{};
    caps.comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS;
    EXPECT_EQ(api().dv_query_device(node.context, &caps), 0);
    return caps;
  }
  ibv_qp* TryStreams(Node& node, uint8_t log_concurrent, uint8_t log_errored) {
    Node::Creation creation = node.DciCreation();
    creation.dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
    creation.dv.dc_init_attr.dci_streams = {.log_num_concurent = log_concurrent,
                                            .log_num_errored = log_errored};
    return node.Create(creation);
  }
};
ON_EVERY_DEVICE(Dial);

TEST_P(Dial, StreamsAreLimitedToWhatIsSet) {
  PROVES(33);
  TURN_DIALS("streams { max_log_concurrent: 2 max_log_errored: 1 }");
  Node node(bed(), {.streams = false});
  const mlx5dv_context caps = Caps(node);
  EXPECT_EQ(caps.dci_streams_caps.max_log_num_concurent, 2);
  EXPECT_EQ(caps.dci_streams_caps.max_log_num_errored, 1);
  EXPECT_EQ(TryStreams(node, 3, 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(TryStreams(node, 2, 2), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_qp* made = TryStreams(node, 2, 1);
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(api().destroy_qp(made), 0);
}

TEST_P(Dial, DeviceWithoutStreamsReportsAndMakesNone) {
  PROVES(19, 33);
  TURN_DIALS("streams { enabled: false }");
  Node node(bed(), {.streams = false});
  EXPECT_EQ(Caps(node).comp_mask & MLX5DV_CONTEXT_MASK_DCI_STREAMS, 0u);
  EXPECT_EQ(TryStreams(node, 1, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(api().dv_dci_stream_id_reset(node.dci, 1), EOPNOTSUPP);
}

// What much real firmware reports.
TEST_P(Dial, WithoutErroredStreamsOneStopsTheQueueAndNoneIsReset) {
  PROVES(18, 19);
  TURN_DIALS("streams { max_log_errored: 0 }");
  Node sender(bed(), {.log_errored_streams = 0});
  Node target(bed(), OnHost(1, {.log_errored_streams = 0}));
  const Address to = target.address();
  EXPECT_EQ(Caps(sender).dci_streams_caps.max_log_num_errored, 0);
  EXPECT_EQ(TryStreams(sender, 1, 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(api().dv_dci_stream_id_reset(sender.dci, 1), EOPNOTSUPP);
  ASSERT_EQ(sender.Post(to, kBad), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(sender.QueryState(sender.dci), IBV_QPS_ERR);
  ASSERT_EQ(sender.Post(to, {.text = "another stream", .stream = 2}), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_WR_FLUSH_ERR);
  sender.Recover();
  ASSERT_EQ(sender.Post(to, {.text = "again"}), 0);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "again");
}

TEST_P(Dial, ErrorStateMayComeLater) {
  PROVES(18);
  TURN_DIALS("streams { error_state_delay_ns: 1000000 }");
  Node sender(bed(), {.log_errored_streams = 0}), target(bed(), OnHost(1));
  const Address to = target.address();
  ASSERT_EQ(sender.Post(to, kBad), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_REM_ACCESS_ERR);
  bed().Await("the error state", [&] { return sender.QueryState(sender.dci) == IBV_QPS_ERR; });
  ASSERT_EQ(sender.Post(to, {.text = "another stream", .stream = 2}), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_WR_FLUSH_ERR);
}

// Long enough that what is between can be seen: other streams go on, the errored one is flushed; and a
// queue that was recovered meanwhile is left in peace.
TEST_P(Dial, UntilTheErrorStateComesOtherStreamsGoOn) {
  PROVES(18);
  TURN_DIALS("streams { error_state_delay_ns: 10000000000 }");
  Node sender(bed(), {.log_errored_streams = 0}), target(bed(), OnHost(1));
  const Address to = target.address();
  ASSERT_EQ(sender.Post(to, kBad), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(sender.QueryState(sender.dci), IBV_QPS_RTS);
  ASSERT_EQ(sender.Post(to, {.text = "same stream", .stream = 1}), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(sender.Post(to, {.text = "other stream", .stream = 2}), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "other stream");
  sender.Recover();
  if (!bed().Concurrent()) {
    while (bed().Progress()) {
    }
  }
  EXPECT_EQ(sender.QueryState(sender.dci), IBV_QPS_RTS);
  ASSERT_EQ(sender.Post(to, {.text = "recovered", .stream = 1}), 0);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "recovered");
}

TEST_P(Dial, CompletionsInOrderOfEachStreamOnly) {
  PROVES(9);
  TURN_DIALS("streams { cqe_order: PER_STREAM }");
  Node sender(bed(), {.send_wr = 16}), good(bed(), OnHost(1));
  Node waits(bed(), OnHost(2, {.receives = 0}));
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(sender.Post(waits.address(), {.wr_id = 100 + i, .text = "x", .stream = 1}), 0);
  }
  for (uint64_t i = 0; i < 13; ++i) {
    ASSERT_EQ(sender.Post(good.address(), {.wr_id = 200 + i, .text = "x", .stream = 2}), 0);
  }
  for (uint64_t i = 0; i < 13; ++i) EXPECT_EQ(sender.AwaitSend().wr_id, 200 + i);
  EXPECT_TRUE(sender.NoCompletion(sender.send_cq));
  // Slots come back in queue order all the same: the first is still in use.
  EXPECT_EQ(sender.Post(good.address(), {.text = "no room"}), ENOMEM);
  waits.PostReceives(3);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(sender.AwaitSend().wr_id, 100 + i);
  for (uint64_t i = 0; i < 16; ++i) {
    ASSERT_EQ(sender.Post(good.address(), {.wr_id = 300 + i, .text = "x", .stream = 2}), 0);
  }
  for (uint64_t i = 0; i < 16; ++i) EXPECT_EQ(sender.AwaitSend().wr_id, 300 + i);
}

TEST_P(Dial, WrongDcKeyMayBeAnAccessError) {
  PROVES(13);
  TURN_DIALS("unknowns { wrong_dc_key: REMOTE_ACCESS_ERROR }");
  Node sender(bed()), target(bed(), OnHost(1));
  Address to = target.address();
  to.dc_key ^= 1;
  ASSERT_EQ(sender.Post(to, {.text = "x", .stream = 1}), 0);
  const ibv_wc wc = sender.AwaitSend();
  EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(wc.vendor_err, 0x88u);
  EXPECT_TRUE(target.NoCompletion(target.receive_cq));
  ASSERT_EQ(sender.Post(target.address(), {.text = "right key", .stream = 2}), 0);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "right key");
}

TEST_P(Dial, TooLongMayBeSilentAtADct) {
  PROVES(15);
  TURN_DIALS("unknowns { too_long_at_target: SILENT }");
  Node sender(bed()), target(bed(), OnHost(1, {.receives = 1, .receive_bytes = 16}));
  const Address to = target.address();
  ASSERT_EQ(sender.Post(to, {.text = std::string(17, 'x'), .stream = 1}), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_REM_INV_REQ_ERR);
  // The one receive that there was takes what fits.
  ASSERT_EQ(sender.Post(to, {.text = "fits", .stream = 2}), 0);
  const ibv_wc got = target.AwaitReceive();
  EXPECT_EQ(got.status, IBV_WC_SUCCESS);
  EXPECT_EQ(target.TextOf(got), "fits");
  // RC is no unknown.
  PlainPair pair(bed(), {}, {.receives = 1, .receive_bytes = 16});
  ASSERT_EQ(pair.a.Send(std::string(17, 'x'), 1), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(pair.b.AwaitReceive().status, IBV_WC_LOC_LEN_ERR);
}

// A request that waits on one stream, a fenced one behind it on another, and one that is not fenced,
// to show what passed it.
class Fence : public Dial {
 protected:
  std::string FirstToPass() {
    Node sender(bed()), target(bed(), OnHost(1));
    Node waits(bed(), OnHost(2, {.receives = 0}));
    const Address to = target.address();
    // Once it is known who that is, requests to it need not wait for an answer.
    EXPECT_EQ(sender.Post(to, {.text = "first"}), 0);
    EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
    EXPECT_EQ(target.TextOf(target.AwaitReceive()), "first");
    EXPECT_EQ(sender.Post(waits.address(), {.text = "x", .stream = 1}), 0);
    EXPECT_EQ(sender.Post(
                  to, {.text = "fenced", .stream = 2, .flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE}),
              0);
    EXPECT_EQ(sender.Post(to, {.text = "free", .stream = 3}), 0);
    const std::string first = target.TextOf(target.AwaitReceive());
    waits.PostReceives(1);
    target.AwaitReceive();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
    return first;
  }
};
ON_EVERY_DEVICE(Fence);

TEST_P(Fence, WaitsForTheWholeQueue) {
  PROVES(46);
  TURN_DIALS("unknowns { fence_scope: QUEUE }");
  EXPECT_EQ(FirstToPass(), "free");
}

TEST_P(Fence, MayWaitForItsStreamOnly) {
  PROVES(46);
  TURN_DIALS("unknowns { fence_scope: STREAM }");
  EXPECT_EQ(FirstToPass(), "fenced");
}

TEST_P(Dial, FullQueueMayLetItsSendersWait) {
  PROVES(166);
  TURN_DIALS("unknowns { full_receive_cq: WAIT }");
  Node sender(bed()), target(bed(), OnHost(1, {.cqe = 4}));
  constexpr uint64_t kMany = 40;
  for (uint64_t i = 0; i < kMany; ++i) {
    ASSERT_EQ(sender.Post(target.address(), {.wr_id = i, .text = std::to_string(i)}), 0);
  }
  for (uint64_t i = 0; i < kMany; ++i) {
    EXPECT_EQ(target.TextOf(target.AwaitReceive()), std::to_string(i));
  }
  for (uint64_t i = 0; i < kMany; ++i) EXPECT_EQ(sender.AwaitSend().wr_id, i);
}

class Unordered : public ConformanceTest {
 protected:
  static constexpr uint32_t kBytes = 4096;
  // Whether, at some moment, a byte was there although one before it, in another unit of that many
  // bytes, was not. Tries until it has seen it.
  void AwaitShuffled(size_t unit) {
    Node sender(bed()), target(bed(), OnHost(1));
    std::byte* const place = target.slab + Node::kFreeOffset;
    uint8_t stamp = 0;
    std::atomic<bool> seen{false};
    bed().Await("payload out of order", [&] {
      stamp = static_cast<uint8_t>(stamp % 250 + 1);
      EXPECT_EQ(
          sender.Post(target.address(), {.opcode = IBV_WR_RDMA_WRITE,
                                         .text = std::string(kBytes, static_cast<char>(stamp)),
                                         .remote_offset = Node::kFreeOffset}),
          0);
      ibv_wc wc{};
      while (ibv_poll_cq(sender.send_cq, 1, &wc) == 0) {
        size_t first_missing = 0;
        while (first_missing < kBytes && place[first_missing] == std::byte{stamp}) ++first_missing;
        for (size_t at = first_missing / unit * unit + unit; at < kBytes; at += unit) {
          if (place[at] == std::byte{stamp}) seen = true;
        }
        if (!bed().Progress()) break;
      }
      for (size_t i = 0; i < kBytes; ++i) EXPECT_EQ(place[i], std::byte{stamp});
      return seen.load();
    });
  }
};
ON_EVERY_DEVICE(Unordered);

TEST_P(Unordered, NothingIsPromisedAndNothingIsKept) {
  PROVES(25, 155);
  TURN_DIALS("features { in_order: NONE }");
  {
    Node node(bed());
    for (const uint32_t flags : {0u, 1u, 2u, 3u}) {
      EXPECT_EQ(api().query_qp_data_in_order(node.dct, IBV_WR_RDMA_WRITE, flags), 0);
    }
  }
  // Where a copy is over before anybody can look, copy_test watches from another thread.
  if (bed().Concurrent()) return;
  AwaitShuffled(8);
}

// In whatever order its bytes land, a message is complete when its completion says so.
TEST_P(Unordered, CompletionComesAfterAllOfItsData) {
  PROVES(155);
  TURN_DIALS("features { in_order: NONE }");
  Node sender(bed()), target(bed(), OnHost(1, {.receive_bytes = kBytes}));
  for (char c = 'a'; c <= 'z'; ++c) {
    ASSERT_EQ(sender.Post(target.address(), {.text = std::string(kBytes, c)}), 0);
    EXPECT_EQ(target.TextOf(target.AwaitReceive()), std::string(kBytes, c));
    EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
  }
}

TEST_P(Unordered, BlocksOf128ArePromisedToWhoAsks) {
  PROVES(25, 155);
  TURN_DIALS("features { in_order: BLOCKS_128 }");
  {
    Node node(bed());
    EXPECT_EQ(api().query_qp_data_in_order(node.dct, IBV_WR_RDMA_WRITE, 0), 0);
    EXPECT_EQ(api().query_qp_data_in_order(node.dct, IBV_WR_RDMA_WRITE, 1), 2);
  }
  if (bed().Concurrent()) return;
  AwaitShuffled(128);
}

TEST_P(Dial, LimitsAreReportedAndKept) {
  PROVES(31, 54);
  TURN_DIALS(
      "limits { max_send_wr: 32 max_sge: 4 max_inline_bytes: 48 max_cqe: 512 max_srq_wr: 256 "
      "max_rd_atomic: 2 }");
  Node node(bed(), {.send_wr = 16, .inline_bytes = 48});
  ibv_device_attr attr{};
  ASSERT_EQ(api().query_device(node.context, &attr), 0);
  EXPECT_EQ(attr.max_qp_wr, 32);
  EXPECT_EQ(attr.max_sge, 4);
  EXPECT_EQ(attr.max_cqe, 512);
  EXPECT_EQ(attr.max_srq_wr, 256);
  const auto refuses = [&](auto spoil) {
    Node::Creation creation = node.DciCreation();
    spoil(creation.attr.cap);
    return node.Create(creation) == nullptr && errno == EINVAL;
  };
  EXPECT_TRUE(refuses([](ibv_qp_cap& cap) { cap.max_send_wr = 33; }));
  EXPECT_TRUE(refuses([](ibv_qp_cap& cap) { cap.max_send_sge = 5; }));
  EXPECT_TRUE(refuses([](ibv_qp_cap& cap) { cap.max_inline_data = 49; }));
  errno = 0;
  EXPECT_EQ(api().create_cq(node.context, 513, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_srq_init_attr srq{};
  srq.attr = {.max_wr = 257, .max_sge = 1, .srq_limit = 0};
  EXPECT_EQ(api().create_srq(node.pd, &srq), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_P(Dial, WhatIsSwitchedOffIsNotSupported) {
  PROVES(4, 77, 79, 136);
  TURN_DIALS(
      "features { ece: false ah_mapping: false reserved_qpns: false signature: false "
      "signature_pipelining: false }");
  Node node(bed());
  for (ibv_qp* qp : {node.dci, node.dct}) {
    ibv_ece ece{.vendor_id = 0x15b3, .options = 1, .comp_mask = 0};
    EXPECT_EQ(api().set_ece(qp, &ece), EOPNOTSUPP);
    EXPECT_EQ(api().query_ece(qp, &ece), 0);
    EXPECT_EQ(ece.options, 0u);
  }
  EXPECT_EQ(api().dv_map_ah_to_qp(node.AhTo(node.address()), node.dci->qp_num), EOPNOTSUPP);
  uint32_t number = 0;
  EXPECT_EQ(api().dv_reserved_qpn_alloc(node.context, &number), EOPNOTSUPP);
  mlx5dv_mkey_init_attr init{.pd = node.pd,
                             .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
                                             MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE,
                             .max_entries = 4};
  errno = 0;
  EXPECT_EQ(api().dv_create_mkey(&init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

// As other vendors' devices and soft RoCE: RC is all that there is.
TEST_P(Dial, DeviceWithoutDcRefusesBothKinds) {
  PROVES(1);
  TURN_DIALS("features { dc: false }");
  PlainNode node(bed(), {.srq = true});
  for (const mlx5dv_dc_type type : {MLX5DV_DCTYPE_DCI, MLX5DV_DCTYPE_DCT}) {
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_DRIVER;
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    init.pd = node.pd;
    init.send_cq = init.recv_cq = node.receive_cq;
    init.srq = type == MLX5DV_DCTYPE_DCT ? node.srq : nullptr;
    mlx5dv_qp_init_attr dv{};
    dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    dv.dc_init_attr.dc_type = type;
    errno = 0;
    EXPECT_EQ(api().dv_create_qp(node.context, &init, &dv), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  node.ConnectTo(node);
  ASSERT_EQ(node.Send("by RC", 1), 0);
  EXPECT_EQ(node.Received(node.AwaitReceive()), "by RC");
}

// InfiniBand: an address needs no GID, the LID leads there.
TEST_P(Dial, OnInfinibandTheLidIsAnAddress) {
  PROVES(48, 168);
  TURN_DIALS("port { link_layer: INFINIBAND lid: 7 }");
  Node sender(bed()), target(bed(), OnHost(1));
  ibv_port_attr port{};
  ASSERT_EQ(api().query_port(target.context, 1, &port), 0);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_INFINIBAND);
  EXPECT_NE(port.lid, 0);
  ibv_ah_attr path{};
  path.port_num = 1;
  path.dlid = port.lid;
  ibv_ah* ah = api().create_ah(sender.pd, &path);
  ASSERT_NE(ah, nullptr);
  ibv_wr_start(sender.dci_ex);
  sender.dci_ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(sender.dci_ex);
  ibv_wr_set_inline_data(sender.dci_ex, const_cast<char*>("by LID"), 6);
  mlx5dv_wr_set_dc_addr(sender.dci_dv, ah, target.dct->qp_num, kDcKey);
  ASSERT_EQ(ibv_wr_complete(sender.dci_ex), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "by LID");
  // The congestion settings of a queue pair are for global addresses.
  EXPECT_EQ(api().dv_map_ah_to_qp(ah, sender.dci->qp_num), EOPNOTSUPP);
  EXPECT_EQ(api().destroy_ah(ah), 0);
}

TEST_P(Dial, OnInfinibandTheReceiverIsToldTheServiceLevel) {
  PROVES(208);
  TURN_DIALS("port { link_layer: INFINIBAND }");
  Node target(bed(), OnHost(1));
  for (const uint8_t level : {5, 0}) {
    Node sender(bed());
    Address to = target.address();
    to.path.sl = level;
    ASSERT_EQ(sender.Post(to, {.text = "x"}), 0);
    EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
    EXPECT_EQ(target.AwaitReceive().sl, level);
  }
}

TEST_P(Dial, PacketsOfAnotherPartitionAreDropped) {
  PROVES(207);
  TURN_DIALS("port { second_pkey: 0x8001 }");
  Node sender(bed()), target(bed(), OnHost(1));
  ibv_port_attr port{};
  ASSERT_EQ(api().query_port(sender.context, 1, &port), 0);
  EXPECT_EQ(port.pkey_tbl_len, 2);
  __be16 pkey = 0;
  ASSERT_EQ(api().query_pkey(sender.context, 1, 1, &pkey), 0);
  EXPECT_EQ(be16toh(pkey), 0x8001);
  const auto join = [&](uint16_t index) {
    ASSERT_EQ(sender.Modify(sender.dci, IBV_QPS_RESET, IBV_QP_STATE), 0);
    ibv_qp_attr attr = sender.AttributesFor(IBV_QPS_INIT);
    attr.pkey_index = index;
    ASSERT_EQ(api().modify_qp(sender.dci, &attr, kDciInit), 0);
    ASSERT_EQ(sender.Modify(sender.dci, IBV_QPS_RTR, kDciRtr), 0);
    ASSERT_EQ(sender.Modify(sender.dci, IBV_QPS_RTS, kDciRts), 0);
  };
  join(1);
  ASSERT_EQ(sender.Post(target.address(), {.text = "elsewhere"}), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(target.NoCompletion(target.receive_cq));
  join(0);
  ASSERT_EQ(sender.Post(target.address(), {.text = "here"}), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "here");
}

// Of a partition at most one of two members may be a limited one.
TEST_P(Dial, LimitedMembersOfAPartitionDoNotHearEachOther) {
  PROVES(207);
  TURN_DIALS("port { second_pkey: 0x0001 }");
  Node sender(bed()), target(bed(), OnHost(1));
  ASSERT_EQ(sender.Modify(sender.dci, IBV_QPS_RESET, IBV_QP_STATE), 0);
  ibv_qp_attr attr = sender.AttributesFor(IBV_QPS_INIT);
  attr.pkey_index = 1;
  ASSERT_EQ(api().modify_qp(sender.dci, &attr, kDciInit), 0);
  ASSERT_EQ(sender.Modify(sender.dci, IBV_QPS_RTR, kDciRtr), 0);
  ASSERT_EQ(sender.Modify(sender.dci, IBV_QPS_RTS, kDciRts), 0);
  Node::Creation creation = target.DctCreation();
  ibv_qp* dct = target.Create(creation);
  ASSERT_NE(dct, nullptr);
  attr = target.AttributesFor(IBV_QPS_INIT);
  attr.pkey_index = 2;
  EXPECT_EQ(api().modify_qp(dct, &attr, kDctInit), EINVAL);
  attr.pkey_index = 1;
  ASSERT_EQ(api().modify_qp(dct, &attr, kDctInit), 0);
  ASSERT_EQ(target.Modify(dct, IBV_QPS_RTR, kDctRtr), 0);
  Address to = target.address();
  to.dctn = dct->qp_num;
  ASSERT_EQ(sender.Post(to, {.text = "x"}), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(api().destroy_qp(dct), 0);
}

TEST_P(Dial, ActiveMtuIsReportedAndNoPathHasMore) {
  PROVES(203);
  TURN_DIALS("port { active_mtu: 1024 }");
  Node node(bed(), {.path_mtu = IBV_MTU_1024});
  ibv_port_attr port{};
  ASSERT_EQ(api().query_port(node.context, 1, &port), 0);
  EXPECT_EQ(port.active_mtu, IBV_MTU_1024);
  EXPECT_EQ(port.max_mtu, IBV_MTU_4096);
  ASSERT_EQ(node.Modify(node.dci, IBV_QPS_RESET, IBV_QP_STATE), 0);
  ASSERT_EQ(node.Modify(node.dci, IBV_QPS_INIT, kDciInit), 0);
  ibv_qp_attr attr = node.AttributesFor(IBV_QPS_RTR);
  attr.path_mtu = IBV_MTU_2048;
  EXPECT_EQ(api().modify_qp(node.dci, &attr, kDciRtr), EINVAL);
  Node::Creation creation = node.DctCreation();
  ibv_qp* dct = node.Create(creation);
  ASSERT_NE(dct, nullptr);
  ASSERT_EQ(node.Modify(dct, IBV_QPS_INIT, kDctInit), 0);
  EXPECT_EQ(api().modify_qp(dct, &attr, kDctRtr), EINVAL);
  attr.path_mtu = IBV_MTU_1024;
  EXPECT_EQ(api().modify_qp(dct, &attr, kDctRtr), 0);
  EXPECT_EQ(api().destroy_qp(dct), 0);
}

// Of two kinds of packets the target takes those of one: nothing that is longer than the smaller one arrives.
TEST_P(Dial, BetweenUnlikePathMtusOnePacketPasses) {
  PROVES(202);
  for (const bool larger_sends : {true, false}) {
    const ibv_mtu sends = larger_sends ? IBV_MTU_1024 : IBV_MTU_512;
    const ibv_mtu takes = larger_sends ? IBV_MTU_512 : IBV_MTU_1024;
    Node sender(bed(), {.path_mtu = sends});
    Node target(bed(), OnHost(1, {.receive_bytes = 2048, .path_mtu = takes}));
    const Address to = target.address();
    ASSERT_EQ(sender.Post(to, {.text = std::string(512, 'a')}), 0);
    EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
    EXPECT_EQ(target.TextOf(target.AwaitReceive()), std::string(512, 'a'));
    // Behind one doorbell with shorter ones.
    ibv_wr_start(sender.dci_ex);
    sender.Add(to, {.text = "short", .stream = 1});
    sender.Add(to, {.text = std::string(513, 'b'), .stream = 1});
    ASSERT_EQ(ibv_wr_complete(sender.dci_ex), 0);
    EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
    EXPECT_EQ(sender.AwaitSend().status, IBV_WC_REM_INV_REQ_ERR);
    EXPECT_EQ(target.TextOf(target.AwaitReceive()), "short");
    ASSERT_EQ(sender.Post(to, {.opcode = IBV_WR_RDMA_WRITE,
                               .text = std::string(513, 'c'),
                               .remote_offset = Node::kFreeOffset,
                               .stream = 2}),
              0);
    EXPECT_EQ(sender.AwaitSend().status, IBV_WC_REM_INV_REQ_ERR);
    ASSERT_EQ(sender.Post(to, {.opcode = IBV_WR_RDMA_READ,
                               .read_bytes = 513,
                               .local_offset = Node::kFreeOffset,
                               .remote_offset = Node::kFreeOffset,
                               .stream = 3}),
              0);
    EXPECT_EQ(sender.AwaitSend().status, IBV_WC_REM_INV_REQ_ERR);
    ASSERT_EQ(sender.Post(to, {.text = "goes on", .stream = 4}), 0);
    EXPECT_EQ(target.TextOf(target.AwaitReceive()), "goes on");
  }
}

TEST_P(Dial, UnsignalledRequestsMayBeFlushedWithoutACompletion) {
  PROVES(204);
  TURN_DIALS("unknowns { unsignalled_flush: NO_COMPLETION }");
  Node sender(bed(), {.log_errored_streams = 0}), target(bed(), OnHost(1));
  const Address to = target.address();
  ibv_wr_start(sender.dci_ex);
  Request bad = kBad;
  bad.flags = 0;
  sender.Add(to, bad);
  sender.Add(to, {.wr_id = 1, .text = "unsignalled", .stream = 1, .flags = 0});
  sender.Add(to, {.wr_id = 2, .text = "signalled", .stream = 1});
  ASSERT_EQ(ibv_wr_complete(sender.dci_ex), 0);
  // What went wrong by itself is told as ever.
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_REM_ACCESS_ERR);
  const ibv_wc flushed = sender.AwaitSend();
  EXPECT_EQ(flushed.wr_id, 2u);
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(target.NoCompletion(target.receive_cq));
}

}  // namespace
}  // namespace sluice::conformance
