// SPDX-License-Identifier: Apache-2.0
//
// Peers of an endpoint with RC queue pairs that send what they must not, and queue pairs that end with unread messages.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"
#include "transport/lane/words.h"
#include "transport/peer/prefix.h"

namespace sluice::endpoint {
namespace rc_abuse_test {

// Stands between endpoints and a device without DC: knows their queue pairs, and sees what they send.
class Tap {
 public:
  struct QueuePair {
    ibv_qp* qp = nullptr;
    bool stopped = false;
  };
  // May change the message. False: it is not sent, and never completes.
  using OnSend = std::function<bool(ibv_qp* qp, std::byte* bytes, peer::Prefix* prefix)>;
  // May change a WRITE, which has immediate data if it is announced.
  using OnWrite = std::function<void(ibv_send_wr* work)>;

  Tap() { of_test = this; }
  ~Tap() { of_test = nullptr; }
  Tap(const Tap&) = delete;
  Tap& operator=(const Tap&) = delete;

  static const verbs::VerbsApi& Verbs() {
    static const verbs::VerbsApi table = [] {
      verbs::VerbsApi api = softdc::Verbs();
      api.dv_is_supported = [](ibv_device*) { return false; };
      api.create_qp = &CreateQp;
      api.modify_qp = &ModifyQp;
      api.destroy_qp = &DestroyQp;
      api.reg_mr = &RegisterMemory;
      api.dereg_mr = &DeregisterMemory;
      api.query_qp_data_in_order = &QueryOrder;
      return api;
    }();
    return table;
  }

  // The peers' queue pairs of this node, in the order in which they were made.
  std::vector<ibv_qp*> Of(const Node& node) {
    std::lock_guard lock(mutex_);
    std::vector<ibv_qp*> found;
    for (const QueuePair& one : queue_pairs_) {
      if (one.qp->context == node.device->context()) found.push_back(one.qp);
    }
    return found;
  }
  void ForgetDestroyed() {
    std::lock_guard lock(mutex_);
    destroyed_ = destroyed_at_work_ = 0;
  }
  int destroyed() {
    std::lock_guard lock(mutex_);
    return destroyed_;
  }
  int destroyed_at_work() {
    std::lock_guard lock(mutex_);
    return destroyed_at_work_;
  }

  // Regions that peers could write, and that were deregistered while a queue pair of their node was at work.
  int revoked_at_work() {
    std::lock_guard lock(mutex_);
    return revoked_at_work_;
  }
  int revoked() {
    std::lock_guard lock(mutex_);
    return revoked_;
  }

  OnSend on_send;
  OnWrite on_announce;
  OnWrite on_silent;
  std::atomic<bool> no_order = false;  // of the queue pairs from now on

