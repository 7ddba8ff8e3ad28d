// SPDX-License-Identifier: Apache-2.0
//
// Over a table made for the test: it counts handles and mappings.
#include "transport/path/address_handles.h"

#include <cerrno>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/manual_clock.h"
#include "transport/base/random.h"

namespace sluice::path {
namespace address_handles_test {

struct FakeDevice {
  std::map<ibv_ah*, uint32_t> handles;  // and what each is mapped to
  int maps = 0;                         // asked for
  int map_result = 0;
  bool refuse = false;
  // Of the last handle:
  uint8_t static_rate = 0;
  uint32_t flow_label = 0;
  uint8_t traffic_class = 0;
  uint8_t service_level = 0;
} device;

verbs::VerbsApi FakeTable() {
  device = {};
  verbs::VerbsApi api = {};
  api.create_ah = [](ibv_pd*, ibv_ah_attr* attr) {
    device.static_rate = attr->static_rate;
    device.flow_label = attr->grh.flow_label;
    device.traffic_class = attr->grh.traffic_class;
    device.service_level = attr->sl;
    if (device.refuse) {
      errno = ETIMEDOUT;
      return static_cast<ibv_ah*>(nullptr);
    }
    auto* handle = new ibv_ah();
    device.handles[handle] = 0;
    return handle;
  };
  api.destroy_ah = [](ibv_ah* handle) {
    device.handles.erase(handle);
    delete handle;
    return 0;
  };
  api.dv_map_ah_to_qp = [](ibv_ah* handle, uint32_t qpn) {
    ++device.maps;
    if (device.map_result == 0) device.handles[handle] = qpn;
    return device.map_result;
  };
  return api;
}

ibv_ah_attr To(uint8_t host) {
  ibv_ah_attr attr = {};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid.raw[15] = host;
  return attr;
}

class AddressHandlesTest : public ::testing::Test {
 protected:
  AddressHandlesTest() : api_(FakeTable()) {}
  AddressHandles Make(const HandleLimits& limits = {}) {
    return AddressHandles(api_, nullptr, /*map=*/true, clock_, limits);
  }
  static Route Take(AddressHandles& handles, uint8_t host, uint32_t template_qpn = 77) {
    const auto route = handles.Acquire(To(host), template_qpn);
    EXPECT_TRUE(route.ok()) << route.status();
    return route.ok() ? *route : Route();
  }

