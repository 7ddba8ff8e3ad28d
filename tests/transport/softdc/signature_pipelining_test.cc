// SPDX-License-Identifier: Apache-2.0
//
// Facts 142 to 147: a mismatch stops the queue in front of the next fenced WR, and what cancelling and
// going on do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>

#include "tests/transport/softdc/mkey_node.h"
#include "transport/softdc/verbs_mkey.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace signature_pipelining_test {

constexpr uint32_t kBlock = 512;
constexpr uint32_t kProtected = kBlock + 4;
constexpr unsigned kReplyFlags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
constexpr size_t kOk = 32768, kFailed = 32800;  // replies in the slab of the server
constexpr uint32_t kReplyBytes = 16;

// `server` reads requests out of its protected memory into the client's, and replies.
class Pipelining : public testing::Test {
 protected:
  void SetUp() override {
    MkeyNode::Connect(server, client);
    std::memcpy(server.at(kOk), "ok", 3);
    std::memcpy(server.at(kFailed), "failed", 7);
  }

  // A key over protected data at `offset`, spoilt or not.
  mlx5dv_mkey* Key(size_t offset, bool spoilt) {
    std::ranges::generate(server.bytes(offset, kBlock),
                          [&] { return static_cast<std::byte>(random_()); });
    std::ranges::copy(WithCrc(server.bytes(offset, kBlock)), server.at(offset));
    if (spoilt) *server.at(offset + random_() % kProtected) ^= std::byte{16};
    mlx5dv_mkey* key = server.CreateKey();
    const CrcSignature signature(/*on_wire=*/false);
    EXPECT_EQ(server.Configure(key, {server.Piece(offset, kProtected)}, signature.attr), 0);
    return key;
  }
  void PostData(const mlx5dv_mkey* key, uint64_t wr_id, size_t to_offset = 0, unsigned flags = 0) {
    const MkeyAddress to = client.Address();
    const ibv_sge sge{.addr = 0, .length = kBlock, .lkey = key->lkey};
    ASSERT_EQ(server.Write(sge, to.rkey, to.slab_address + to_offset, wr_id, flags), 0);
  }
  void PostReply(size_t text, uint64_t wr_id, unsigned flags = kReplyFlags) {
    ASSERT_EQ(server.Send(server.Piece(text, kReplyBytes), wr_id, flags), 0);
  }
  void ExpectReply(const std::string& text) {
    const ibv_wc wc = client.PollReceive();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_STREQ(reinterpret_cast<const char*>(client.at(wc.wr_id)), text.c_str());
  }
  void PostReceive(size_t offset) { client.Receive(client.Piece(offset, kReplyBytes), offset); }

  MkeyNode server{{.pipelining = true}};
  MkeyNode client;
  std::mt19937 random_{142};
};

TEST_F(Pipelining, QueueWithoutTheFlagGoesOn) {
  MkeyNode plain;
  MkeyNode peer;
  MkeyNode::Connect(plain, peer);
  const CrcSignature signature(false);
  mlx5dv_mkey* key = plain.CreateKey();
  ASSERT_EQ(plain.Configure(key, {plain.Piece(0, kProtected)}, signature.attr), 0);
  *plain.at(0) = std::byte{1};
  const MkeyAddress to = peer.Address();
  const ibv_sge sge{.addr = 0, .length = kBlock, .lkey = key->lkey};
  ASSERT_EQ(plain.Write(sge, to.rkey, to.slab_address, 1, 0), 0);
  ASSERT_EQ(plain.Write(plain.Piece(0, 8), to.rkey, to.slab_address, 2, kReplyFlags), 0);
  EXPECT_EQ(plain.Poll().wr_id, 2u);
  EXPECT_EQ(plain.State(), IBV_QPS_RTS);
  EXPECT_EQ(plain.Check(key).err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD);
  EXPECT_EQ(DvQpCancelPostedSendWrs(plain.dv, 1), -EINVAL);
}

// Somewhere before the next fenced WR: those that are not fenced may still run, and fail as well.
TEST_F(Pipelining, WhatIsNotFencedRunsOnSoSeveralKeysMayBeInError) {
  mlx5dv_mkey* first = Key(0, true);
  mlx5dv_mkey* second = Key(1024, true);
  PostReceive(4096);
  const MkeyAddress to = client.Address();
  ibv_wr_start(server.ex);
  server.ex->wr_flags = IBV_SEND_SIGNALED;
  for (const auto& [key, wr_id] : {std::pair{first, 1}, std::pair{second, 2}}) {
    server.ex->wr_id = wr_id;
    ibv_wr_rdma_write(server.ex, to.rkey, to.slab_address);
    ibv_wr_set_sge(server.ex, key->lkey, 0, kBlock);
  }
  server.ex->wr_id = 3;
  server.ex->wr_flags = kReplyFlags;
  ibv_wr_send(server.ex);
  const ibv_sge reply = server.Piece(kOk, kReplyBytes);
  ibv_wr_set_sge(server.ex, reply.lkey, reply.addr, reply.length);
  ASSERT_EQ(ibv_wr_complete(server.ex), 0);

  EXPECT_EQ(server.Event(), IBV_EVENT_SQ_DRAINED);
  EXPECT_EQ(server.Poll().wr_id, 1u);
  EXPECT_EQ(server.Poll().wr_id, 2u);
  EXPECT_TRUE(server.Quiet());
  EXPECT_EQ(server.Check(first).err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD);
  EXPECT_EQ(server.Check(second).err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD);
  EXPECT_EQ(server.State(), IBV_QPS_SQD);
  EXPECT_TRUE(client.Quiet());
}