 private:
  static ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) {
    ibv_qp* qp = softdc::Verbs().create_qp(pd, attr);
    // One without a shared receive queue is there for its number.
    if (qp == nullptr || of_test == nullptr || attr->srq == nullptr) return qp;
    if (pd->context->ops.post_send != &PostSend) {
      real_post_send = pd->context->ops.post_send;
      pd->context->ops.post_send = &PostSend;
    }
    std::lock_guard lock(of_test->mutex_);
    of_test->queue_pairs_.push_back({qp});
    return qp;
  }
  static int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
    const int error_number = softdc::Verbs().modify_qp(qp, attr, mask);
    if (of_test == nullptr || error_number != 0) return error_number;
    std::lock_guard lock(of_test->mutex_);
    for (QueuePair& one : of_test->queue_pairs_) {
      if (one.qp == qp && (mask & IBV_QP_STATE)) one.stopped = attr->qp_state == IBV_QPS_ERR;
    }
    return 0;
  }
  static int DestroyQp(ibv_qp* qp) {
    if (of_test != nullptr) {
      std::lock_guard lock(of_test->mutex_);
      std::erase_if(of_test->queue_pairs_, [&](const QueuePair& one) {
        if (one.qp != qp) return false;
        ++of_test->destroyed_;
        if (!one.stopped) ++of_test->destroyed_at_work_;
        return true;
      });
    }
    return softdc::Verbs().destroy_qp(qp);
  }
  static ibv_mr* RegisterMemory(ibv_pd* pd, void* address, size_t length, int access) {
    ibv_mr* mr = softdc::Verbs().reg_mr(pd, address, length, access);
    if (mr == nullptr || of_test == nullptr || !(access & IBV_ACCESS_REMOTE_WRITE)) return mr;
    std::lock_guard lock(of_test->mutex_);
    of_test->writable_.push_back(mr);
    return mr;
  }
  static int DeregisterMemory(ibv_mr* mr) {
    if (of_test != nullptr) {
      std::lock_guard lock(of_test->mutex_);
      if (std::erase(of_test->writable_, mr) != 0) {
        ++of_test->revoked_;
        const auto works = [mr](const QueuePair& one) {
          return one.qp->context == mr->context && !one.stopped;
        };
        if (std::ranges::any_of(of_test->queue_pairs_, works)) ++of_test->revoked_at_work_;
      }
    }
    return softdc::Verbs().dereg_mr(mr);
  }
  static int QueryOrder(ibv_qp* qp, ibv_wr_opcode opcode, uint32_t flags) {
    if (of_test != nullptr && of_test->no_order) return 0;
    return softdc::Verbs().query_qp_data_in_order(qp, opcode, flags);
  }
  static int PostSend(ibv_qp* qp, ibv_send_wr* work, ibv_send_wr** bad) {
    for (ibv_send_wr* one = work; of_test != nullptr && one != nullptr; one = one->next) {
      if (one->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && of_test->on_announce) {
        of_test->on_announce(one);
      }
      if (one->opcode == IBV_WR_RDMA_WRITE && of_test->on_silent) of_test->on_silent(one);
      if (!of_test->on_send || one->opcode != IBV_WR_SEND) continue;
      auto* bytes = reinterpret_cast<std::byte*>(one->sg_list->addr);
      peer::Prefix prefix;
      if (!peer::LoadPrefix(bytes, one->sg_list->length, &prefix)) continue;
      if (!of_test->on_send(qp, bytes, &prefix)) return 0;
      peer::StorePrefix(bytes, prefix);
    }
    return real_post_send(qp, work, bad);
  }

  static inline Tap* of_test = nullptr;
  static inline decltype(ibv_context_ops::post_send) real_post_send = nullptr;

  std::mutex mutex_;  // commands run on other threads
  std::vector<QueuePair> queue_pairs_;
  std::vector<ibv_mr*> writable_;
  int destroyed_ = 0;
  int destroyed_at_work_ = 0;
  int revoked_ = 0;
  int revoked_at_work_ = 0;
};

Options WithReads() {
  Options options;
  options.max_large_bytes = 1 << 20;
  return options;
}

struct RcNode : Node {
  explicit RcNode(const Options& options = {}) : Node(options, &Tap::Verbs()) {}
};

// With large messages and lanes.
constexpr int kRights = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

int RightsOf(ibv_qp* qp) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  EXPECT_EQ(Tap::Verbs().query_qp(qp, &attr, IBV_QP_ACCESS_FLAGS, &init), 0);
  return static_cast<int>(attr.qp_access_flags);
}

class RcAbuse : public testing::Test {
 protected:
  void Listen(Node& server) {
    const auto port = server.endpoint->Listen("127.0.0.1", 0);
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *port;
  }
  // The client's peer of index `which` in the order of the connects.
  ibv_qp* QueuePairOf(const Node& client, size_t which) { return tap_.Of(client)[which]; }

  Tap tap_;  // outlives the nodes of a test
  uint16_t port_ = 0;
};

