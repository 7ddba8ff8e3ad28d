// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/sim/simulation.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/transport/softdc/sim/sim_node.h"

namespace sluice::softdc::sim {
namespace simulation_test {

constexpr int64_t kSecondNs = 1'000'000'000;

std::unique_ptr<Simulation> Make(const Options& options) {
  auto simulation = Simulation::Create(options);
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  return std::move(simulation).value();
}

// Traffic in which every kind of chance takes part; the log.
std::string RunWithEverything(uint64_t seed, uint64_t* digest = nullptr) {
  Options options;
  options.seed = seed;
  options.nodes = 4;
  options.jitter_ns = 300;
  options.log = LogMode::kText;
  options.dials.features.in_order = InOrder::kNone;
  options.faults.messages = {
      .loss_ppm = 20'000, .ack_loss_ppm = 400'000, .delay_ppm = 10'000, .delay_ns = 5'000};
  options.faults.timed = {{.at_ns = 2'000'000, .what = Happening::kCutLink, .node = 0, .peer = 1},
                          {.at_ns = 3'000'000, .what = Happening::kHealLink, .node = 0, .peer = 1},
                          {.at_ns = 4'000'000, .what = Happening::kKill, .node = 3}};
  auto simulation = Make(options);
  std::vector<std::unique_ptr<SimNode>> nodes;
  for (uint32_t i = 0; i < options.nodes; ++i) {
    nodes.push_back(
        std::make_unique<SimNode>(*simulation, i, SimNodeOptions{.receive_bytes = 1024}));
  }
  for (uint64_t round = 0; round < 40; ++round) {
    for (auto& from : nodes) {
      const uint32_t to = (from->index() + 1 + round % 3) % options.nodes;
      from->SendBytes(*nodes[to], 64 << 10, 700, round, static_cast<uint16_t>(to));
    }
    simulation->RunFor(200'000);
    ibv_wc wc[16];
    for (auto& node : nodes) {
      while (ibv_poll_cq(node->send_cq, 16, wc) != 0) {
      }
      for (int n; (n = ibv_poll_cq(node->receive_cq, 16, wc)) != 0;) {
        node->PostReceives(static_cast<uint32_t>(n));
      }
    }
  }
  simulation->RunFor(20'000'000);
  if (digest != nullptr) *digest = simulation->log().digest();
  return simulation->log().Text();
}

TEST(SimulationTest, SameSeedGivesTheSameLogByteForByte) {
  uint64_t first_digest = 0, second_digest = 0;
  const std::string first = RunWithEverything(7, &first_digest);
  const std::string second = RunWithEverything(7, &second_digest);
  ASSERT_GT(first.size(), 10'000u);
  EXPECT_EQ(first, second);
  EXPECT_EQ(first_digest, second_digest);
  for (const char* name :
       {" transmit ", " deliver ", " acknowledge ", " lost ", " unheard ", " answer_lost ",
        " duplicate ", " timeout ", " block ", " kill", " link ", " connect "}) {
    EXPECT_NE(first.find(name), std::string::npos) << name;
  }
}

TEST(SimulationTest, OtherSeedGivesAnotherLog) {
  EXPECT_NE(RunWithEverything(7), RunWithEverything(8));
}

TEST(SimulationTest, CreateRefusesWithTheReason) {
  const auto simulation = Simulation::Create({.nodes = 0});
  EXPECT_EQ(simulation.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SimulationTest, ThousandNodesEachReachTheNext) {
  constexpr uint32_t kNodes = 1000;
  auto simulation = Make({.nodes = kNodes});
  std::vector<std::unique_ptr<SimNode>> nodes;
  for (uint32_t i = 0; i < kNodes; ++i) {
    nodes.push_back(std::make_unique<SimNode>(
        *simulation, i,
        SimNodeOptions{
            .receives = 16, .send_wr = 16, .cqe = 32, .streams = false, .slab_bytes = 8192}));
  }
  for (uint32_t i = 0; i < kNodes; ++i) {
    ASSERT_EQ(nodes[i]->Send(*nodes[(i + 1) % kNodes], "to the next", i), 0);
  }
  for (uint32_t i = 0; i < kNodes; ++i) {
    EXPECT_EQ(nodes[i]->Text(nodes[i]->AwaitReceive()), "to the next");
    EXPECT_EQ(nodes[i]->AwaitSend().status, IBV_WC_SUCCESS);
  }
}

TEST(SimulationTest, DeviceListIsThatOfTheNodeThatTheThreadIs) {
  auto simulation = Make({.nodes = 2});
  const verbs::VerbsApi& api = Simulation::Verbs();
  int count = -1;
  ibv_device** none = api.get_device_list(&count);
  EXPECT_EQ(count, 0);
  api.free_device_list(none);
  std::set<__be64> guids;
  for (uint32_t node = 0; node < 2; ++node) {
    const Simulation::As as(*simulation, node);
    ibv_device** list = api.get_device_list(&count);
    ASSERT_EQ(count, 1);
    EXPECT_EQ(list[0], simulation->Device(node));
    EXPECT_EQ(list[1], nullptr);
    guids.insert(api.get_device_guid(list[0]));
    api.free_device_list(list);
  }
  EXPECT_EQ(guids.size(), 2u);
}

TEST(SimulationTest, EachNodeHasItsOwnGidAndItsOwnNumbers) {
  auto simulation = Make({.nodes = 2});
  SimNode a(*simulation, 0), b(*simulation, 1);
  EXPECT_EQ(a.dct->qp_num, b.dct->qp_num);
  ibv_gid gid{};
  ASSERT_EQ(a.api.query_gid(a.context, 1, 0, &gid), 0);
  const ibv_gid own = Simulation::Gid(0), other = Simulation::Gid(1);
  EXPECT_EQ(std::memcmp(&gid, &own, sizeof(gid)), 0);
  EXPECT_NE(std::memcmp(&gid, &other, sizeof(gid)), 0);
}

TEST(SimulationTest, RunUntilEndsAtItsLimitOrWhenNothingIsLeft) {
  auto simulation = Make({.nodes = 1});
  int ran = 0;
  simulation->After(500, [&] { ++ran; });
  const int64_t start_ns = simulation->NowNs();
  EXPECT_FALSE(simulation->RunUntil([&] { return ran == 1; }, 499));
  EXPECT_TRUE(simulation->RunUntil([&] { return ran == 1; }, kSecondNs));
  EXPECT_EQ(simulation->NowNs(), start_ns + 500);
  EXPECT_FALSE(simulation->RunUntil([] { return false; }, kSecondNs));
  const uint64_t timer = simulation->After(10, [&] { ++ran; });
  EXPECT_TRUE(simulation->Cancel(timer));
  simulation->RunFor(kSecondNs);
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(simulation->NowNs(), start_ns + 500 + kSecondNs);
}

TEST(SimulationTest, WaitingForAnEventNeverBlocks) {
  auto simulation = Make({.nodes = 1});
  const Simulation::As as(*simulation, 0);
  const verbs::VerbsApi& api = Simulation::Verbs();
  ibv_context* context = api.open_device(simulation->Device(0));
  ASSERT_NE(context, nullptr);
  ibv_async_event event{};
  EXPECT_EQ(api.get_async_event(context, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
  ibv_comp_channel* channel = api.create_comp_channel(context);
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  EXPECT_EQ(api.get_cq_event(channel, &cq, &cq_context), -1);
  EXPECT_EQ(errno, EAGAIN);
  rdma_event_channel* events = api.cm_create_event_channel();
  ASSERT_NE(events, nullptr);
  rdma_cm_event* cm_event = nullptr;
  EXPECT_EQ(api.cm_get_cm_event(events, &cm_event), -1);
  EXPECT_EQ(errno, EAGAIN);
  api.cm_destroy_event_channel(events);
  EXPECT_EQ(api.destroy_comp_channel(channel), 0);
  EXPECT_EQ(api.close_device(context), 0);
}

TEST(SimulationTest, ObjectsMayOutliveTheSimulation) {
  auto simulation = Make({.nodes = 2});
  auto a = std::make_unique<SimNode>(*simulation, 0);
  auto b = std::make_unique<SimNode>(*simulation, 1);
  ASSERT_EQ(a->Send(*b, "never arrives", 1), 0);
  simulation.reset();
  EXPECT_EQ(a->Send(*b, "is never sent", 2), 0);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(b->receive_cq, 1, &wc), 0);
  a.reset();
  b.reset();
}

}  // namespace simulation_test
}  // namespace sluice::softdc::sim