TEST_F(Pipelining, CancelTakesAllUnexecutedOfThatIdAndOnlyThem) {
  mlx5dv_mkey* key = Key(0, true);
  PostReceive(4096);
  PostReceive(4200);
  PostData(key, 7, 0, IBV_SEND_SIGNALED);
  PostReply(kOk, 7);
  PostReply(kOk, 8);
  PostData(key, 7);
  // A configuration with one signature has two slots, both with its id.
  const CrcSignature signature(false);
  ibv_wr_start(server.ex);
  server.ex->wr_id = 7;
  server.ex->wr_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
  mlx5dv_mkey_conf_attr conf{};
  mlx5dv_wr_mkey_configure(server.dv, key, 1, &conf);
  mlx5dv_wr_set_mkey_sig_block(server.dv, &signature.attr);
  ASSERT_EQ(ibv_wr_complete(server.ex), 0);

  EXPECT_EQ(server.Event(), IBV_EVENT_SQ_DRAINED);
  EXPECT_EQ(DvQpCancelPostedSendWrs(server.dv, 99), 0);
  EXPECT_EQ(DvQpCancelPostedSendWrs(server.dv, 7), 4) << "the executed one is not among them";
  EXPECT_EQ(DvQpCancelPostedSendWrs(server.dv, 7), 0);
  ASSERT_EQ(server.ToReadyToSend(), 0);
  EXPECT_EQ(server.Poll().opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(server.Poll().opcode, IBV_WC_SEND);
  const ibv_wc sent = server.Poll();
  EXPECT_EQ(sent.wr_id, 8u);
  const ibv_wc configured = server.Poll();
  EXPECT_EQ(configured.opcode, IBV_WC_DRIVER1);
  EXPECT_EQ(configured.status, IBV_WC_SUCCESS);
  ExpectReply("ok");
  EXPECT_TRUE(client.Quiet());
}

// A long exchange, a third of it bad, handled as the manual says: every request gets the one right
// answer, and every answer belongs to data that is what it says.
TEST_F(Pipelining, ManyTransactionsGoodAndBadEachGetTheirOwnReply) {
  constexpr int kTransactions = 60;
  constexpr int kOpen = 4;
  std::string expected, seen;
  struct Open {
    mlx5dv_mkey* key;
    bool failed = false;
  };
  std::vector<mlx5dv_mkey*> keys;
  std::vector<bool> bad;
  for (int i = 0; i < kOpen; ++i) keys.push_back(server.CreateKey());
  const CrcSignature signature(false);
  for (int first = 0; first < kTransactions; first += kOpen) {
    bad.assign(kOpen, false);
    for (int i = 0; i < kOpen; ++i) {
      const size_t offset = static_cast<size_t>(i) * 1024;
      std::ranges::generate(server.bytes(offset, kBlock),
                            [&] { return static_cast<std::byte>(random_()); });
      std::ranges::copy(WithCrc(server.bytes(offset, kBlock)), server.at(offset));
      bad[i] = random_() % 3 == 0;
      if (bad[i]) *server.at(offset + random_() % kProtected) ^= std::byte{8};
      EXPECT_EQ(server.Configure(keys[i], {server.Piece(offset, kProtected)}, signature.attr), 0);
      expected += bad[i] ? 'f' : 'o';
      PostReceive(8192 + static_cast<size_t>(i) * 64);
    }
    for (int i = 0; i < kOpen; ++i) {
      PostData(keys[i], i, static_cast<size_t>(i) * 1024);
      PostReply(kOk, i);
    }
    // Until all have completed: at each stop every open transaction is looked at.
    int completed = 0;
    std::vector<bool> handled(kOpen, false);
    const auto poll_until_empty = [&] {
      ibv_wc wc{};
      while (ibv_poll_cq(server.send_cq, 1, &wc) == 1) {
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        if ((wc.wr_id & 0x100) != 0 || !handled[wc.wr_id]) ++completed;
      }
    };
    while (completed < kOpen) {
      poll_until_empty();
      if (server.State() != IBV_QPS_SQD) continue;
      EXPECT_EQ(server.Event(), IBV_EVENT_SQ_DRAINED);
      poll_until_empty();
      int failed = 0;
      for (int i = 0; i < kOpen; ++i) {
        if (handled[i] || server.Check(keys[i]).err_type == MLX5DV_MKEY_NO_ERR) continue;
        ++failed;
        EXPECT_TRUE(bad[i]);
        EXPECT_EQ(DvQpCancelPostedSendWrs(server.dv, i), 1);
        handled[i] = true;
        PostReply(kFailed, 0x100 | i);
      }
      EXPECT_GE(failed, 1);
      EXPECT_EQ(server.ToReadyToSend(), 0);
    }
    std::string order;
    for (int i = 0; i < kOpen; ++i) {
      const ibv_wc wc = client.PollReceive();
      order += static_cast<char>(*client.at(wc.wr_id));
    }
    seen += order;
    for (int i = 0; i < kOpen; ++i) {
      const size_t offset = static_cast<size_t>(i) * 1024;
      EXPECT_TRUE(std::ranges::equal(client.bytes(offset, kBlock), server.bytes(offset, kBlock)));
    }
  }
  // Replies to failed ones come behind the good ones of their round.
  EXPECT_EQ(std::ranges::count(seen, 'f'), std::ranges::count(expected, 'f'));
  EXPECT_EQ(std::ranges::count(seen, 'o'), std::ranges::count(expected, 'o'));
  EXPECT_GT(std::ranges::count(expected, 'f'), kTransactions / 6);
}

}  // namespace signature_pipelining_test
}  // namespace sluice::softdc
