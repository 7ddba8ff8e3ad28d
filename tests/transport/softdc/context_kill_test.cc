// SPDX-License-Identifier: Apache-2.0
//
// Kills whole programs at each named point that takes a context to reach (kill_points.inc), and at
// instants that a timer picks, while a second program sends and a third polls, sleeps and arms:
//
//   victim     sends, writes and reads there; registers, serves and closes things of its own; dies
//   survivor   sends to the receiver, numbered; and to the victim, where it may see it die
//   receiver   checks each message for loss, order, doubling and tearing; lives through all runs
//
// This process starts them and has no device, so that it may fork. A hang is a test timeout.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/transport/softdc/dc_child.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/shm/kill_point.h"
#include "transport/softdc/verbs_objects.h"

static_assert(SOFTDC_KILL_POINTS, "link the instrumented model");

namespace sluice::softdc {
namespace {

using shm::KillPoint;

constexpr int kKillsPerPoint = 20;
constexpr int kRandomKills = 500;
constexpr uint32_t kSurvivor = 1;  // victims are numbered from 2 on
constexpr uint32_t kReceives = 64;
constexpr uint32_t kReceiveBytes = 1024;
constexpr uint32_t kVictimRounds = 12, kVictimMessages = 25;
constexpr uint32_t kMessagesAfterADeath = 20;

// The sentence of a victim, read by its hook on any of its threads.
struct Sentence {
  int point = -1;
  int die_at_hit = 0;
  std::atomic<int> hits{0};
} sentence;

void Hook(KillPoint point) {
  if (static_cast<int>(point) == sentence.point && ++sentence.hits == sentence.die_at_hit) {
    kill(getpid(), SIGKILL);
    pause();
  }
}

// ---- Messages that show what became of them.

std::string Message(uint32_t sender, uint32_t number) {
  std::string text(40 + (sender * 7 + number * 131) % (kReceiveBytes - 40), '\0');
  const std::array<uint32_t, 2> head = {sender, number};
  std::memcpy(text.data(), head.data(), sizeof(head));
  for (size_t i = sizeof(head); i < text.size(); ++i) {
    text[i] = static_cast<char>(sender * 31 + number * 17 + i);
  }
  return text;
}

class Ledger {
 public:
  // False: lost, doubled, out of order or torn.
  bool Accept(const std::string& text) {
    std::array<uint32_t, 2> head{};
    if (text.size() < sizeof(head)) return false;
    std::memcpy(head.data(), text.data(), sizeof(head));
    return text == Message(head[0], head[1]) && head[1] == next_[head[0]]++;
  }
  uint32_t Count(uint32_t sender) { return next_[sender]; }