TEST_F(RcAbuse, AQueuePairGivesTheRightToReadAfterTheProofOnly) {
  RcNode server(WithReads()), client(WithReads());
  Listen(server);
  bool swallowed = false;
  tap_.on_send = [&](ibv_qp*, std::byte*, const peer::Prefix* prefix) {
    swallowed = swallowed || prefix->kind == peer::Kind::kProof;
    return !swallowed;
  };
  const auto unproven = client.endpoint->Connect("127.0.0.1", port_, INT64_MAX);
  ASSERT_TRUE(unproven.ok()) << unproven.status();
  PollUntil({&client, &server}, [&] { return swallowed; });
  ASSERT_EQ(tap_.Of(server).size(), 1u);
  EXPECT_EQ(RightsOf(tap_.Of(server)[0]), 0);

  tap_.on_send = nullptr;
  ConnectPair(client, server, port_);
  ASSERT_EQ(tap_.Of(server).size(), 2u);
  EXPECT_EQ(RightsOf(tap_.Of(server)[0]), 0);
  EXPECT_EQ(RightsOf(tap_.Of(server)[1]), kRights);
  EXPECT_EQ(RightsOf(tap_.Of(client)[1]), kRights);
  client.endpoint->Disconnect(*unproven);
}

TEST_F(RcAbuse, WithoutLargeMessagesNobodyMayRead) {
  RcNode server, client;
  Listen(server);
  ConnectPair(client, server, port_);
  EXPECT_EQ(RightsOf(tap_.Of(server)[0]), IBV_ACCESS_REMOTE_WRITE);
  EXPECT_EQ(RightsOf(tap_.Of(client)[0]), IBV_ACCESS_REMOTE_WRITE);
}

TEST_F(RcAbuse, WithoutLanesNobodyMayWrite) {
  for (const uint32_t large : {0u, 1u << 20}) {
    Options options;
    options.lane_memory_bytes = 0;
    options.max_large_bytes = large;
    RcNode server(options), client(options);
    Listen(server);
    ConnectPair(client, server, port_);
    const int rights = large == 0 ? 0 : IBV_ACCESS_REMOTE_READ;
    EXPECT_EQ(RightsOf(tap_.Of(server).back()), rights);
    EXPECT_EQ(RightsOf(tap_.Of(client).back()), rights);
  }
}

class RcUnproven : public RcAbuse, public testing::WithParamInterface<peer::Kind> {};

