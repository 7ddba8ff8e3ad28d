// SPDX-License-Identifier: Apache-2.0
//
// What happens to devices under ports that are at work: addresses that move, queues that stop, devices that fail. No transfer
// hangs, and a port that can go on does.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "middleware/bulk/ticket.h"
#include "tests/middleware/bulk/port_nodes.h"

namespace sluice::bulk {
namespace device_life_test {

using integrity::Guard;
using integrity::Protection;
using softdc::sim::Simulation;
using testing::HasSubstr;

constexpr Protection kCrc{.memory = Guard::kCrc32c, .wire = Guard::kCrc32c, .block_bytes = 512};

struct Happening {
  ibv_context* context;
  ibv_async_event event;
};
std::vector<ibv_qp*> g_targets;  // DCTs, in the order of making
std::deque<Happening> g_events;
ibv_context* g_full = nullptr;  // takes no RC queue pair
std::map<ibv_qp*, uint8_t>
    g_paths;               // places in the GID table, of queues that were made ready to receive
int g_made = 0;            // DCTs and protection domains, so far
int g_domains = 0;         // protection domains that there are
int g_freed_in_pass = 0;   // of those that were freed: by a poller
int g_address_events = 0;  // that somebody has read
const PortNodes* g_nodes = nullptr;

// The simulation's, and events that a test makes up.
const verbs::VerbsApi& Table() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = Simulation::Verbs();
    api.dv_create_qp = [](ibv_context* context, ibv_qp_init_attr_ex* attr,
                          mlx5dv_qp_init_attr* dv) {
      if (context == g_full && attr->qp_type == IBV_QPT_RC) {
        errno = ENOMEM;
        return static_cast<ibv_qp*>(nullptr);
      }
      ibv_qp* qp = Simulation::Verbs().dv_create_qp(context, attr, dv);
      const bool dc = (dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DC) != 0;
      if (dc && dv->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT) {
        g_targets.push_back(qp);
        ++g_made;
      }
      return qp;
    };
    api.destroy_qp = [](ibv_qp* qp) {
      std::erase(g_targets, qp);
      return Simulation::Verbs().destroy_qp(qp);
    };
    api.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
      const int error_number = Simulation::Verbs().modify_qp(qp, attr, mask);
      if ((mask & IBV_QP_AV) != 0) g_paths[qp] = attr->ah_attr.grh.sgid_index;
      return error_number;
    };
    api.alloc_pd = [](ibv_context* context) {
      ++g_domains;
      ++g_made;
      return Simulation::Verbs().alloc_pd(context);
    };
    api.dealloc_pd = [](ibv_pd* domain) {
      --g_domains;
      if (g_nodes != nullptr && g_nodes->in_pass) ++g_freed_in_pass;
      return Simulation::Verbs().dealloc_pd(domain);
    };
    api.get_async_event = [](ibv_context* context, ibv_async_event* event) {
      if (g_events.empty() || g_events.front().context != context) {
        const int got = Simulation::Verbs().get_async_event(context, event);
        if (got == 0 && event->event_type == IBV_EVENT_GID_CHANGE) ++g_address_events;
        return got;
      }
      *event = g_events.front().event;
      g_events.pop_front();
      return 0;
    };
    api.ack_async_event = [](ibv_async_event* event) {
      if (event->event_type == IBV_EVENT_GID_CHANGE ||
          event->event_type == IBV_EVENT_DEVICE_FATAL || event->event_type == IBV_EVENT_PORT_ERR ||
          event->event_type == IBV_EVENT_PORT_ACTIVE) {
        Simulation::Verbs().ack_async_event(event);
      }
    };
    return api;
  }();
  return table;
}

