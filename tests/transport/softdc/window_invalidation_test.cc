// SPDX-License-Identifier: Apache-2.0
//
// A memory window's key is taken back while another's copy through the window is under way, held up in its
// middle by a kill point: nothing lands after the completion that says so, and nobody waits for the dead.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_child.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/memory_window.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/shm/kill_point.h"
#include "transport/softdc/verbs_objects.h"

static_assert(SOFTDC_KILL_POINTS, "link the instrumented model");

namespace sluice::softdc {
namespace {

constexpr size_t kAt = DcNode::kSendAreaOffset + (256 << 10);  // behind what tests send from
constexpr uint32_t kBytes = 8192;

// The first copy of this process stops in its middle until it is let go.
struct Pause {
  std::atomic<bool> reached{false}, go_on{false};
} pause_point;
int tell_fd = -1;

void StopInTheMiddle(shm::KillPoint point) {
  if (point != shm::KillPoint::kPayloadHalfCopied || pause_point.reached.exchange(true)) return;
  if (tell_fd >= 0 && write(tell_fd, "x", 1) != 1) _exit(1);
  while (!pause_point.go_on.load()) std::this_thread::yield();
}

void DieWithTheKey(shm::KillPoint point) {
  if (point == shm::KillPoint::kWindowTakenBack) kill(getpid(), SIGKILL);
}

struct Place {
  DcAddress address;
  uint32_t key;
};

// Who has the window.
class Owner {
 public:
  explicit Owner(bool channel = false) : node(Bindable(channel)) {
    window_ = AllocMw(node.pd, IBV_MW_TYPE_2);
    EXPECT_NE(window_, nullptr);
  }
  ~Owner() { EXPECT_EQ(DeallocMw(window_), 0); }

  Place Bind() {
    const uint32_t key = ibv_inc_rkey(window_->rkey);
    const ibv_mw_bind_info info{.mr = node.mr,
                                .addr = reinterpret_cast<uint64_t>(node.slab + kAt),
                                .length = kBytes,
                                .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
    EXPECT_EQ(BindWindow(*Context::From(node.context), Pd::From(node.pd)->number, 0, window_->rkey,
                         key, info),
              IBV_WC_SUCCESS);
    return {node.Address(), key};
  }
  bool Bound() {
    return Context::From(node.context)->memory_regions()[window_->handle].key.load() != 0;
  }
  int PostLocalInvalidation(uint32_t key) {
    ibv_wr_start(node.dci_ex);
    node.dci_ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_local_inv(node.dci_ex, key);
    return ibv_wr_complete(node.dci_ex);
  }
  uint32_t Unclaimed() {
    Srq& srq = *Srq::From(node.srq);
    SpinLockHolder hold(srq.lock());
    return srq.owner().Unclaimed();
  }

  DcNode node;

 private:
  static DcNodeOptions Bindable(bool channel) {
    DcNodeOptions options;
    options.access |= IBV_ACCESS_MW_BIND;
    options.channel = channel;
    return options;
  }

  ibv_mw* window_;
};

int WriteTo(DcNode& node, const Place& place) {
  return node.Write(place.address, kAt, std::string(4000, 'w'), 1, 0, place.key);
}

int SendInvalidation(DcNode& node, const Place& place) {
  ibv_wr_start(node.dci_ex);
  node.dci_ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send_inv(node.dci_ex, place.key);
  ibv_wr_set_inline_data(node.dci_ex, const_cast<char*>("bye"), 3);
  mlx5dv_wr_set_dc_addr_stream(node.dci_dv, node.ah, place.address.dctn, place.address.dc_key, 1);
  return ibv_wr_complete(node.dci_ex);
}

void ExpectNothing(ibv_cq* cq) {
  ibv_wc wc{};
  for (int i = 0; i < 200; ++i) {  // time to come wrongly
    ASSERT_EQ(ibv_poll_cq(cq, 1, &wc), 0) << "told of while the copy goes on";
    std::this_thread::yield();
  }
}

// A writer in this process that stands in the middle of its copy through the window.
class HeldUpWriter {
 public:
  explicit HeldUpWriter(const Place& place) {
    pause_point.reached = false;
    pause_point.go_on = false;
    // The link first, so that the copy runs on the poster's thread.
    EXPECT_EQ(node_.Send(place.address, "first", 1), 0);
    EXPECT_EQ(node_.PollSend().status, IBV_WC_SUCCESS);
    EXPECT_EQ(WriteTo(node_, place), 0);
    EXPECT_EQ(node_.PollSend().status, IBV_WC_SUCCESS);
    shm::kill_point_hook = StopInTheMiddle;
    thread_ = std::thread([this, place] { EXPECT_EQ(WriteTo(node_, place), 0); });
    while (!pause_point.reached.load()) std::this_thread::yield();
  }
  ~HeldUpWriter() {
    LetGo();
    thread_.join();
    shm::kill_point_hook = nullptr;
    EXPECT_EQ(node_.PollSend().status, IBV_WC_SUCCESS);
  }
  static void LetGo() { pause_point.go_on = true; }

