// SPDX-License-Identifier: Apache-2.0
//
// Events of a device, fed to it one by one.
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/device/device.h"
#include "transport/softdc/verbs.h"

namespace sluice::device {
namespace device_life_test {

std::deque<ibv_async_event> g_events;  // to come
int g_acknowledged = 0;
std::vector<ibv_gid> g_gids;  // the table, when not empty

// The software NIC, of which the test says what happens.
const verbs::VerbsApi& Table() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = softdc::Verbs();
    api.get_async_event = [](ibv_context*, ibv_async_event* event) {
      if (g_events.empty()) {
        errno = EAGAIN;
        return -1;
      }
      *event = g_events.front();
      g_events.pop_front();
      return 0;
    };
    api.ack_async_event = [](ibv_async_event*) { ++g_acknowledged; };
    api.query_gid = [](ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
      if (g_gids.empty()) return softdc::Verbs().query_gid(context, port, index, gid);
      *gid = static_cast<size_t>(index) < g_gids.size() ? g_gids[index] : ibv_gid{};
      return 0;
    };
    api.query_gid_ex = [](ibv_context* context, uint32_t port, uint32_t index,
                          ibv_gid_entry* entry) {
      if (g_gids.empty()) return softdc::Verbs().query_gid_ex(context, port, index, entry);
      return EOPNOTSUPP;
    };
    return api;
  }();
  return table;
}

ibv_gid Gid(uint8_t last) {
  ibv_gid gid = {};
  gid.raw[10] = gid.raw[11] = 0xff;
  gid.raw[12] = 10;
  gid.raw[15] = last;
  return gid;
}

class DeviceLifeTest : public testing::Test {
 protected:
  void SetUp() override {
    g_events.clear();
    g_gids.clear();
    g_acknowledged = 0;
  }
  void Open() {
    auto opened = Device::Open("softdc0", {&Table()});
    ASSERT_TRUE(opened.ok()) << opened.status();
    device_ = std::move(*opened);
  }
  // One event, as it was told.
  DeviceEvent Happens(int type, int port = 1) {
    ibv_async_event event = {};
    event.event_type = static_cast<ibv_event_type>(type);
    event.element.port_num = port;
    g_events.push_back(event);
    DeviceEvent told = {};
    EXPECT_EQ(device_->ReadAsyncEvents([&](const DeviceEvent& happened) { told = happened; }), 1);
    return told;
  }

  std::unique_ptr<Device> device_;
};

TEST_F(DeviceLifeTest, ReadAsyncEventsTellsTheReactionOfEachKindAndAcknowledgesIt) {
  for (const EventRule& rule : EventRules()) {
    Open();
    g_acknowledged = 0;
    EXPECT_EQ(Happens(rule.type).reaction, rule.reaction) << rule.name;
    EXPECT_EQ(g_acknowledged, 1) << rule.name;
    EXPECT_EQ(device_->broken(), rule.reaction == Reaction::kBroken) << rule.name;
    EXPECT_EQ(device_->port_up(), rule.reaction != Reaction::kPortDown) << rule.name;
    EXPECT_EQ(device_->counted_events(), rule.reaction == Reaction::kCount ? 1u : 0u) << rule.name;
  }
}

TEST_F(DeviceLifeTest, ReadAsyncEventsCountsWhatItDoesNotKnow) {
  Open();
  EXPECT_EQ(Happens(4711).reaction, Reaction::kCount);
  EXPECT_EQ(device_->counted_events(), 1u);
  EXPECT_EQ(device_->async_events(), 1u);
  EXPECT_TRUE(device_->Usable().ok());
}

TEST_F(DeviceLifeTest, ReadAsyncEventsCountsWhatHappensToAnotherPort) {
  Open();
  EXPECT_EQ(Happens(IBV_EVENT_PORT_ERR, /*port=*/2).reaction, Reaction::kCount);
  EXPECT_TRUE(device_->Usable().ok());
  EXPECT_EQ(Happens(IBV_EVENT_GID_CHANGE, /*port=*/2).reaction, Reaction::kCount);
}