// Host 0 moves data into memory of host 1.
class DeviceLifeTest : public testing::Test {
 protected:
  void SetUp() override {
    g_targets.clear();
    g_events.clear();
    g_full = nullptr;
    g_paths.clear();
    g_address_events = g_freed_in_pass = 0;
    PortNodesOptions options;
    options.nodes = 3;
    options.port.piece_bytes = 4096;
    options.table = &Table();
    nodes_ = std::make_unique<PortNodes>(options);
    g_nodes = nodes_.get();
    own_ = nodes_->Lend(0, 0).id;
    lent_ = nodes_->Lend(1, kMayRead | kMayWrite);
    std::vector<std::byte> data(kData);
    Fill(nodes_->random, data);
    Protect(kCrc, data, here().memory);
    joined_ = nodes_->Join(0, 1);
  }
  void TearDown() override { g_nodes = nullptr; }
  TransferId Begin(const Protection& protection = {}) {
    TransferRequest request;
    request.local = own_;
    request.remote = lent_.capability;
    request.data_bytes = kData;
    request.protection = protection;
    const auto transfer = nodes_->Start(0, joined_.at_one, request);
    EXPECT_TRUE(transfer.ok()) << transfer.status();
    return transfer.value_or(0);
  }
  // Until `done`. False: not soon; long before a peer that does not answer is found.
  bool Run(const std::function<bool()>& done) {
    const int64_t end_ns = nodes_->simulation->NowNs() + 100'000'000;
    bool did = false;
    nodes_->Run([&] { return (did = done()) || nodes_->simulation->NowNs() > end_ns; });
    return did;
  }
  absl::Status End(TransferId transfer) {
    if (!Run([&] { return here().ended.contains(transfer); })) {
      return absl::UnknownError("it does not end");
    }
    return here().ended[transfer];
  }
  absl::Status Health(uint32_t node) {
    const auto as = nodes_->As(node);
    return (*nodes_)[node].port->Health();
  }
  void Happens(uint32_t node, ibv_event_type type, ibv_qp* qp = nullptr) {
    ibv_async_event event = {};
    event.event_type = type;
    event.element.qp = qp;
    g_events.push_back({(*nodes_)[node].device->context(), event});
  }
  void Leaves(uint32_t node) {  // its address
    ibv_gid other = Simulation::Gid(node);
    other.raw[13] = 0xaa;
    nodes_->simulation->SetGid(node, 1, Simulation::Gid(node));
    nodes_->simulation->SetGid(node, 0, other);
  }
  bool BothDown() {
    return Run([&] { return here().downs.size() == 1 && there().downs.size() == 1; });
  }
  void ExpectTransfersAgain() {
    joined_ = nodes_->Join(0, 1);
    for (const Protection& protection : {Protection(), kCrc}) {
      EXPECT_EQ(End(Begin(protection)), absl::OkStatus());
    }
  }
  PortNode& here() { return (*nodes_)[0]; }
  PortNode& there() { return (*nodes_)[1]; }

  static constexpr size_t kData = 128 * 512;
  std::unique_ptr<PortNodes> nodes_;
  PortNodes::Joined joined_;
  LeaseId own_;
  PortNodes::Lent lent_;
};

TEST_F(DeviceLifeTest, OwnAddressThatMovesEndsPeersAndTicketsLeadToItsNewPlace) {
  EXPECT_EQ(End(Begin()), absl::OkStatus());
  Leaves(1);
  ASSERT_TRUE(BothDown()) << "the other one is told";
  const absl::Status why = there().downs[0].second;
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(why.message()), HasSubstr("the address of this host changed"));
  EXPECT_EQ(there().device->path().sgid_index, 1);
  EXPECT_EQ(Health(1), absl::OkStatus());
  ExpectTransfersAgain();
}

// Their user waits for whoever has them.
TEST_F(DeviceLifeTest, TicketsOfAnAddressThatMovedEnd) {
  std::string ticket;
  PeerId offered;
  {
    const auto as = nodes_->As(1);
    offered = *there().port->Offer(&ticket);
  }
  Leaves(1);
  ASSERT_TRUE(Run([&] { return there().downs.size() == 2; }));
  EXPECT_TRUE(there().downs[0].first == offered || there().downs[1].first == offered);
}