 private:
  DcNode node_;
  std::thread thread_;
};

// First, since it forks.
TEST(WindowInvalidation, DeadCopiersAndSendersHoldUpNobody) {
  Child copier([](int down, int up) {
    Place place;
    if (read(down, &place, sizeof(place)) != sizeof(place)) return;
    tell_fd = up;
    shm::kill_point_hook = StopInTheMiddle;
    DcNode node;
    WriteTo(node, place);
    node.PollSend();
  });
  Child sender([](int down, int) {
    Place place;
    if (read(down, &place, sizeof(place)) != sizeof(place)) return;
    shm::kill_point_hook = DieWithTheKey;
    DcNode node;
    SendInvalidation(node, place);
    node.PollSend();
  });
  Owner owner;
  Place place = owner.Bind();
  copier.Put(place);
  EXPECT_EQ(copier.Get<char>(), 'x');  // it is in the middle of its copy, for ever
  ASSERT_EQ(owner.PostLocalInvalidation(place.key), 0);
  EXPECT_FALSE(owner.Bound());
  ExpectNothing(owner.node.send_cq);
  copier.Kill();
  EXPECT_EQ(owner.node.PollSend().status, IBV_WC_SUCCESS);

  place = owner.Bind();
  const uint32_t receives = owner.Unclaimed();
  sender.Put(place);
  while (owner.Bound()) std::this_thread::yield();
  while (owner.Unclaimed() != receives) std::this_thread::yield();  // it was taken, and came back
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(owner.node.receive_cq, 1, &wc), 0);
}

TEST(WindowInvalidation, NothingLandsAfterALocalInvalidation) {
  Owner owner;
  const Place place = owner.Bind();
  {
    HeldUpWriter writer(place);
    ASSERT_EQ(owner.PostLocalInvalidation(place.key), 0);
    ExpectNothing(owner.node.send_cq);
    writer.LetGo();
    EXPECT_EQ(owner.node.PollSend().status, IBV_WC_SUCCESS);
    std::memset(owner.node.slab + kAt, 0x11, kBytes);  // the program's own again
  }
  for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(owner.node.slab[kAt + i], std::byte{0x11});
  DcNode other;
  ASSERT_EQ(WriteTo(other, place), 0);
  EXPECT_EQ(other.PollSend().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(WindowInvalidation, AnArrivingOneIsNotToldOfDuringACopy) {
  Owner owner;
  const Place place = owner.Bind();
  HeldUpWriter writer(place);
  EXPECT_EQ(owner.node.ReceivedText(owner.node.PollReceive()), "first");
  DcNode sender;
  ASSERT_EQ(SendInvalidation(sender, place), 0);
  EXPECT_EQ(sender.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_FALSE(owner.Bound());
  ExpectNothing(owner.node.receive_cq);
  writer.LetGo();
  const ibv_wc got = owner.node.PollReceive();
  EXPECT_EQ(got.wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
  EXPECT_EQ(got.invalidated_rkey, place.key);
  EXPECT_EQ(owner.node.ReceivedText(got), "bye");
}

TEST(WindowInvalidation, WhoSleepsIsWokenWhenTheCopyHasEnded) {
  Owner owner(/*channel=*/true);
  DcNode& node = owner.node;
  const Place place = owner.Bind();
  HeldUpWriter writer(place);
  EXPECT_EQ(node.ReceivedText(node.PollReceive()), "first");
  DcNode sender;
  ASSERT_EQ(SendInvalidation(sender, place), 0);
  EXPECT_EQ(sender.PollSend().status, IBV_WC_SUCCESS);
  ibv_wc wc{};
  // Polls once and sleeps, as a program does that arms first.
  for (int sleeps = 0; ibv_poll_cq(node.receive_cq, 1, &wc) == 0; ++sleeps) {
    if (sleeps == 10) writer.LetGo();
    ASSERT_EQ(ibv_req_notify_cq(node.receive_cq, 0), 0);
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(GetCqEvent(node.channel, &cq, &cq_context), 0);
    AckCqEvents(cq, 1);
  }
  EXPECT_TRUE(pause_point.go_on.load());
  EXPECT_EQ(wc.invalidated_rkey, place.key);
}

// As many times as it asks.
TEST(WindowInvalidation, NobodyIsWokenForACompletionThatIsForgotten) {
  Owner owner(/*channel=*/true);
  DcNode& node = owner.node;
  const Place place = owner.Bind();
  {
    HeldUpWriter writer(place);
    EXPECT_EQ(node.ReceivedText(node.PollReceive()), "first");
    DcNode sender;
    ASSERT_EQ(SendInvalidation(sender, place), 0);
    EXPECT_EQ(sender.PollSend().status, IBV_WC_SUCCESS);
    ExpectNothing(node.receive_cq);
  }
  node.RenewTarget();
  ExpectNothing(node.receive_cq);
  ASSERT_EQ(ibv_req_notify_cq(node.receive_cq, 0), 0);
  pollfd bell{.fd = node.channel->fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&bell, 1, 0), 0) << "a program that sleeps spins from now on";
}

// An RC queue pair of that node.
ibv_qp* MakeRc(DcNode& node) {
  ibv_qp_init_attr init{};
  init.send_cq = node.send_cq;
  init.recv_cq = node.receive_cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {.max_send_wr = 4,
              .max_recv_wr = 4,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 16};
  return CreateQp(node.pd, &init);
}

void ConnectRc(DcNode& node, ibv_qp* qp, uint32_t peer) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  ASSERT_EQ(
      ModifyQp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.hop_limit = 64;
  ASSERT_EQ(QueryGid(node.context, 1, 0, &attr.ah_attr.grh.dgid), 0);
  ASSERT_EQ(ModifyQp(qp, &attr,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            0);
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  ASSERT_EQ(ModifyQp(qp, &attr,
                     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                         IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
            0);
}

TEST(WindowInvalidation, FlushedReceivesDoNotOvertakeIt) {
  Owner owner;
  DcNode& node = owner.node;
  DcNode sender;
  ibv_qp* const to = MakeRc(node);
  ibv_qp* const from = MakeRc(sender);
  ASSERT_TRUE(to != nullptr && from != nullptr);
  ConnectRc(node, to, from->qp_num);
  ConnectRc(sender, from, to->qp_num);
  for (uint64_t i = 1; i <= 2; ++i) {
    ibv_recv_wr receive{.wr_id = i, .next = nullptr, .sg_list = nullptr, .num_sge = 0};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(to, &receive, &bad), 0);
  }
  const Place place = owner.Bind();
  {
    HeldUpWriter writer(place);
    EXPECT_EQ(node.ReceivedText(node.PollReceive()), "first");
    ibv_send_wr invalidation{}, *bad = nullptr;
    invalidation.opcode = IBV_WR_SEND_WITH_INV;
    invalidation.send_flags = IBV_SEND_SIGNALED;
    invalidation.invalidate_rkey = place.key;
    ASSERT_EQ(ibv_post_send(from, &invalidation, &bad), 0);
    EXPECT_EQ(sender.PollSend().status, IBV_WC_SUCCESS);
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ModifyQp(to, &error, IBV_QP_STATE), 0);
    ExpectNothing(node.receive_cq);
  }
  const ibv_wc first = node.PollReceive(), second = node.PollReceive();
  EXPECT_EQ(first.wr_id, 1u);
  EXPECT_EQ(first.invalidated_rkey, place.key);
  EXPECT_EQ(second.wr_id, 2u);
  EXPECT_EQ(second.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(DestroyQp(to), 0);
  EXPECT_EQ(DestroyQp(from), 0);
}

}  // namespace
}  // namespace sluice::softdc