// Its messages take receive buffers that all peers share, and no credit counts them.
TEST_P(RcUnproven, AClientThatSendsSomethingElseThanAProofIsEnded) {
  RcNode server, client;
  Listen(server);
  tap_.on_send = [&](ibv_qp*, std::byte*, peer::Prefix* prefix) {
    if (prefix->kind == peer::Kind::kProof) prefix->kind = GetParam();
    return true;
  };
  TryConnect(client, server, port_);
  EXPECT_EQ(client.recorder.downs.size(), 1u);
  PollUntil({&client, &server}, [&] { return tap_.Of(server).empty(); });
  EXPECT_TRUE(server.recorder.ups.empty());
  EXPECT_EQ(server.endpoint->Counts().dropped_unproven, 1u);
  EXPECT_EQ(server.endpoint->Handshakes().unauthenticated, 1u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, RcUnproven,
                         testing::Values(peer::Kind::kData, peer::Kind::kCredits,
                                         peer::Kind::kProbe, peer::Kind::kWindowAsk));

TEST_F(RcAbuse, APeerThatSpeaksForAnotherOneIsEndedAndNobodyHearsIt) {
  // Nodes send until their end.
  std::map<const ibv_qp*, peer::Prefix> seen;
  const ibv_qp* liar = nullptr;
  const ibv_qp* other = nullptr;
  RcNode server, client;
  Listen(server);
  tap_.on_send = [&](ibv_qp* qp, std::byte*, peer::Prefix* prefix) {
    if (qp == liar && prefix->kind == peer::Kind::kData) {
      prefix->peer_index = seen[other].peer_index;
      prefix->token = seen[other].token;
    }
    seen[qp] = *prefix;
    return true;
  };
  const PeerId first = ConnectPair(client, server, port_);
  const PeerId second = ConnectPair(client, server, port_);
  other = QueuePairOf(client, 0);
  liar = QueuePairOf(client, 1);
  ASSERT_TRUE(client.Send(second, "in the name of the first").ok());
  PollUntil({&client, &server}, [&] { return !server.recorder.downs.empty(); });
  EXPECT_EQ(server.recorder.downs[0].id, server.recorder.ups[1].id);
  EXPECT_NE(std::string(server.recorder.downs[0].why.message()).find("sent an invalid message"),
            std::string::npos)
      << server.recorder.downs[0].why;
  EXPECT_EQ(server.endpoint->Counts().dropped_unknown, 1u);
  liar = nullptr;
  ASSERT_TRUE(client.Send(first, "the first itself").ok());
  PollUntil({&client, &server}, [&] { return !server.recorder.messages.empty(); });
  EXPECT_EQ(server.recorder.messages, (std::vector<std::string>{"the first itself"}));
}

// There are no DCTs to replace: followed, it would send messages elsewhere.
TEST_F(RcAbuse, APeerWhoseWordsAreNoWordsIsEnded) {
  for (const peer::Kind kind :
       {peer::Kind::kLaneAsk, peer::Kind::kLaneAnswer, peer::Kind::kTargets}) {
    RcNode server, client;
    Listen(server);
    const PeerId peer = ConnectPair(client, server, port_);
    tap_.on_send = [&](ibv_qp*, std::byte*, peer::Prefix* prefix) {
      if (prefix->kind == peer::Kind::kData) {
        prefix->kind = kind;
        prefix->number = 0;
      }
      return true;
    };
    ASSERT_TRUE(client.Send(peer, "the numbers of other targets").ok());
    PollUntil({&client, &server}, [&] { return !server.recorder.downs.empty(); });
    EXPECT_TRUE(server.recorder.messages.empty());
    EXPECT_EQ(server.endpoint->Counts().dropped_malformed, 1u);
    tap_.on_send = nullptr;
  }
}

// A queue pair takes unread completions with it when it is destroyed, and their receives never come back to the shared queue.
TEST_F(RcAbuse, WhatAPeerSentBeforeItsEndGivesItsReceivesBack) {
  constexpr int kRounds = 4;
  RcNode server, client;
  Listen(server);
  tap_.ForgetDestroyed();  // of trials
  uint64_t sent = 0;
  for (int round = 0; round < kRounds; ++round) {
    const PeerId peer = ConnectPair(client, server, port_);
    const PeerId back = server.recorder.ups.back().id;
    while (client.Send(peer, "unread").ok()) ++sent;
    client.endpoint->Flush();
    PollUntil({&client}, [&] { return client.endpoint->Queues()[0].posted == 0; });
    server.endpoint->Disconnect(back);
    PollUntil({&client, &server},
              [&] { return tap_.Of(server).empty() && tap_.Of(client).empty(); });
  }
  EXPECT_GT(sent, 32u * kRounds);  // more than a pass takes
  EXPECT_EQ(server.endpoint->Counts().dropped_unproven, sent);
  const PeerId last = ConnectPair(client, server, port_);
  ASSERT_TRUE(client.Send(last, "to the end").ok());
  PollUntil({&client, &server}, [&] {
    return !server.recorder.messages.empty() && server.recorder.messages.back() == "to the end";
  });
  EXPECT_EQ(tap_.destroyed(), 2 * kRounds);
  EXPECT_EQ(tap_.destroyed_at_work(), 0);
}

// ---- Lanes

// Sends messages from the client, one at a time, until `done` or until the server has ended the peer. Returns their number.
size_t SendUntil(RcNode& client, RcNode& server, PeerId peer, const std::function<bool()>& done) {
  size_t sent = 0;
  while (!done() && server.recorder.downs.empty()) {
    if (!client.Send(peer, "data").ok()) break;
    ++sent;
    PollUntil({&client, &server}, [&] {
      return server.recorder.messages.size() >= sent || !server.recorder.downs.empty();
    });
  }
  return sent;
}

// The order is that of each queue pair, and the trial one promised more.
TEST_F(RcAbuse, AQueuePairThatPromisesNoOrderGetsNoLane) {
  Options options;
  options.lane_after_messages = 4;
  for (const bool ordered : {true, false}) {
    tap_.no_order = false;
    RcNode server(options), client(options);
    Listen(server);
    tap_.no_order = !ordered;
    const PeerId peer = ConnectPair(client, server, port_);
    SendUntil(client, server, peer, [&] {
      const Counters counts = server.endpoint->Counts();
      return ordered ? counts.lanes_granted != 0 : counts.messages_received >= 200;
    });
    EXPECT_EQ(server.endpoint->Counts().lanes_granted, ordered ? 1u : 0u);
    EXPECT_TRUE(server.recorder.downs.empty());
  }
}

// A client whose lane is announced from the start.
class RcAnnounced : public RcAbuse {
 protected:
  RcAnnounced() {
    options_.lane_after_messages = 4;
    options_.lanes_without_order = true;
    tap_.no_order = true;
  }
  // Sends messages until 300 were announced, or the client was ended. Returns why it was.
  absl::Status SendAnnounced() {
    RcNode server(options_), client(options_);
    Listen(server);
    const PeerId peer = ConnectPair(client, server, port_);
    SendUntil(client, server, peer,
              [&] { return server.endpoint->Counts().lane_announced >= 300; });
    return server.recorder.downs.empty() ? absl::OkStatus() : server.recorder.downs[0].why;
  }

  Options options_;
};

TEST_F(RcAnnounced, WhatWasWrittenMayBeAnnounced) {
  const absl::Status why = SendAnnounced();
  EXPECT_TRUE(why.ok()) << why;
}

TEST_F(RcAnnounced, APeerThatAnnouncesAMessageTwiceIsEnded) {
  int announced = 0;
  uint32_t last = 0;
  tap_.on_announce = [&](ibv_send_wr* work) {
    if (++announced == 50) work->imm_data = last;
    last = work->imm_data;
  };
  const absl::Status why = SendAnnounced();
  EXPECT_NE(std::string(why.message()).find("sent an invalid message"), std::string::npos) << why;
}

TEST_F(RcAnnounced, APeerThatAnnouncesWhatItHasNotWrittenIsEnded) {
  int announced = 0;
  tap_.on_announce = [&](ibv_send_wr* work) {
    if (++announced == 50) work->num_sge = 0;
  };
  const absl::Status why = SendAnnounced();
  EXPECT_NE(std::string(why.message()).find("sent an invalid message"), std::string::npos) << why;
}

// It does not say that it has stopped, and could otherwise announce all at one time.
TEST_F(RcAbuse, APeerThatSavesUpAnnouncementsIsEnded) {
  Options options;
  options.srq_size = 64;
  options.max_peers = 1;
  options.lane_after_messages = 4;
  RcNode server(options), client(options);
  Listen(server);
  const PeerId peer = ConnectPair(client, server, port_);
  size_t sent = 0;
  uint32_t first = 0;  // the last message that is announced
  tap_.on_announce = [&](const ibv_send_wr* work) { first = work->imm_data; };
  while (first == 0) {  // the server sleeps
    ASSERT_TRUE(client.Send(peer, "data").ok());
    ++sent;
    PollUntil({&client, &server}, [&] { return server.recorder.messages.size() >= sent; });
  }
  bool silent = false;
  tap_.on_send = [&](ibv_qp* qp, const std::byte* bytes, peer::Prefix* prefix) {
    if (prefix->kind != peer::Kind::kLaneAnswer || qp != QueuePairOf(client, 0)) return true;
    const auto answer =
        lane::LoadAnswer(peer::Bytes(bytes + peer::kPrefixBytes, lane::kAnswerBytes));
    silent = answer->mode == lane::Mode::kSilent;
    // Not swallowed: data may stand behind the same doorbell.
    if (silent) prefix->kind = peer::Kind::kCredits;
    return true;
  };
  const auto send_awake = [&] {
    ASSERT_TRUE(client.Send(peer, "data").ok());
    ++sent;
    while (server.recorder.messages.size() < sent && server.recorder.downs.empty()) {
      client.endpoint->Poll();
      server.endpoint->Poll();
    }
  };
  while (!silent) send_awake();
  const size_t before = sent;
  while (sent < before + 3'000) send_awake();
  ASSERT_TRUE(server.recorder.downs.empty()) << server.recorder.downs[0].why;
  tap_.on_silent = [&](ibv_send_wr* work) {
    work->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    work->imm_data = htobe32(be32toh(first) + 1);
  };
  send_awake();
  PollUntil({&client, &server}, [&] { return !server.recorder.downs.empty(); });
  EXPECT_NE(std::string(server.recorder.downs[0].why.message()).find("sent an invalid message"),
            std::string::npos);
}

// A lane that is closed for another client, while its own has more to send than a queue pair takes at once: what waits is announced
// before the client says that it writes no more.
TEST_F(RcAbuse, ALaneIsGivenToAnotherClientWhileItsOwnAnnounces) {
  Options options;
  options.dci_depth = 64;
  options.srq_size = 4096;
  options.credits_per_peer = 512;
  options.lane_slots = 600;
  options.lane_after_messages = 4;
  options.lane_memory_bytes = 200'000;  // one lane
  RcNode server(options), first(options), second(options);
  Listen(server);
  const PeerId from_first = ConnectPair(first, server, port_);
  const PeerId from_second = ConnectPair(second, server, port_);
  lane::Mode asked = lane::Mode::kLost;
  lane::Mode answered = lane::Mode::kLost;
  tap_.on_send = [&](ibv_qp* qp, std::byte* bytes, const peer::Prefix* prefix) {
    const peer::Bytes body(bytes + peer::kPrefixBytes, lane::kAskBytes);
    if (prefix->kind == peer::Kind::kLaneAsk && qp == tap_.Of(server)[0]) {
      asked = lane::LoadAsk(body)->mode;
    } else if (prefix->kind == peer::Kind::kLaneAnswer && qp == tap_.Of(first)[0]) {
      answered = lane::LoadAnswer(body.first(lane::kAnswerBytes))->mode;
    }
    return true;
  };
  size_t sent = 0;
  const auto taken = [&] { return server.recorder.messages.size() >= sent; };
  for (; sent < 40;) {
    ASSERT_TRUE(first.Send(from_first, "data").ok());
    ++sent;
    PollUntil({&first, &server}, taken);
  }
  // The server sleeps, and its lanes are announced.
  PollUntil({&first, &server}, [&] { return answered == lane::Mode::kAnnounced; });
  while (asked != lane::Mode::kClosed) {
    ASSERT_TRUE(second.Send(from_second, "data").ok());
    ++sent;
    PollUntil({&second, &server}, taken);
  }
  const size_t before = sent;
  while (first.Send(from_first, "data").ok()) {
    ++sent;
    first.endpoint->Flush();  // each message is a request
  }
  ASSERT_GT(sent - before, 3 * options.dci_depth);
  PollUntil({&first, &second, &server}, [&] {
    return (taken() && server.endpoint->Counts().lanes_closed == 1) ||
           !server.recorder.downs.empty();
  });
  EXPECT_TRUE(server.recorder.downs.empty()) << server.recorder.downs[0].why;
}

// A WRITE that meets a revoked key ends the writer's queue pair, before it has read what it received.
TEST_F(RcAbuse, ALaneIsRevokedWhenItsQueuePairHasStopped) {
  Options options;
  options.lane_after_messages = 4;
  RcNode server(options), client(options);
  Listen(server);
  const PeerId peer = ConnectPair(client, server, port_);
  SendUntil(client, server, peer, [&] { return server.endpoint->Counts().lanes_granted != 0; });
  ASSERT_EQ(server.endpoint->Counts().lanes, 1u);
  server.endpoint->Disconnect(server.recorder.ups[0].id);
  PollUntil({&client, &server}, [&] { return server.endpoint->Counts().lane_bytes == 0; });
  EXPECT_EQ(tap_.revoked(), 1);
  EXPECT_EQ(tap_.revoked_at_work(), 0);
}

}  // namespace rc_abuse_test
}  // namespace sluice::endpoint
