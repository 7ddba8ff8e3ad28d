// SPDX-License-Identifier: Apache-2.0
//
// What a mover tells its peers of where it is.
#include "transport/onesided/address.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transport/onesided/movers.h"
#include "transport/verbs/handles.h"

namespace sluice::onesided {
namespace address_test {

using testing::SizeIs;

std::vector<ibv_ah_attr> g_handles;

const verbs::VerbsApi& Recording() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = softdc::sim::Simulation::Verbs();
    api.create_ah = [](ibv_pd* pd, ibv_ah_attr* attr) {
      g_handles.push_back(*attr);
      return softdc::sim::Simulation::Verbs().create_ah(pd, attr);
    };
    return api;
  }();
  return table;
}

// A switch of an InfiniBand fabric forwards by LID.
TEST(Address, HasTheLidOfThePortOnInfinibandAndAHandleUsesIt) {
  using softdc::sim::Simulation;
  for (const auto link : {softdc::LinkLayer::kInfiniband, softdc::LinkLayer::kRoce}) {
    softdc::sim::Options options{.nodes = 1};
    options.dials.port.link_layer = link;
    const auto simulation = Simulation::Create(options).value();
    const Simulation::As as(*simulation, 0);
    base::SeededRandom random(5);
    MoverNode node;
    node.device = device::Device::Open("softdc0", {&Recording()}).value();
    node.commands = std::make_unique<cm::SimCommands>(*simulation, 0, random);
    node.mover = Mover::Create(*node.device, *node.commands, random, node, {}).value();
    Address address = *node.mover->Open(0);
    ibv_port_attr port{};
    ASSERT_EQ(node.device->api().query_port(node.device->context(), 1, &port), 0);
    const uint16_t expected = link == softdc::LinkLayer::kInfiniband ? port.lid : 0;
    EXPECT_EQ(expected != 0, link == softdc::LinkLayer::kInfiniband);
    EXPECT_EQ(address.lid, expected);
    g_handles.clear();
    ASSERT_TRUE(node.mover->Connect(0, address, /*last=*/false).ok());
    ASSERT_THAT(g_handles, SizeIs(1));
    EXPECT_EQ(g_handles[0].dlid, expected);
    EXPECT_EQ(g_handles[0].is_global, 1);
    node.commands->Finish();
    node.mover.reset();
    node.device.reset();
  }
}

}  // namespace address_test
}  // namespace sluice::onesided