  const verbs::VerbsApi api_;
  testing_support::ManualClock clock_;
};

TEST_F(AddressHandlesTest, HandlesWithoutUsersGoBeforeTheirTemplateDoes) {
  AddressHandles handles = Make();
  const Route idle = Take(handles, 1, 77), other = Take(handles, 1, 78);
  handles.Release(idle.handle);
  handles.Release(other.handle);
  handles.Forget(77);
  EXPECT_EQ(device.handles.count(idle.handle), 0u);
  EXPECT_EQ(device.handles.count(other.handle), 1u);
  EXPECT_EQ(handles.counts().idle, 1u);
  EXPECT_EQ(handles.counts().evicted, 1u);
  EXPECT_TRUE(Take(handles, 1, 77).first);
  EXPECT_FALSE(Take(handles, 1, 78).first);
}

TEST_F(AddressHandlesTest, AcquireMakesOneHandlePerDestinationAndMapsItOnce) {
  AddressHandles handles = Make();
  const Route a = Take(handles, 1), again = Take(handles, 1), b = Take(handles, 2);
  EXPECT_EQ(a.handle, again.handle);
  EXPECT_NE(a.handle, b.handle);
  EXPECT_TRUE(a.first && a.mapped);
  EXPECT_TRUE(!again.first && again.mapped);
  EXPECT_EQ(device.handles.size(), 2u);
  EXPECT_EQ(device.handles[a.handle], 77u);
  EXPECT_EQ(device.maps, 2);
  EXPECT_EQ(handles.counts().mapped, 2u);
  EXPECT_EQ(handles.counts().made, 2u);
  EXPECT_EQ(handles.counts().reused, 1u);
  EXPECT_EQ(handles.counts().in_use, 2u);
}

TEST_F(AddressHandlesTest, AcquireKnowsPortAndClassOfAnAddress) {
  AddressHandles handles = Make();
  ibv_ah_attr other_port = To(1), other_class = To(1), other_level = To(1);
  other_port.port_num = 2;
  other_class.grh.traffic_class = 106;
  other_level.sl = 3;
  std::vector<ibv_ah*> made = {Take(handles, 1).handle};
  for (const ibv_ah_attr& attr : {other_port, other_class, other_level}) {
    const auto route = handles.Acquire(attr, 77);
    ASSERT_TRUE(route.ok());
    EXPECT_TRUE(route->first);
    made.push_back(route->handle);
  }
  EXPECT_EQ(device.handles.size(), made.size());
}

TEST_F(AddressHandlesTest, AcquireClearsTheStaticRateOnRoceOnly) {
  AddressHandles handles = Make();
  ibv_ah_attr roce = To(1), infiniband = To(1);
  roce.static_rate = IBV_RATE_40_GBPS;
  infiniband.static_rate = IBV_RATE_40_GBPS;
  infiniband.dlid = 7;
  ASSERT_TRUE(handles.Acquire(roce, 77).ok());
  EXPECT_EQ(device.static_rate, IBV_RATE_MAX);
  EXPECT_FALSE(Take(handles, 1).first);  // the rate is not part of the key either
  ASSERT_TRUE(handles.Acquire(infiniband, 77).ok());
  EXPECT_EQ(device.static_rate, IBV_RATE_40_GBPS);
}

TEST_F(AddressHandlesTest, AcquireReplacesTheClassOfRdmaCmByThatOfThePath) {
  ibv_ah_attr from_cm = To(1);
  from_cm.grh.traffic_class = 8;
  from_cm.sl = 1;
  AddressHandles unchanged = Make();
  ASSERT_TRUE(unchanged.Acquire(from_cm, 77).ok());
  EXPECT_EQ(device.traffic_class, 8);
  EXPECT_EQ(device.service_level, 1);
  AddressHandles handles(api_, nullptr, /*map=*/true, clock_, {},
                         {.traffic_class = 106, .service_level = 3});
  ASSERT_TRUE(handles.Acquire(from_cm, 77).ok());
  EXPECT_EQ(device.traffic_class, 106);
  EXPECT_EQ(device.service_level, 3);
  EXPECT_FALSE(Take(handles, 1).first);  // another class of RDMA_CM, the same handle
}

// RDMA_CM computes it from the ports of each connection.
TEST_F(AddressHandlesTest, AcquireHasOneFlowLabelForEachHostOnRoceOnly) {
  AddressHandles handles = Make();
  ibv_ah_attr one = To(1), another = To(1), elsewhere = To(2);
  one.grh.flow_label = 0x11111;
  another.grh.flow_label = elsewhere.grh.flow_label = 0x22222;
  const auto made = handles.Acquire(one, 77);
  const uint32_t label = device.flow_label;
  EXPECT_NE(label, 0u);
  EXPECT_EQ(label & ~0xfffffu, 0u);
  const auto again = handles.Acquire(another, 77);
  ASSERT_TRUE(made.ok() && again.ok());
  EXPECT_EQ(made->handle, again->handle);
  ASSERT_TRUE(handles.Acquire(elsewhere, 77).ok());
  EXPECT_NE(device.flow_label, label);
  one.dlid = another.dlid = 7;
  ASSERT_TRUE(handles.Acquire(one, 77).ok());
  EXPECT_EQ(device.flow_label, 0x11111u);
  EXPECT_TRUE(handles.Acquire(another, 77)->first);
}

TEST_F(AddressHandlesTest, AcquireSpreadsTheConnectionsToAHostOverItsFlowLabels) {
  AddressHandles handles(api_, nullptr, /*map=*/true, clock_, {}, {.flow_labels = 3});
  std::vector<ibv_ah*> first;
  for (int i = 0; i < 3; ++i) {
    const Route route = Take(handles, 1);
    EXPECT_TRUE(route.first) << i;
    first.push_back(route.handle);
  }
  for (int i = 0; i < 6; ++i) {
    const Route route = Take(handles, 1);
    EXPECT_FALSE(route.first) << i;
    EXPECT_EQ(route.handle, first[static_cast<size_t>(i) % 3]) << i;
  }
}

// A turn that all hosts shared would give each of two hosts one label.
TEST_F(AddressHandlesTest, AcquireTakesTheFlowLabelsOfEachOfSeveralHosts) {
  AddressHandles handles(api_, nullptr, /*map=*/true, clock_, {}, {.flow_labels = 2});
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(Take(handles, 1).first) << i;
    EXPECT_TRUE(Take(handles, 2).first) << i;
  }
  EXPECT_EQ(handles.counts().made, 4u);
}

TEST_F(AddressHandlesTest, AcquireTakesTheFlowLabelWithTheFewestConnections) {
  AddressHandles handles(api_, nullptr, /*map=*/true, clock_, {}, {.flow_labels = 2});
  const Route one = Take(handles, 1), other = Take(handles, 1);
  EXPECT_EQ(Take(handles, 1).handle, one.handle);
  handles.Release(one.handle);
  handles.Release(one.handle);
  EXPECT_EQ(Take(handles, 1).handle, one.handle);
  EXPECT_EQ(handles.counts().made, 2u);
  EXPECT_NE(one.handle, other.handle);
}

TEST_F(AddressHandlesTest, AcquireAfterABrokenPathTakesAnotherFlowLabel) {
  AddressHandles handles(api_, nullptr, /*map=*/true, clock_, {}, {.flow_labels = 4});
  const Route broken = Take(handles, 1);
  const uint32_t label = device.flow_label;
  handles.Release(broken.handle, /*suspect=*/true);
  EXPECT_TRUE(Take(handles, 1).first);
  EXPECT_NE(device.flow_label, label);
}

// It was negotiated anew, with another outcome: a second mapping of the handle would do nothing.
TEST_F(AddressHandlesTest, AcquireForAnotherTemplateMakesAnotherHandleAndLeavesTheFirst) {
  AddressHandles handles = Make();
  const Route a = Take(handles, 1, 77);
  const Route b = Take(handles, 1, 78);
  EXPECT_NE(a.handle, b.handle);
  EXPECT_TRUE(b.first && b.mapped);
  EXPECT_EQ(device.handles[a.handle], 77u);
  EXPECT_EQ(device.handles[b.handle], 78u);
  // Also when the first has no user left.
  handles.Release(a.handle);
  const Route c = Take(handles, 1, 79);
  EXPECT_TRUE(c.first);
  EXPECT_EQ(device.handles[a.handle], 77u);
  EXPECT_EQ(device.handles[c.handle], 79u);
}

TEST_F(AddressHandlesTest, ReleaseKeepsAHandleForThePeerThatComesBack) {
  AddressHandles handles = Make();
  const Route a = Take(handles, 1);
  handles.Release(a.handle);
  EXPECT_EQ(handles.counts().idle, 1u);
  EXPECT_EQ(handles.counts().in_use, 0u);
  const Route b = Take(handles, 1);
  EXPECT_EQ(b.handle, a.handle);
  EXPECT_TRUE(!b.first && b.mapped);
  EXPECT_EQ(device.maps, 1);
  EXPECT_EQ(handles.counts().idle, 0u);
  EXPECT_EQ(handles.counts().reused, 1u);
}

TEST_F(AddressHandlesTest, ReleaseBeyondTheBoundFreesTheOneUnusedLongest) {
  AddressHandles handles = Make({.max_idle = 2});
  const Route a = Take(handles, 1), b = Take(handles, 2), c = Take(handles, 3),
              d = Take(handles, 4);
  handles.Release(b.handle);
  handles.Release(a.handle);
  handles.Release(c.handle);  // b goes
  EXPECT_EQ(device.handles.count(b.handle), 0u);
  EXPECT_EQ(device.handles.count(a.handle), 1u);
  EXPECT_EQ(Take(handles, 1).handle, a.handle);  // no longer idle, so d makes none go
  handles.Release(d.handle);
  EXPECT_EQ(device.handles.size(), 3u);
  EXPECT_EQ(handles.counts().evicted, 1u);
  EXPECT_EQ(handles.counts().idle, 2u);
}

TEST_F(AddressHandlesTest, AcquireGivesOutNoneThatWasUnusedForTooLong) {
  AddressHandles handles = Make({.max_idle_ns = 1000});
  const Route a = Take(handles, 1), b = Take(handles, 2);
  handles.Release(a.handle);
  clock_.Advance(1000);
  handles.Release(b.handle);
  clock_.Advance(1);
  EXPECT_TRUE(Take(handles, 1).first);
  EXPECT_EQ(handles.counts().evicted, 1u);
  EXPECT_FALSE(Take(handles, 2).first);
  clock_.Advance(1'000'000);  // both are in use
  EXPECT_FALSE(Take(handles, 2).first);
}

TEST_F(AddressHandlesTest, ReleaseOfASuspectHandleFreesItWithItsLastUser) {
  AddressHandles handles = Make();
  const Route a = Take(handles, 1), other = Take(handles, 1);
  handles.Release(a.handle, /*suspect=*/true);
  EXPECT_EQ(device.handles.count(a.handle), 1u);  // the other has it
  const Route fresh = Take(handles, 1);
  EXPECT_TRUE(fresh.first);
  EXPECT_NE(fresh.handle, other.handle);
  handles.Release(other.handle);
  EXPECT_EQ(device.handles.count(other.handle), 0u);
  EXPECT_EQ(handles.counts().idle, 0u);
  handles.Release(fresh.handle);
  EXPECT_EQ(Take(handles, 1).handle, fresh.handle);
}

TEST_F(AddressHandlesTest, RenewLeavesThoseInUseToTheirUsersAndFreesTheRest) {
  AddressHandles handles = Make();
  const Route a = Take(handles, 1), b = Take(handles, 2);
  handles.Release(b.handle);
  handles.Renew();
  EXPECT_EQ(device.handles.count(b.handle), 0u);
  EXPECT_EQ(device.handles.count(a.handle), 1u);
  const Route fresh = Take(handles, 1);
  EXPECT_TRUE(fresh.first);
  EXPECT_NE(fresh.handle, a.handle);
  handles.Release(a.handle);
  EXPECT_EQ(device.handles.size(), 1u);
  EXPECT_EQ(Take(handles, 1).handle, fresh.handle);
}

TEST_F(AddressHandlesTest, EvictionNeverTouchesOneInUse) {
  AddressHandles handles = Make({.max_idle = 3, .max_idle_ns = 500});
  base::SeededRandom random(11);
  std::multimap<ibv_ah*, uint32_t> held;  // and the template asked for
  for (int step = 0; step < 20'000; ++step) {
    clock_.Advance(static_cast<int64_t>(random.Below(100)));
    if (random.Below(2) == 0 && held.size() < 40) {
      const auto template_qpn = static_cast<uint32_t>(77 + random.Below(2));
      const Route route = Take(handles, static_cast<uint8_t>(random.Below(20)), template_qpn);
      held.emplace(route.handle, template_qpn);
    } else if (!held.empty()) {
      const auto one = std::next(held.begin(), static_cast<int64_t>(random.Below(held.size())));
      ibv_ah* handle = one->first;
      held.erase(one);
      handles.Release(handle, /*suspect=*/random.Below(8) == 0);
    }
    size_t in_use = 0;
    for (auto it = held.begin(); it != held.end(); it = held.upper_bound(it->first), ++in_use) {
      ASSERT_EQ(device.handles.count(it->first), 1u) << "in step " << step;
      ASSERT_EQ(device.handles[it->first], it->second);
    }
    const HandleCounts counts = handles.counts();
    ASSERT_EQ(counts.in_use, in_use);
    ASSERT_EQ(device.handles.size(), in_use + counts.idle);
    ASSERT_LE(counts.idle, 3u);
  }
  EXPECT_GT(handles.counts().evicted, 100u);
  EXPECT_GT(handles.counts().reused, 100u);
}

TEST_F(AddressHandlesTest, MappingIsAHintAndItsFailureIsCountedAndShown) {
  device.map_result = EOPNOTSUPP;
  AddressHandles handles = Make();
  const Route a = Take(handles, 1), again = Take(handles, 1);
  EXPECT_FALSE(a.mapped);
  EXPECT_EQ(a.map_error, EOPNOTSUPP);
  EXPECT_EQ(again.map_error, EOPNOTSUPP);  // not tried again on the same handle
  EXPECT_EQ(device.maps, 1);
  EXPECT_EQ(handles.counts().unmapped, 1u);
  EXPECT_EQ(handles.counts().map_failures, 1u);
  EXPECT_EQ(handles.counts().last_map_error, EOPNOTSUPP);
  EXPECT_EQ(handles.counts().mapped, 0u);
}

TEST_F(AddressHandlesTest, DeviceThatCannotMapIsNotAsked) {
  AddressHandles handles(api_, nullptr, /*map=*/false, clock_);
  const Route a = Take(handles, 1);
  EXPECT_FALSE(a.mapped);
  EXPECT_EQ(a.map_error, 0);
  EXPECT_EQ(device.maps, 0);
  EXPECT_EQ(handles.counts().unmapped, 1u);
  EXPECT_EQ(handles.counts().map_failures, 0u);
}

TEST_F(AddressHandlesTest, RefusalSaysWhyIsCountedAndNotRemembered) {
  device.refuse = true;
  AddressHandles handles = Make();
  const auto a = handles.Acquire(To(1), 77);
  EXPECT_EQ(a.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(a.status().message().find("ibv_create_ah failed with ETIMEDOUT"),
            absl::string_view::npos);
  EXPECT_EQ(handles.counts().make_failures, 1u);
  EXPECT_EQ(handles.counts().made, 0u);
  device.refuse = false;
  EXPECT_TRUE(Take(handles, 1).first);
}

TEST_F(AddressHandlesTest, EndFreesAllIdleOnesIncluded) {
  {
    AddressHandles handles = Make();
    handles.Release(Take(handles, 1).handle);
    Take(handles, 2);
  }
  EXPECT_TRUE(device.handles.empty());
}

}  // namespace address_handles_test
}  // namespace sluice::path
