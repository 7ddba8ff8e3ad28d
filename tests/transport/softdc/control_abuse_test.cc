// SPDX-License-Identifier: Apache-2.0
//
// Strangers on the control socket: garbage, wrong versions, and those who never read their answers.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/loop/loop.h"
#include "transport/softdc/loop/messages.h"
#include "transport/softdc/loop/names.h"
#include "transport/softdc/shm/arena.h"
#include "transport/softdc/shm/armed_word.h"
#include "transport/softdc/shm/claim_journal.h"
#include "transport/softdc/shm/control.h"
#include "transport/softdc/shm/cqe_ring.h"
#include "transport/softdc/shm/layout.h"
#include "transport/softdc/shm/number_space.h"
#include "transport/softdc/shm/outbound_link.h"
#include "transport/softdc/shm/srq_owner.h"

namespace sluice::softdc {
namespace control_abuse_test {

UniqueFd ConnectTo(const DcNode& node) {
  UniqueFd fd = ConnectAbstract(BlockSocketName(node.dct->qp_num / kNumbersPerBlock));
  EXPECT_TRUE(fd);
  return fd;
}

void Send(const UniqueFd& fd, const void* bytes, size_t size_bytes) {
  SendWithFds(fd.get(), {static_cast<const std::byte*>(bytes), size_bytes});
}

// The firmware thread has dealt with everything that was sent before.
void Settle() {
  for (int i = 0; i < 3; ++i) Loop::Get().RunAndWait([] {});
}

void ExpectStillServes(DcNode& node) {
  DcNode other;
  ASSERT_EQ(other.Send(node.Address(), "still here", 1), 0);
  EXPECT_EQ(other.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(node.ReceivedText(node.PollReceive()), "still here");
}

TEST(ControlAbuse, RandomBytesGetNoAnswerAndHarmNobody) {
  DcNode node;
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const UniqueFd fd = ConnectTo(node);
    std::vector<unsigned char> bytes(1 + random() % 200);
    for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
    Send(fd, bytes.data(), bytes.size());
  }
  ExpectStillServes(node);
}

TEST(ControlAbuse, RandomFieldsInValidMessagesHarmNobody) {
  DcNode node;
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    const UniqueFd fd = ConnectTo(node);
    shm::ControlMessage hello;
    hello.layout_version = shm::kLayoutVersion;
    Send(fd, &hello, sizeof(hello));
    for (int i = 0; i < 5; ++i) {
      shm::ControlMessage message;
      message.layout_version = shm::kLayoutVersion;
      message.kind = static_cast<shm::ControlKind>(random() % 5);
      message.number = static_cast<uint32_t>(random());
      message.object_offset = random();
      message.size_bytes = random();
      Send(fd, &message, sizeof(message));
    }
  }
  ExpectStillServes(node);
}

TEST(ControlAbuse, OtherLayoutVersionIsRefusedWithOurs) {
  DcNode node;
  const UniqueFd fd = ConnectTo(node);
  shm::ControlMessage hello;
  hello.layout_version = shm::kLayoutVersion + 1;
  Send(fd, &hello, sizeof(hello));
  Settle();
  shm::ControlMessage answer;
  std::vector<UniqueFd> fds;
  ASSERT_EQ(RecvWithFds(fd.get(), std::as_writable_bytes(std::span(&answer, 1)), &fds),
            static_cast<ssize_t>(sizeof(answer)));
  EXPECT_EQ(answer.error, EPROTONOSUPPORT);
  EXPECT_EQ(answer.layout_version, shm::kLayoutVersion);
  EXPECT_TRUE(fds.empty()) << "nothing of ours goes there";
  // And nothing else it says is answered.
  shm::ControlMessage question;
  question.layout_version = shm::kLayoutVersion;
  question.kind = shm::ControlKind::kHello;
  Send(fd, &question, sizeof(question));
  Settle();
  char byte;
  EXPECT_EQ(recv(fd.get(), &byte, 1, 0), -1);
  ExpectStillServes(node);
}

TEST(ControlAbuse, OwnerWithAnotherLayoutIsReportedAndLooksDead) {
  constexpr uint32_t kBlock = 60'000;
  UniqueFd listening = ListenAbstract(BlockSocketName(kBlock), 4);
  ASSERT_TRUE(listening);
  DcNode node;
  testing::internal::CaptureStderr();
  DcAddress target = node.Address();
  target.dctn = kBlock * kNumbersPerBlock;
  ASSERT_EQ(node.Send(target, "hello?", 1), 0);
  pollfd polled{.fd = listening.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&polled, 1, -1), 1);
  const UniqueFd accepted = AcceptSameUser(listening.get());
  ASSERT_TRUE(accepted);
  listening.Reset();  // it is not asked a second time
  shm::ControlMessage answer;
  answer.layout_version = shm::kLayoutVersion + 1;
  answer.error = EPROTONOSUPPORT;
  Send(accepted, &answer, sizeof(answer));
  EXPECT_EQ(node.PollSend().status, IBV_WC_RETRY_EXC_ERR);
  const std::string reason = testing::internal::GetCapturedStderr();
  EXPECT_NE(reason.find("shared-memory layout " + std::to_string(shm::kLayoutVersion + 1)),
            std::string::npos)
      << reason;
  EXPECT_NE(reason.find("SOFTDC_DOMAIN"), std::string::npos);
}