 private:
  std::map<uint32_t, uint32_t> next_;
};

// ---- Receiver.

struct Report {
  uint32_t from_survivor = 0;
  uint32_t limit_events = 0;
  int open_files = 0;
  bool good = true;
};

// Its memory is more than a round of forgetting waits for (kForget), so each asks all senders.
bool MakeAndDestroyAnSrq(DcNode& node) {
  ibv_srq_init_attr attr{};
  attr.attr = {.max_wr = 4096, .max_sge = 1, .srq_limit = 0};
  ibv_srq* srq = CreateSrq(node.pd, &attr);
  return srq != nullptr && DestroySrq(srq) == 0;
}

int OpenFiles() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<int>(std::distance(begin(files), end(files)));
}

// Polls, sleeps when there is nothing, arms the limit again and again. Answers each number it is sent
// with a report as soon as it has had that many messages of the survivor's; ends at the end of the
// pipe.
void Receive(int down, int up) {
  DcNode node({.receives = 0, .receive_bytes = kReceiveBytes, .cqe = 1024, .channel = true});
  const auto post = [&](uint64_t offset) {
    ibv_sge sge{.addr = reinterpret_cast<uint64_t>(node.slab) + offset,
                .length = kReceiveBytes,
                .lkey = node.mr->lkey};
    ibv_recv_wr wr{.wr_id = offset, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(node.srq, &wr, &bad) == 0;
  };
  Report report;
  for (uint32_t i = 0; i < kReceives; ++i) report.good &= post(uint64_t{i} * kReceiveBytes);
  fcntl(node.context->async_fd, F_SETFL, O_NONBLOCK);
  fcntl(node.channel->fd, F_SETFL, O_NONBLOCK);
  const DcAddress address = node.Address();
  if (write(up, &address, sizeof(address)) < 0) return;
  Ledger ledger;
  uint32_t wanted = 0;
  bool asked = false, over = false;
  while (!over) {
    ibv_wc wcs[16];
    int count = 0;
    while ((count = ibv_poll_cq(node.receive_cq, 16, wcs)) > 0) {
      for (int i = 0; i < count; ++i) {
        report.good &= wcs[i].status == IBV_WC_SUCCESS && ledger.Accept(node.ReceivedText(wcs[i]));
        report.good &= post(wcs[i].wr_id);
      }
    }
    ibv_async_event event;
    while (GetAsyncEvent(node.context, &event) == 0) {
      report.limit_events += event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED ? 1 : 0;
      AckAsyncEvent(&event);
    }
    ibv_srq_attr limit{.max_wr = 0, .max_sge = 0, .srq_limit = kReceives - 4};
    report.good &= ModifySrq(node.srq, &limit, IBV_SRQ_LIMIT) == 0;
    if (asked && ledger.Count(kSurvivor) >= wanted) {
      asked = false;
      report.from_survivor = ledger.Count(kSurvivor);
      report.open_files = OpenFiles();
      report.good &= MakeAndDestroyAnSrq(node);
      if (write(up, &report, sizeof(report)) < 0) return;
    }
    ibv_cq* cq;
    void* cq_context;
    while (GetCqEvent(node.channel, &cq, &cq_context) == 0) AckCqEvents(cq, 1);
    ibv_req_notify_cq(node.receive_cq, 0);
    if ((count = ibv_poll_cq(node.receive_cq, 1, wcs)) > 0) {
      report.good &= wcs[0].status == IBV_WC_SUCCESS && ledger.Accept(node.ReceivedText(wcs[0]));
      report.good &= post(wcs[0].wr_id);
      continue;
    }
    pollfd fds[] = {{.fd = node.channel->fd, .events = POLLIN, .revents = 0},
                    {.fd = down, .events = POLLIN, .revents = 0}};
    if (poll(fds, 2, -1) < 0) continue;
    if (fds[1].revents != 0) {
      asked = read(down, &wanted, sizeof(wanted)) == sizeof(wanted);
      over = !asked;
    }
  }
}

// ---- Survivor.

struct Order {
  bool new_victim = false;  // else: tell how many messages you have sent, after some more
  DcAddress victim;
};

struct SurvivorReport {
  uint32_t sent = 0;
  int open_files = 0;
  int mappings = 0;
};

int Mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<int>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

// Says when it has begun. Sends to the receiver without end, and to the victim while there is one; ends
// with the pipe.
void Survive(const DcAddress& receiver, int down, int up) {
  DcNode node({.timeout = 14, .retry_count = 7}), to_victim;
  const SurvivorReport ready;
  if (write(up, &ready, sizeof(ready)) < 0) return;
  fcntl(down, F_SETFL, O_NONBLOCK);
  DcAddress victim;
  uint32_t sent = 0, report_at = UINT32_MAX;
  for (;;) {
    Order order;
    const ssize_t size = read(down, &order, sizeof(order));
    if (size == 0) return;
    if (size == sizeof(order) && order.new_victim) victim = order.victim;
    if (size == sizeof(order) && !order.new_victim) report_at = sent + kMessagesAfterADeath;
    EXPECT_EQ(node.Send(receiver, Message(kSurvivor, sent++), 1), 0);
    EXPECT_EQ(node.PollSend().status, IBV_WC_SUCCESS);
    if (::testing::Test::HasFailure()) return;
    if (sent == report_at) {
      const SurvivorReport report{.sent = sent, .open_files = OpenFiles(), .mappings = Mappings()};
      if (write(up, &report, sizeof(report)) < 0) return;
    }
    if (victim.dctn == 0) continue;
    EXPECT_EQ(to_victim.Send(victim, "to the victim", 1), 0);
    const ibv_wc_status status = to_victim.PollSend().status;
    if (status == IBV_WC_SUCCESS) continue;
    EXPECT_EQ(status, IBV_WC_RETRY_EXC_ERR);
    victim = {};
    to_victim.Recover();
  }
}

// ---- Victim.

void RepostReceived(DcNode& node) {
  ibv_wc wc;
  while (ibv_poll_cq(node.receive_cq, 1, &wc) > 0) node.PostReceives(1);
}

// Receives meanwhile: the survivor may have taken all receives before a message to this node itself, which
// then waits for one without end.
ibv_wc PollSendToItself(DcNode& node) {
  ibv_wc wc;
  while (ibv_poll_cq(node.send_cq, 1, &wc) == 0) RepostReceived(node);
  return wc;
}

void LiveAndDie(const DcAddress& receiver, uint32_t name, int up) {
  uint32_t number = 0;
  for (uint32_t round = 0; round < kVictimRounds; ++round) {
    DcNode node({.receives = 32, .private_memory = round % 2 == 1, .channel = true});
    const DcAddress self = node.Address();
    if (round == 0 && write(up, &self, sizeof(self)) < 0) return;
    EXPECT_EQ(node.Send(self, "to myself", 1), 0);
    EXPECT_EQ(PollSendToItself(node).status, IBV_WC_SUCCESS);
    // A target that did not come with the answer to the hello, so it is asked for.
    ibv_qp* late = node.MakeDct(node.receive_cq, node.srq, self.dc_key);
    DcAddress to_late = self;
    to_late.dctn = late->qp_num;
    EXPECT_EQ(node.Send(to_late, "to myself once more", 1), 0);
    EXPECT_EQ(PollSendToItself(node).status, IBV_WC_SUCCESS);
    EXPECT_EQ(DestroyQp(late), 0);
    for (uint32_t i = 0; i < kVictimMessages; ++i) {
      EXPECT_EQ(node.Send(receiver, Message(name, number++), 1), 0);
      EXPECT_EQ(node.PollSend().status, IBV_WC_SUCCESS);
      const size_t place = DcNode::kSendAreaOffset + 4096 * (name % 100);
      EXPECT_EQ(node.Write(receiver, place, std::string(700, 'w'), 1), 0);
      EXPECT_EQ(node.PollSend().status, IBV_WC_SUCCESS);
      EXPECT_EQ(node.Read(receiver, place, 600, DcNode::kSendAreaOffset, 1), 0);
      EXPECT_EQ(node.PollSend().status, IBV_WC_SUCCESS);
      if (i % 5 == 0) {
        std::vector<char> own(4 * 4096);
        ibv_mr* mr = RegMr(node.pd, own.data(), own.size(), IBV_ACCESS_LOCAL_WRITE);
        EXPECT_TRUE(mr != nullptr && DeregMr(mr) == 0);
        EXPECT_TRUE(MakeAndDestroyAnSrq(node));
      }
      RepostReceived(node);
      ibv_req_notify_cq(node.receive_cq, 0);
    }
  }
}

struct Outcome {
  bool killed = false;
  bool clean = false;
};

class ContextKillTest : public ::testing::Test {
 protected:
  // The survivor has its numbers before there is a victim: it must not get those of a dead one, which
  // it may still be asked to send to.
  void SetUp() override { EXPECT_EQ(survivor_.Get<SurvivorReport>().sent, 0u); }

  // A victim that dies by `sentence`, or after timer_us microseconds; then the others must go on.
  Outcome KillOnce(int point, int die_at_hit, int timer_us) {
    const uint32_t name = next_victim_++;
    Child victim([&](int, int up) {
      sentence.point = point;
      sentence.die_at_hit = die_at_hit;
      shm::kill_point_hook = Hook;
      if (timer_us != 0) {
        const itimerval timer{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = timer_us}};
        setitimer(ITIMER_REAL, &timer, nullptr);  // SIGALRM ends the process wherever it is
      }
      LiveAndDie(address_, name, up);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    });
    Order order{.new_victim = true, .victim = {}};
    if (read(victim.from_child, &order.victim, sizeof(order.victim)) == sizeof(order.victim)) {
      survivor_.Put(order);
    }
    int status = 0;
    EXPECT_EQ(waitpid(victim.pid, &status, 0), victim.pid);
    victim.pid = -1;
    survivor_.Put(Order{});
    survivor_report_ = survivor_.Get<SurvivorReport>();
    const uint32_t sent = survivor_report_.sent;
    receiver_.Put(sent);
    report_ = receiver_.Get<Report>();
    EXPECT_TRUE(report_.good) << "lost, doubled, out of order or torn";
    EXPECT_GE(report_.from_survivor, sent);
    return {.killed = WIFSIGNALED(status) != 0,
            .clean = WIFSIGNALED(status) != 0 || WEXITSTATUS(status) == 0};
  }
  void TearDown() override {
    // Both come to an end by themselves, with everything closed.
    for (Child* child : {&survivor_, &receiver_}) {
      close(std::exchange(child->to_child, -1));
      int status = 0;
      EXPECT_EQ(waitpid(child->pid, &status, 0), child->pid);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
      child->pid = -1;
    }
    for (const auto& file : std::filesystem::directory_iterator("/dev/shm")) {
      EXPECT_EQ(file.path().filename().string().find("softdc"), std::string::npos) << file.path();
    }
  }

  Child receiver_{[](int down, int up) {
    Receive(down, up);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }};
  DcAddress address_ = receiver_.Get<DcAddress>();
  Child survivor_{[this](int down, int up) {
    close(receiver_.to_child);  // its end must be this process's alone
    Survive(address_, down, up);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }};
  uint32_t next_victim_ = kSurvivor + 1;
  Report report_;
  SurvivorReport survivor_report_;
};

// How often a victim comes by in its life, at least.
int HitsToChooseFrom(KillPoint point) {
  switch (point) {
    case KillPoint::kJournalMade:
    case KillPoint::kHelloAnswered:
    case KillPoint::kRingMade:
    case KillPoint::kLimitTaken:
    case KillPoint::kFirmwareRung:
    case KillPoint::kArmedTaken:
    case KillPoint::kBellRung:
      return 1;
    case KillPoint::kHelloSent:
    case KillPoint::kLinkMade:
    case KillPoint::kTargetAsked:
    case KillPoint::kBlockTaken:
    case KillPoint::kTargetHalfWritten:
    case KillPoint::kTargetPublished:
    case KillPoint::kTargetGone:
    case KillPoint::kForgetAsked:
    case KillPoint::kTargetsForgotten:
      return 6;
    default:
      return 20;
  }
}

TEST_F(ContextKillTest, DeathAtEveryNamedPointCostsNobodyElseAnything) {
  // Those of the rings have a test of their own (rings_kill_test); some of them once more, in place.
  std::vector<KillPoint> points = {
      KillPoint::kWqeClaimed,   KillPoint::kPayloadHalfCopied, KillPoint::kPayloadCopied,
      KillPoint::kCqeUnstamped, KillPoint::kCqePublished,      KillPoint::kArmedTaken,
      KillPoint::kBellRung,     KillPoint::kSlotWritten,       KillPoint::kCqeConsumed};
  // Those of memory windows have one too (window_kill_test).
  for (int i = static_cast<int>(shm::kFirstContextPoint);
       i < static_cast<int>(shm::kFirstWindowPoint); ++i) {
    points.push_back(static_cast<KillPoint>(i));
  }
  std::minstd_rand random(20);
  std::printf("%-20s %6s %6s\n", "killed at", "kills", "missed");
  int files = 0;
  SurvivorReport survivor;
  for (const KillPoint point : points) {
    const char* name = shm::kKillPointNames[static_cast<int>(point)];
    int kills = 0, misses = 0;
    while (kills < kKillsPerPoint && misses < kKillsPerPoint) {
      const int hit = 1 + static_cast<int>(random()) % HitsToChooseFrom(point);
      const Outcome outcome = KillOnce(static_cast<int>(point), hit, 0);
      (outcome.killed ? kills : misses) += 1;
      EXPECT_TRUE(outcome.clean) << "the victim saw something wrong before it died";
      ASSERT_FALSE(HasFailure()) << name << " hit " << hit;
    }
    std::printf("%-20s %6d %6d\n", name, kills, misses);
    EXPECT_GE(kills, kKillsPerPoint) << name << " was hardly ever reached";
    if (files == 0) {
      files = report_.open_files;
      survivor = survivor_report_;
    }
  }
  std::printf("limit events seen: %u; open files of the receiver: %d, %d\n", report_.limit_events,
              files, report_.open_files);
  EXPECT_GT(report_.limit_events, 0u);
  EXPECT_LE(report_.open_files, files + 4) << "each death leaves something behind";
  // The survivor has sent to nearly all of the dead.
  EXPECT_LE(survivor_report_.open_files, survivor.open_files + 6);
  EXPECT_LE(survivor_report_.mappings, survivor.mappings + 24);
}

TEST_F(ContextKillTest, DeathAtAnyInstantCostsNobodyElseAnything) {
  constexpr int kLongestUs = 60'000;
  std::minstd_rand random(21);
  int kills = 0;
  for (int i = 0; i < 2 * kRandomKills && kills < kRandomKills; ++i) {
    const int timer_us = 1 + static_cast<int>(random()) % kLongestUs;
    const Outcome outcome = KillOnce(-1, 0, timer_us);
    kills += outcome.killed ? 1 : 0;
    EXPECT_TRUE(outcome.clean) << "the victim saw something wrong before it died";
    ASSERT_FALSE(HasFailure()) << "after " << timer_us << " us, kill " << kills;
  }
  std::printf("random kills: %d\n", kills);
  EXPECT_EQ(kills, kRandomKills);
}

}  // namespace
}  // namespace sluice::softdc