TEST_F(DeviceLifeTest, UsableFollowsThePortAndNamesTheFirstFailure) {
  Open();
  Happens(IBV_EVENT_PORT_ERR);
  EXPECT_EQ(device_->Usable().code(), absl::StatusCode::kUnavailable);
  Happens(IBV_EVENT_PORT_ACTIVE);
  EXPECT_TRUE(device_->Usable().ok());
  Happens(IBV_EVENT_SRQ_ERR);
  Happens(IBV_EVENT_DEVICE_FATAL);
  Happens(IBV_EVENT_PORT_ACTIVE);  // mends nothing
  EXPECT_EQ(device_->Usable().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(device_->Usable().message().find("\"SRQ error\""), absl::string_view::npos)
      << device_->Usable();
}

TEST_F(DeviceLifeTest, RefreshAddressFindsItsGidElsewhereOrTakesAnother) {
  g_gids = {Gid(1), Gid(2)};
  Open();
  ASSERT_EQ(device_->path().sgid_index, 0);
  g_gids = {Gid(1), Gid(3)};
  EXPECT_EQ(device_->RefreshAddress(), Device::Address::kSame);
  g_gids = {Gid(3), Gid(4), Gid(1)};
  EXPECT_EQ(device_->RefreshAddress(), Device::Address::kMoved);
  EXPECT_EQ(device_->path().sgid_index, 2);
  g_gids = {ibv_gid{}, Gid(5)};
  EXPECT_EQ(device_->RefreshAddress(), Device::Address::kMoved);
  EXPECT_EQ(device_->path().sgid_index, 1);
  EXPECT_EQ(device_->RefreshAddress(), Device::Address::kSame);
}

TEST_F(DeviceLifeTest, RefreshAddressWaitsWhereThereIsNone) {
  g_gids = {Gid(1), Gid(2)};
  Open();
  g_gids = {ibv_gid{}};
  EXPECT_EQ(device_->RefreshAddress(), Device::Address::kNone);
  g_gids = {Gid(1), Gid(2)};
  EXPECT_EQ(device_->RefreshAddress(), Device::Address::kSame);  // as if nothing had been
}

TEST(DeviceEvents, PrintEventRules) {
  EXPECT_EQ(
      PrintEventRules(),
      R"(port error: port down; endpoint: new connections fail at once; peers stay while their traffic arrives
port active: port up; endpoint: connects again
GID change: addresses; path, receive: new address handles for new peers; our own address moved: peers end, new targets
LID change: addresses; path, receive: as with GID change
P_Key change: counted; queue: requests that no longer pass fail, and say so
SM change: counted; kernel: asks the new one for paths
client reregister: counted; kernel: registers again; Sluice is in no multicast group
device fatal: broken; endpoint: all peers end, nothing new begins; unplugged devices say this too
CQ error: broken; endpoint: as with device fatal: completions are lost
SRQ error: broken; endpoint: as with device fatal: no message is received
SRQ limit: counted; receive: never armed
QP fatal: target; receive, queue: a DCT: peers end, a new one is made; a DCI: its completions tell, the queue recovers it
QP request error: target; receive, queue: as with QP fatal
QP access error: target; receive, queue: as with QP fatal
communication established: counted; nobody: not for DC
SQ drained: counted; integrity: a wrong signature stopped a signed queue, whose owner tells it so
path migrated: counted; nobody: no alternate paths
path migration error: counted; nobody: no alternate paths
last WQE reached: target; onesided: an RC queue pair of a mover: its peer ends; also comes of ending a queue pair ourselves
WQ fatal: counted; nobody: no work queues
anything else: counted
)");
}

}  // namespace device_life_test
}  // namespace sluice::device