TEST(ControlAbuse, QuestionsBeforeTheHelloAreNotAnswered) {
  DcNode node;
  const UniqueFd fd = ConnectTo(node);
  shm::ControlMessage question;
  question.layout_version = shm::kLayoutVersion;
  question.kind = shm::ControlKind::kSegment;
  question.number = 1;
  Send(fd, &question, sizeof(question));
  Settle();
  char byte;
  EXPECT_EQ(recv(fd.get(), &byte, 1, 0), -1);
}

TEST(ControlAbuse, SenderThatNeverReadsItsAnswersDoesNotHoldUpTheThread) {
  DcNode node;
  const UniqueFd fd = ConnectTo(node);
  shm::ControlMessage message;
  message.layout_version = shm::kLayoutVersion;
  Send(fd, &message, sizeof(message));
  message.kind = shm::ControlKind::kResolve;
  for (int i = 0; i < 5000; ++i) {
    message.number = node.dct->qp_num;
    Send(fd, &message, sizeof(message));
  }
  ExpectStillServes(node);
}

// ---- The answer to a hello, and what it carries.

using shm::ControlKind;
using shm::ControlMessage;
using Packet = std::array<ControlMessage, shm::kMaxPacketMessages>;

void WaitUntilReadable(const UniqueFd& fd) {
  pollfd polled{.fd = fd.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&polled, 1, -1), 1);
}

int OpenFiles() {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                        std::filesystem::directory_iterator()));
}

