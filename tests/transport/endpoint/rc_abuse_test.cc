// SPDX-License-Identifier: Apache-2.0
//
// Peers of an endpoint with RC queue pairs that send what they must not, and queue pairs that end with unread messages.
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"
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

  OnSend on_send;

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
  static int PostSend(ibv_qp* qp, ibv_send_wr* work, ibv_send_wr** bad) {
    for (ibv_send_wr* one = work; of_test != nullptr && one != nullptr; one = one->next) {
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
  int destroyed_ = 0;
  int destroyed_at_work_ = 0;
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

// There are no lanes, and no DCTs to replace: followed, it would send messages elsewhere.
TEST_F(RcAbuse, APeerThatNamesOtherTargetsIsEnded) {
  for (const peer::Kind kind : {peer::Kind::kLaneAsk, peer::Kind::kTargets}) {
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

}  // namespace rc_abuse_test
}  // namespace sluice::endpoint
