// SPDX-License-Identifier: Apache-2.0
//
// What a user's test of a service looks like: the log of examples/log_tail, without a device.
#include "middleware/api/in_process.h"

#include <gtest/gtest.h>

#include <memory>

#include "examples/log_tail/log_service.h"

namespace sluice {
namespace in_process_test {

using namespace examples::log_tail;

TEST(InProcessTest, ServiceIsTestedWithoutADevice) {
  LogService log;
  auto world = InProcess::Start({&log});
  ASSERT_TRUE(world.ok()) << world.status();
  auto channel = (*world)->NewChannel();
  ASSERT_TRUE(channel.ok()) << channel.status();
  const LogClient client(*channel);
  CallContext context(absl::Seconds(60));
  AppendReply reply;
  auto writer = client.Append(context, &reply);
  Line line;
  line.set_text("hello");
  EXPECT_TRUE(writer.Write(line));
  writer.WritesDone();
  EXPECT_TRUE(writer.Finish().ok());
  EXPECT_EQ(reply.lines(), 1u);

  TailRequest request;
  request.set_last(1);
  auto reader = client.Tail(context, request);
  ASSERT_TRUE(reader.Read(&line));
  EXPECT_EQ(line.text(), "hello");
  (*world)->KillServer();
  EXPECT_FALSE(reader.Read(&line));
  EXPECT_EQ(reader.Finish().code(), absl::StatusCode::kUnavailable);
}

TEST(InProcessTest, SeveralChannelsReachTheSameServer) {
  LogService log;
  auto world = InProcess::Start({&log});
  ASSERT_TRUE(world.ok()) << world.status();
  for (int i = 1; i <= 3; ++i) {
    auto channel = (*world)->NewChannel();
    ASSERT_TRUE(channel.ok()) << channel.status();
    CallContext context(absl::Seconds(60));
    AppendReply reply;
    auto writer = LogClient(*channel).Append(context, &reply);
    EXPECT_TRUE(writer.Write(Line()));
    writer.WritesDone();
    EXPECT_TRUE(writer.Finish().ok());
  }
  EXPECT_TRUE((*world)->server().Shutdown(absl::Seconds(1)).ok());
  EXPECT_EQ((*world)->server().counters().requests, 3u);
}

TEST(InProcessTest, WrongOptionsAndServicesAreErrors) {
  LogService log;
  ServerOptions wrong;
  wrong.limits.credits_per_peer = 0;
  EXPECT_EQ(InProcess::Start({&log}, wrong).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(InProcess::Start({&log, &log}).status().code(), absl::StatusCode::kAlreadyExists);
}

}  // namespace in_process_test
}  // namespace sluice