UniqueFd Memfd(int seals) {
  UniqueFd fd(memfd_create("control_abuse_test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), 4096), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

// Owns a block of numbers, and answers the hello that names one of them as a test wants.
struct FakeOwner {
  static constexpr uint32_t kCapacity = 16;

  FakeOwner() {
    while (!(listening = ListenAbstract(BlockSocketName(block), 4)))
      ++block;  // others may have a block
    hello.layout_version = shm::kLayoutVersion;
    hello.context_id = 1;
    hello.link_id = 1;
    hello.size_bytes = shm::kArenaBytes;
    hello.object_offset = arena->Allocate(shm::ClaimJournal::Bytes());
    shm::ClaimJournal::Create(arena->At(hello.object_offset), shm::ClaimJournal::Bytes());
  }
  static ControlMessage Segment(uint32_t id) {
    ControlMessage answer;
    answer.layout_version = shm::kLayoutVersion;
    answer.kind = ControlKind::kSegment;
    answer.number = id;
    answer.size_bytes = 4096;
    return answer;
  }
  // The answer for a complete target with DC key 0 and no receives.
  ControlMessage Target(uint32_t number) {
    const size_t srq_bytes = shm::SrqOwner::Bytes(kCapacity, 1);
    const size_t ring_bytes = shm::CqeConsumer::Bytes(kCapacity);
    const uint64_t srq = arena->Allocate(srq_bytes), ring = arena->Allocate(ring_bytes);
    const uint64_t armed = arena->Allocate(shm::ArmedWord::Bytes());
    EXPECT_TRUE(shm::SrqOwner::Create(arena->At(srq), srq_bytes, 1, kCapacity, 1));
    EXPECT_TRUE(shm::CqeConsumer::Create(arena->At(ring), ring_bytes, kCapacity));
    EXPECT_TRUE(shm::ArmedWord::Create(arena->At(armed), shm::ArmedWord::Bytes()));
    ControlMessage answer;
    answer.layout_version = shm::kLayoutVersion;
    answer.kind = ControlKind::kResolve;
    answer.number = number;
    answer.cq_id = 1;
    answer.object_offset = arena->Allocate(sizeof(shm::TargetDescriptor));
    answer.ring_offset = ring;
    answer.ring_capacity = kCapacity;
    answer.size_bytes = ring_bytes;
    auto* descriptor = new (arena->At(answer.object_offset)) shm::TargetDescriptor{};
    descriptor->qp_num = number;
    descriptor->type = static_cast<uint32_t>(shm::TargetType::kDct);
    descriptor->srq_id = descriptor->cq_id = 1;
    descriptor->srq_offset = srq;
    descriptor->armed_offset = armed;
    descriptor->state.store(static_cast<uint32_t>(shm::TargetState::kReadyToReceive));
    return answer;
  }
  // Has `node` connect, to send to Number(). No other connection is accepted.
  void Await(DcNode& node) {
    DcAddress to = node.Address();
    to.dctn = Number();
    ASSERT_EQ(node.Send(to, "hello?", 1), 0);
    WaitUntilReadable(listening);
    accepted = AcceptSameUser(listening.get());
    ASSERT_TRUE(accepted);
    listening.Reset();
    WaitUntilReadable(accepted);
    ControlMessage request;
    ASSERT_EQ(RecvWithFds(accepted.get(), std::as_writable_bytes(std::span(&request, 1))),
              static_cast<ssize_t>(sizeof(request)));
    EXPECT_EQ(request.kind, ControlKind::kHello);
    EXPECT_EQ(request.number, Number());
  }
  void Answer(const std::vector<ControlMessage>& carried, const std::vector<int>& more_fds) {
    std::vector<ControlMessage> packet = {hello};
    packet.insert(packet.end(), carried.begin(), carried.end());
    std::vector<int> fds = {arena->fd(), bell.get()};
    fds.insert(fds.end(), more_fds.begin(), more_fds.end());
    ASSERT_EQ(SendWithFds(accepted.get(), std::as_bytes(std::span(packet)), fds), 0);
  }

  uint32_t Number() const { return block * kNumbersPerBlock + 5; }

  uint32_t block = 60'001;
  UniqueFd listening;
  UniqueFd accepted;
  UniqueFd bell{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::unique_ptr<shm::Arena> arena = shm::Arena::Create(1);
  ControlMessage hello;
};

void SendToItself(DcNode& node) {
  ASSERT_EQ(node.Send(node.Address(), "myself", 1), 0);
  ASSERT_EQ(node.PollSend().status, IBV_WC_SUCCESS);
  ASSERT_EQ(node.ReceivedText(node.PollReceive()), "myself");
  Settle();
}

TEST(ControlAbuse, HelloIsAnsweredPlainlyUnlessItNamesANumber) {
  DcNode node;
  for (const uint32_t number : {0u, node.dct->qp_num + 100, UINT32_MAX, node.dct->qp_num}) {
    const UniqueFd fd = ConnectTo(node);
    ControlMessage hello;
    hello.layout_version = shm::kLayoutVersion;
    hello.number = number;
    Send(fd, &hello, sizeof(hello));
    WaitUntilReadable(fd);
    Packet packet;
    std::vector<UniqueFd> fds;
    const ssize_t size = RecvWithFds(fd.get(), std::as_writable_bytes(std::span(packet)), &fds);
    EXPECT_EQ(packet[0].error, 0);
    if (number == node.dct->qp_num) {
      EXPECT_EQ(size, static_cast<ssize_t>(3 * sizeof(ControlMessage)));
      EXPECT_EQ(packet[1].kind, ControlKind::kSegment);
      EXPECT_EQ(packet[2].kind, ControlKind::kResolve);
      EXPECT_EQ(packet[2].number, number);
      EXPECT_EQ(fds.size(), 3u);
    } else {
      EXPECT_EQ(size, static_cast<ssize_t>(sizeof(ControlMessage))) << number;
      EXPECT_EQ(fds.size(), 2u) << number;
    }
    Settle();
    char byte;
    EXPECT_EQ(recv(fd.get(), &byte, 1, 0), -1) << "nothing follows";
  }
  ExpectStillServes(node);
}

TEST(ControlAbuse, CarriedAnswersAreTakenForTheirBlockOnly) {
  DcNode node, other;
  FakeOwner fake;
  fake.Await(node);
  fake.Answer({fake.Target(other.dct->qp_num), fake.Target(fake.Number())}, {});
  EXPECT_NE(node.PollSend().status, IBV_WC_SUCCESS) << "the DC key is wrong";
  char byte;
  EXPECT_EQ(recv(fake.accepted.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, EAGAIN) << "there was nothing left to ask";
  node.Recover();
  ASSERT_EQ(node.Send(other.Address(), "to the owner", 2), 0);
  EXPECT_EQ(node.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(other.ReceivedText(other.PollReceive()), "to the owner");
}

TEST(ControlAbuse, WrongCarriedAnswersAreIgnoredAndLeaveNoDescriptor) {
  DcNode node;
  SendToItself(node);
  const int files = OpenFiles();
  {
    FakeOwner fake;
    fake.Await(node);
    const UniqueFd good = Memfd(F_SEAL_SHRINK), may_shrink = Memfd(0);
    ControlMessage too_long = FakeOwner::Segment(3);
    too_long.size_bytes = 8192;
    ControlMessage outside = fake.Target(fake.Number());
    outside.object_offset = shm::kArenaBytes;
    fake.Answer({FakeOwner::Segment(1), FakeOwner::Segment(1), FakeOwner::Segment(2), too_long,
                 FakeOwner::Segment(0), FakeOwner::Segment(shm::kMaxPeerSegments),
                 FakeOwner::Segment(UINT32_MAX), outside, outside},
                {good.get(), good.get(), may_shrink.get(), good.get(), good.get(), good.get(),
                 good.get(), fake.bell.get()});
    fake.accepted.Reset();
    EXPECT_EQ(node.PollSend().status, IBV_WC_RETRY_EXC_ERR);
  }
  while (OpenFiles() != files) std::this_thread::yield();
  node.Recover();
  SendToItself(node);
}

TEST(ControlAbuse, CarriedAnswersThatDoNotFitTheirDescriptorsEndTheConnection) {
  DcNode node;
  SendToItself(node);
  const int files = OpenFiles();
  const UniqueFd segment = Memfd(F_SEAL_SHRINK);
  const int fd = segment.get();
  const std::vector<ControlMessage> none, one = {FakeOwner::Segment(1)},
                                          too_many(shm::kMaxPacketMessages, one[0]);
  ControlMessage target;
  target.layout_version = shm::kLayoutVersion;
  target.kind = ControlKind::kResolve;
  target.number = node.dct->qp_num;
  ControlMessage older = one[0], hello = one[0];
  older.layout_version = shm::kLayoutVersion - 1;
  hello.kind = ControlKind::kHello;
  const struct {
    std::vector<ControlMessage> carried;
    std::vector<int> fds;
  } wrong[] = {{none, {fd}},     {one, {}},       {one, {fd, fd}}, {{target}, {fd, fd}},
               {too_many, {fd}}, {{older}, {fd}}, {{hello}, {fd}}};
  for (const auto& [carried, fds] : wrong) {
    FakeOwner fake;
    fake.Await(node);
    fake.Answer(carried, fds);
    WaitUntilReadable(fake.accepted);
    char byte;
    EXPECT_EQ(recv(fake.accepted.get(), &byte, 1, 0), 0) << "the connection is still open";
    EXPECT_EQ(node.PollSend().status, IBV_WC_RETRY_EXC_ERR);
    node.Recover();
  }
  while (OpenFiles() != files + 1) std::this_thread::yield();
  SendToItself(node);
}

TEST(ControlAbuse, OnlyTheAnswerToAHelloCarriesOthers) {
  DcNode node;
  FakeOwner fake;
  fake.Await(node);
  const std::array<ControlMessage, 2> packet = {FakeOwner::Segment(1), FakeOwner::Segment(2)};
  Send(fake.accepted, packet.data(), sizeof(packet));
  WaitUntilReadable(fake.accepted);
  char byte;
  EXPECT_EQ(recv(fake.accepted.get(), &byte, 1, 0), 0);
  EXPECT_EQ(node.PollSend().status, IBV_WC_RETRY_EXC_ERR);
}

// As an owner does that has too little room, or is older.
TEST(ControlAbuse, SenderAsksForWhatTheAnswerToItsHelloLacks) {
  DcNode node;
  FakeOwner fake;
  fake.Await(node);
  fake.arena->header().segment_count.store(2);
  const UniqueFd segment = Memfd(F_SEAL_SHRINK);
  fake.Answer({FakeOwner::Segment(1)}, {segment.get()});
  for (const auto& [kind, number] :
       {std::pair(ControlKind::kSegment, 2u), std::pair(ControlKind::kResolve, fake.Number())}) {
    WaitUntilReadable(fake.accepted);
    ControlMessage request;
    RecvWithFds(fake.accepted.get(), std::as_writable_bytes(std::span(&request, 1)));
    EXPECT_EQ(request.kind, kind);
    EXPECT_EQ(request.number, number);
  }
  fake.accepted.Reset();
  EXPECT_EQ(node.PollSend().status, IBV_WC_RETRY_EXC_ERR);
}

}  // namespace control_abuse_test
}  // namespace sluice::softdc