TEST_F(DeviceLifeTest, AddressThatIsAddedTouchesNoPeer) {
  ibv_gid more = Simulation::Gid(1);
  more.raw[13] = 0xaa;
  nodes_->simulation->SetGid(1, 1, more);
  EXPECT_EQ(End(Begin()), absl::OkStatus());
  EXPECT_EQ(End(Begin(kCrc)), absl::OkStatus());
  EXPECT_TRUE(here().downs.empty());
  EXPECT_TRUE(there().downs.empty());
}

// It is told of twice, and the neighbour goes on.
TEST_F(DeviceLifeTest, TargetThatStopsEndsItsPeerAlone) {
  ASSERT_EQ(g_targets.size(), 2u);
  ibv_qp* const before = g_targets[1];
  const PortNodes::Joined neighbour = nodes_->Join(2, 1);
  Happens(1, IBV_EVENT_QP_FATAL, before);
  Happens(1, IBV_EVENT_QP_FATAL, before);
  ASSERT_TRUE(BothDown());
  EXPECT_EQ(there().downs[0].first, joined_.at_other);
  EXPECT_THAT(std::string(there().downs[0].second.message()),
              HasSubstr("a receive queue of this side stopped"));
  ASSERT_TRUE(Run([&] { return !std::ranges::count(g_targets, before); }));
  EXPECT_EQ(Health(1), absl::OkStatus());
  ExpectTransfersAgain();
  TransferRequest request;
  request.local = nodes_->Lend(2, 0).id;
  request.remote = lent_.capability;
  request.data_bytes = kData;
  const auto transfer = nodes_->Start(2, neighbour.at_one, request);
  ASSERT_TRUE(transfer.ok()) << transfer.status();
  ASSERT_TRUE(Run([&] { return (*nodes_)[2].ended.contains(*transfer); }));
  EXPECT_EQ((*nodes_)[2].ended[*transfer], absl::OkStatus());
  EXPECT_EQ(there().downs.size(), 1u);
}

// While a command changes the device's path, a ticket and its DCT have one address, and end with those of before.
TEST_F(DeviceLifeTest, OfferWhileTheAddressMovesIsOfOneAddress) {
  Leaves(1);
  nodes_->dead.resize(3);
  ASSERT_TRUE(Run([&] {
    nodes_->dead[1] = g_address_events != 0;
    return there().device->path().sgid_index == 1;
  }));
  for (const Reach reach : {Reach::kShared, Reach::kOwn}) {
    std::string ticket;
    {
      const auto as = nodes_->As(1);
      const auto offered = there().port->Offer(&ticket, reach);
      ASSERT_TRUE(offered.ok()) << offered.status();
    }
    const auto way = LoadTicket(ticket)->way;
    const auto gid = Simulation::Gid(1);
    EXPECT_EQ(std::memcmp(way.gid.data(), gid.raw, sizeof(gid.raw)), 0);
    const auto target = std::ranges::find(g_targets, way.dctn, &ibv_qp::qp_num);
    ASSERT_NE(target, g_targets.end());
    EXPECT_EQ(g_paths[*target], 0);
  }
  nodes_->dead[1] = false;
  EXPECT_TRUE(Run([&] { return there().downs.size() == 3; }));
}

TEST_F(DeviceLifeTest, OfferWithoutAPlaceAsksNothingOfTheDevice) {
  std::string ticket;
  const auto as = nodes_->As(0);
  for (;;) {
    const int made = g_made;
    const absl::Status status = here().port->Offer(&ticket, Reach::kOwn).status();
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("places for peers are taken"));
    EXPECT_EQ(g_made, made);
    return;
  }
}

