// SPDX-License-Identifier: Apache-2.0
//
// Strangers on the control socket: garbage, wrong versions, and those who never read their answers.
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/loop/loop.h"
#include "transport/softdc/loop/messages.h"
#include "transport/softdc/loop/names.h"
#include "transport/softdc/shm/control.h"
#include "transport/softdc/shm/layout.h"
#include "transport/softdc/shm/number_space.h"

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

}  // namespace control_abuse_test
}  // namespace sluice::softdc
