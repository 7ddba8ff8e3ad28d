// SPDX-License-Identifier: Apache-2.0
//
// Calls that stream, with generated code: order, ends, windows, cancellation, in all client styles.
#include "middleware/api/stream.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/middleware/api/chat_service.h"
#include "transport/base/error.h"

namespace sluice {
namespace stream_test {

using testing_support::ChatClient;
using testing_support::ChatWorld;
using testing_support::Line;

using StreamTest = ChatWorld;

TEST_F(StreamTest, ServersMessagesComeInOrderAndEnd) {
  CallContext context(absl::Seconds(60));
  auto lines = client().Tail(context, Text("x", 1000));
  Line line;
  for (int64_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(lines.Read(&line)) << i;
    ASSERT_EQ(line.number(), i);
  }
  EXPECT_FALSE(lines.Read(&line));
  EXPECT_FALSE(lines.Read(&line)) << "and stays at its end";
  EXPECT_TRUE(lines.Finish().ok());
}

TEST_F(StreamTest, ErrorComesAfterWhatWasSentBefore) {
  CallContext context(absl::Seconds(60));
  auto lines = client().Tail(context, Text("fail", 5));
  Line line;
  int count = 0;
  while (lines.Read(&line)) ++count;
  EXPECT_EQ(count, 5);
  EXPECT_EQ(lines.Finish().code(), absl::StatusCode::kDataLoss);
}

TEST_F(StreamTest, ClientsMessagesAreSummed) {
  CallContext context(absl::Seconds(60));
  Line reply;
  auto numbers = client().Sum(context, &reply);
  for (int64_t i = 1; i <= 1000; ++i) ASSERT_TRUE(numbers.Write(Text("", i))) << i;
  numbers.WritesDone();
  ASSERT_TRUE(numbers.Finish().ok());
  EXPECT_EQ(reply.number(), 500500);
}

TEST_F(StreamTest, ServerThatHasEnoughEndsTheClientsStream) {
  CallContext context(absl::Seconds(60));
  Line reply;
  auto numbers = client().Sum(context, &reply);
  ASSERT_TRUE(numbers.Write(Text("enough")));
  while (numbers.Write(Text("", 1))) {
  }
  EXPECT_EQ(numbers.Finish().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(StreamTest, BothTalk) {
  CallContext context(absl::Seconds(60));
  auto talk = client().Talk(context);
  Line line;
  for (int64_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(talk.Write(Text("a", i)));
    ASSERT_TRUE(talk.Read(&line));
    ASSERT_EQ(line.number(), i);
  }
  talk.WritesDone();
  EXPECT_FALSE(talk.Read(&line));
  EXPECT_TRUE(talk.Finish().ok());
}

TEST_F(StreamTest, StreamsWithOneCreditGoOn) {
  credits_ = 2;
  Start(&chat_);
  CallContext context(absl::Seconds(60));
  auto talk = client().Talk(context);
  std::thread writer([&] {
    for (int64_t i = 0; i < 300; ++i) ASSERT_TRUE(talk.Write(Text("a", i)));
    talk.WritesDone();
  });
  Line line;
  int64_t count = 0;
  while (talk.Read(&line)) ASSERT_EQ(line.number(), count++);
  writer.join();
  EXPECT_EQ(count, 300);
  EXPECT_TRUE(talk.Finish().ok());
}

TEST_F(StreamTest, ReaderThatDoesNotReadStopsItsWriterAndNobodyElse) {
  CallContext context(absl::Seconds(600));
  auto lines = client().Tail(context, Text("x", -1));
  Line line;
  ASSERT_TRUE(lines.Read(&line));
  CallContext other(absl::Seconds(30));
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(client().Say(other, Text("hello")).ok());
  // One read, one window and what was said of it: no more can have been written.
  EXPECT_LE(chat_.written.load(), 2 * call::StreamEnd::kWindow);
  lines.Cancel();
  EXPECT_EQ(lines.Finish().code(), absl::StatusCode::kCancelled);
  chat_.stopped.Wait();
}

TEST_F(StreamTest, ClientThatWritesAllBeforeItReadsIsToldWhatIsUnread) {
  CallContext context(absl::Seconds(2));
  auto talk = client().Talk(context);
  int64_t written = 0;
  while (talk.Write(Text("a", written))) ++written;
  EXPECT_GE(written, 2 * call::StreamEnd::kWindow);
  const absl::Status status = talk.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_NE(status.message().find("16 messages of the stream are unread here"),
            absl::string_view::npos)
      << status;
}

TEST_F(StreamTest, DestroyedStreamIsCancelled) {
  CallContext context(absl::Seconds(600));
  {
    auto lines = client().Tail(context, Text("x", -1));
    Line line;
    ASSERT_TRUE(lines.Read(&line));
  }
  chat_.stopped.Wait();
}

// As a handler that has nothing else to do would write it; the local variable is for GCC 12 (docs/threads.md).
class Endless final : public testing_support::ChatCoServiceBase {
 public:
  Task<absl::Status> Tail(ServerContext&, const Line& request, ServerWriter<Line> writer) override {
    bool more = true;
    while (more) more = co_await writer.Write(request);
    ended.Open();
    co_return absl::CancelledError("nobody reads");
  }
  testing_support::Gate ended;
};

TEST_F(StreamTest, HandlerThatOnlyWritesEndsWithItsReader) {
  Endless endless;
  Start(&endless);
  CallContext context(absl::Seconds(600));
  {
    auto lines = client().Tail(context, Text("x"));
    Line line;
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(lines.Read(&line));
  }
  endless.ended.Wait();
  TearDown();
}

TEST_F(StreamTest, DeadlineEndsAStream) {
  CallContext context(absl::Milliseconds(50));
  Line reply;
  auto numbers = client().Sum(context, &reply);
  EXPECT_EQ(numbers.Finish().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(numbers.Write(Text("", 1)));
  chat_.stopped.Wait();
}

TEST_F(StreamTest, DeathOfTheServerEndsAStream) {
  CallContext context(absl::Seconds(600));
  auto talk = client().Talk(context);
  Line line;
  ASSERT_TRUE(talk.Write(Text("a")));
  ASSERT_TRUE(talk.Read(&line));
  server_end_->Kill();
  EXPECT_FALSE(talk.Read(&line));
  EXPECT_EQ(talk.Finish().code(), absl::StatusCode::kUnavailable);
}

TEST_F(StreamTest, LargeMessagesKeepTheirOrder) {
  CallContext context(absl::Seconds(60));
  Line reply;
  auto numbers = client().Sum(context, &reply);
  for (int64_t i = 1; i <= 40; ++i) {
    ASSERT_TRUE(numbers.Write(Text(std::string(i % 3 == 0 ? 200'000 : 10, 'x'), i))) << i;
  }
  numbers.WritesDone();
  ASSERT_TRUE(numbers.Finish().ok());
  EXPECT_EQ(reply.number(), 820);
}

TEST_F(StreamTest, MessageOverTheLimitIsTheWritersError) {
  server_options_.limits.max_large_message_bytes = 50'000;
  Start(&chat_);
  CallContext context(absl::Seconds(60));
  Line reply;
  auto numbers = client().Sum(context, &reply);
  EXPECT_FALSE(numbers.Write(Text(std::string(100'000, 'x'))));
  numbers.WritesDone();
  const absl::Status too_large = numbers.Finish();
  EXPECT_EQ(too_large.code(), absl::StatusCode::kResourceExhausted) << "as a request's";
  EXPECT_NE(too_large.message().find("too large"), absl::string_view::npos) << too_large;

  auto lines = client().Tail(context, Text("large", 1));
  Line line;
  EXPECT_FALSE(lines.Read(&line));
  const absl::Status of_the_server = lines.Finish();
  ASSERT_EQ(of_the_server.code(), absl::StatusCode::kResourceExhausted) << "as a reply's";
  EXPECT_EQ(base::DetailOf(of_the_server)->peer(), kAddress) << "how the client calls the server";
  EXPECT_NE(of_the_server.message().find("too large (peer "), absl::string_view::npos)
      << of_the_server;
}

TEST_F(StreamTest, TwoThreadsWaitForEachOther) {
  // The reader waits for what the writer, on another thread and behind the same lease, sends.
  CallContext context(absl::Seconds(60));
  auto talk = client().Talk(context);
  std::optional<std::thread> late;
  Line line;
  late.emplace([&] { ASSERT_TRUE(talk.Write(Text("a", 7))); });
  ASSERT_TRUE(talk.Read(&line));
  EXPECT_EQ(line.number(), 7);
  late->join();
  talk.WritesDone();
  EXPECT_TRUE(talk.Finish().ok());
}

TEST_F(StreamTest, CoroutineReadsAndWrites) {
  const auto talk = [](ChatClient client) -> Task<absl::Status> {
    CallContext context(absl::Seconds(60));
    auto stream = client.Talk(context);
    Line line;
    for (int64_t i = 0; i < 100; ++i) {
      line.set_number(i);
      const bool written = co_await stream.CoWrite(line);
      EXPECT_TRUE(written);
      const bool read = co_await stream.CoRead(&line);
      EXPECT_TRUE(read);
      EXPECT_EQ(line.number(), i);
    }
    stream.WritesDone();
    const bool more = co_await stream.CoRead(&line);
    EXPECT_FALSE(more);
    co_return co_await stream.CoFinish();
  };
  std::optional<absl::Status> end;
  Spawn(talk(client()), [&](absl::Status status) { end = status; });
  DriveUntil([&] { return end.has_value(); });
  EXPECT_TRUE(end->ok()) << *end;
}

TEST_F(StreamTest, CallbacksReadUntilTheEnd) {
  CallContext context(absl::Seconds(60));
  auto lines = client().Tail(context, Text("x", 100));
  Line line;
  int64_t count = 0;
  std::optional<absl::Status> end;
  std::function<void(bool)> next = [&](bool ok) {
    if (!ok) {
      return lines.StartFinish([&](const absl::Status& status) { end = status; });
    }
    ++count;
    lines.StartRead(&line, [&](bool more) { next(more); });
  };
  lines.StartRead(&line, [&](bool ok) { next(ok); });
  DriveUntil([&] { return end.has_value(); });
  EXPECT_EQ(count, 100);
  EXPECT_TRUE(end->ok()) << *end;
}

TEST_F(StreamTest, WaitingInsideACallbackIsRefused) {
  CallContext context(absl::Seconds(60));
  auto lines = client().Tail(context, Text("x", 3));
  const Line request = Text("hello");
  Line reply;
  std::optional<absl::Status> inside;
  ASSERT_TRUE(client()
                  .StartSay(context, request, &reply,
                            [&](const absl::Status&) {
                              Line line;
                              EXPECT_FALSE(lines.Read(&line));
                              inside = lines.Finish();
                            })
                  .ok());
  DriveUntil([&] { return inside.has_value(); });
  EXPECT_EQ(inside->code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(StreamTest, StreamThatCouldNotStartSaysSoAtItsEnd) {
  CallContext context(absl::ZeroDuration());
  auto lines = client().Tail(context, Text("x", 3));
  Line line;
  EXPECT_FALSE(lines.Read(&line));
  EXPECT_EQ(lines.Finish().code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace stream_test
}  // namespace sluice
