// SPDX-License-Identifier: Apache-2.0
//
// Errors that the device reports of an endpoint's own queues: the events are fed to it.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"

namespace sluice::endpoint {
namespace target_error_test {

std::vector<ibv_qp*> g_targets;  // DCTs, in the order of making
std::vector<ibv_qp*> g_queues;   // DCIs
std::deque<ibv_async_event> g_events;

const verbs::VerbsApi& Table() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = softdc::Verbs();
    api.dv_create_qp = [](ibv_context* context, ibv_qp_init_attr_ex* attr,
                          mlx5dv_qp_init_attr* dv) {
      ibv_qp* qp = softdc::Verbs().dv_create_qp(context, attr, dv);
      const bool target = dv->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT;
      (target ? g_targets : g_queues).push_back(qp);
      return qp;
    };
    api.destroy_qp = [](ibv_qp* qp) {
      std::erase(g_targets, qp);
      return softdc::Verbs().destroy_qp(qp);
    };
    api.get_async_event = [](ibv_context* context, ibv_async_event* event) {
      if (g_events.empty()) {
        errno = EAGAIN;
        return -1;
      }
      *event = g_events.front();
      g_events.pop_front();
      uint64_t one = 0;
      return read(context->async_fd, &one, sizeof(one)) > 0 ? 0 : -1;
    };
    api.ack_async_event = [](ibv_async_event*) {};
    return api;
  }();
  return table;
}

class TargetErrorTest : public testing::Test {
 protected:
  void SetUp() override {
    g_targets.clear();
    g_queues.clear();
    g_events.clear();
    server_ = std::make_unique<Node>(Options{}, &Table());  // its probe's queues are gone again
    const auto port = server_->endpoint->Listen("127.0.0.1", 0);
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *port;
  }
  void Happens(ibv_event_type type, ibv_qp* qp) {
    ibv_async_event event = {};
    event.event_type = type;
    event.element.qp = qp;
    g_events.push_back(event);
    const uint64_t one = 1;
    EXPECT_EQ(write(server_->device->async_fd(), &one, sizeof(one)), 8);
    PollUntil({&client_, server_.get()}, [] { return g_events.empty(); });
  }
  bool Arrives(PeerId peer, const std::string& text) {
    EXPECT_TRUE(client_.Send(peer, text).ok());
    PollUntil({&client_, server_.get()},
              [&] { return std::ranges::count(server_->recorder.messages, text) != 0; });
    return true;
  }

  Node client_;
  std::unique_ptr<Node> server_;
  uint16_t port_ = 0;
};

TEST_F(TargetErrorTest, TargetInErrorEndsPeersAndIsMadeAnewForTheNext) {
  const PeerId peer = ConnectPair(client_, *server_, port_);
  ASSERT_TRUE(Arrives(peer, "before"));
  const std::vector<ibv_qp*> before = g_targets;
  ASSERT_EQ(before.size(), 2u);  // for data and for control
  std::vector<uint32_t> numbers;
  for (const ibv_qp* target : before) numbers.push_back(target->qp_num);

  Happens(IBV_EVENT_QP_FATAL, before.front());
  PollUntil({&client_, server_.get()},
            [&] { return !server_->recorder.downs.empty() && !client_.recorder.downs.empty(); });
  const absl::Status why = server_->recorder.downs.front().why;
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(why.message().find("a receive queue of this side stopped"), absl::string_view::npos)
      << why;
  // Whoever asks while they are being made may be told the same: asked again until one is up.
  const size_t ups = server_->recorder.ups.size();
  std::optional<PeerId> next;
  PollUntil({&client_, server_.get()}, [&] {
    const auto down = [&] {
      return std::ranges::any_of(client_.recorder.downs,
                                 [&](const auto& gone) { return gone.id == *next; });
    };
    if (!next.has_value() || down()) {
      const auto asked =
          client_.endpoint->Connect("127.0.0.1", port_, client_.clock.NowNs() + 10'000'000'000);
      if (asked.ok()) next = *asked;
    }
    return server_->recorder.ups.size() > ups && next.has_value() && !down();
  });
  PollUntil({&client_, server_.get()}, [&] { return g_targets.size() == 2; });
  for (const ibv_qp* target : g_targets) {
    EXPECT_EQ(std::ranges::count(numbers, target->qp_num), 0) << "an old one is left";
  }
  EXPECT_TRUE(server_->endpoint->Health().ok());
  PollUntil({&client_, server_.get()}, [&] {
    return std::ranges::any_of(client_.recorder.ups,
                               [&](const auto& up) { return up.id == *next; });
  });
  EXPECT_TRUE(Arrives(*next, "after"));
}

TEST_F(TargetErrorTest, EventOfAnotherQueuePairTouchesNoPeer) {
  const PeerId peer = ConnectPair(client_, *server_, port_);
  ASSERT_FALSE(g_queues.empty());
  Happens(IBV_EVENT_QP_FATAL, g_queues.back());
  Happens(IBV_EVENT_SQ_DRAINED, g_queues.back());
  EXPECT_TRUE(Arrives(peer, "after"));
  EXPECT_TRUE(server_->recorder.downs.empty());
  EXPECT_EQ(server_->device->async_events(), 2u);
}

TEST_F(TargetErrorTest, OverrunEndsTheEndpointTyped) {
  ConnectPair(client_, *server_, port_);
  Happens(IBV_EVENT_CQ_ERR, nullptr);
  PollUntil({&client_, server_.get()},
            [&] { return !server_->recorder.downs.empty() && !client_.recorder.downs.empty(); });
  EXPECT_EQ(server_->recorder.downs.front().why, server_->endpoint->Health());
  EXPECT_NE(server_->endpoint->Health().message().find("\"CQ error\""), absl::string_view::npos);
  const auto refused =
      server_->endpoint->Connect("127.0.0.1", 1, server_->clock.NowNs() + 1'000'000'000);
  EXPECT_EQ(refused.status(), server_->endpoint->Health());
}

}  // namespace target_error_test
}  // namespace sluice::endpoint