// Whichever goes last, the peer or what was lent for it.
TEST_F(DeviceLifeTest, ProtectionDomainsAreFreedByCommands) {
  const int before = g_domains;
  for (const bool lease_first : {true, false}) {
    std::string ticket;
    PeerId peer;
    LeaseId lease;
    const size_t lent = there().lent.size();
    {
      const auto as = nodes_->As(1);
      peer = *there().port->Offer(&ticket, Reach::kOwn);
      lease = *there().port->Lend(there().at(0, 4096), kMayRead, 0, peer);
    }
    ASSERT_TRUE(Run([&] { return there().lent.size() > lent; }));
    EXPECT_EQ(g_domains, before + 1);
    for (const bool now_lease : {lease_first, !lease_first}) {
      there().returned.clear();
      there().downs.clear();
      {
        const auto as = nodes_->As(1);
        const absl::Status status =
            now_lease ? there().port->leases().Return(lease) : there().port->Disconnect(peer);
        ASSERT_TRUE(status.ok()) << status;
      }
      ASSERT_TRUE(
          Run([&] { return !(now_lease ? there().returned.empty() : there().downs.empty()); }));
    }
    ASSERT_TRUE(Run([&] { return g_domains == before; }));
  }
  EXPECT_EQ(g_freed_in_pass, 0);
}

TEST_F(DeviceLifeTest, ErrorOfAnotherQueueEndsNobody) {
  Happens(1, IBV_EVENT_QP_FATAL, g_targets[0]);
  ASSERT_TRUE(Run([&] { return g_events.empty(); }));
  EXPECT_EQ(End(Begin()), absl::OkStatus());
  EXPECT_TRUE(there().downs.empty());
}

// Under way, waiting, and begun later: each ends, and memory comes back.
TEST_F(DeviceLifeTest, DeviceThatFailsEndsAllTransfersAndSaysSo) {
  EXPECT_EQ(End(Begin(kCrc)), absl::OkStatus());
  const std::vector<TransferId> begun = {Begin(), Begin(kCrc), Begin()};
  nodes_->Pass();
  nodes_->simulation->DeviceFatal(0);
  for (const TransferId transfer : begun) {
    const absl::Status status = End(transfer);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), HasSubstr("device softdc0 has failed"));
  }
  ASSERT_TRUE(Run([&] { return here().downs.size() == 1; }));
  EXPECT_EQ(Health(0).code(), absl::StatusCode::kUnavailable);
  std::string ticket;
  const auto as = nodes_->As(0);
  EXPECT_EQ(here().port->Offer(&ticket).status(), Health(0));
  EXPECT_EQ(here().port->Start(joined_.at_one, {}).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(here().port->leases().Return(own_).ok());
  EXPECT_TRUE(Run([&] { return here().returned.size() == 1; }));
}

// Completions are lost, and those of them that are waited for never come.
TEST_F(DeviceLifeTest, CompletionQueueThatFailsEndsAllTransfers) {
  for (const ibv_event_type type : {IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_ERR}) {
    TearDown();
    nodes_.reset();
    SetUp();
    const TransferId plain = Begin();
    const TransferId guarded = Begin(kCrc);
    nodes_->Pass();
    ASSERT_TRUE(here().ended.empty());
    Happens(0, type);
    for (const TransferId transfer : {plain, guarded}) {
      const absl::Status status = End(transfer);
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(std::string(status.message()), HasSubstr("device softdc0 has failed"));
    }
    EXPECT_EQ(Health(0).code(), absl::StatusCode::kUnavailable);
  }
}

// Whoever asked for it would wait for ever.
TEST_F(DeviceLifeTest, QueuePairThatCanNotBeMadeEndsThePeerThatWaitsForIt) {
  g_full = there().device->context();
  const TransferId transfer = Begin(kCrc);
  EXPECT_EQ(End(transfer).code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(BothDown());
  EXPECT_THAT(std::string(there().downs[0].second.message()), HasSubstr("mlx5dv_create_qp (RC)"));
  g_full = nullptr;
  ExpectTransfersAgain();
}

TEST_F(DeviceLifeTest, PortThatIsDownShowsAndEndsNothing) {
  nodes_->simulation->PortDown(0);
  ASSERT_TRUE(Run([&] { return !Health(0).ok(); }));
  EXPECT_THAT(std::string(Health(0).message()), HasSubstr("port 1 of softdc0 is down"));
  nodes_->simulation->PortUp(0);
  ASSERT_TRUE(Run([&] { return Health(0).ok(); }));
  EXPECT_EQ(End(Begin()), absl::OkStatus());
  EXPECT_TRUE(here().downs.empty());
}

}  // namespace device_life_test
}  // namespace sluice::bulk
