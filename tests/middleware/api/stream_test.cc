// SPDX-License-Identifier: Apache-2.0
//
// Calls that stream, with generated code: order, ends, windows, cancellation, in all client styles.
#include "middleware/api/stream.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "middleware/api/run_on.h"
#include "middleware/api/thread_pool.h"
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

TEST_F(StreamTest, InAForkedChildEachOperationFailsAtOnce) {
  CallContext context(absl::Seconds(60));
  auto parents = client().Talk(context);
  ASSERT_TRUE(parents.Write(Text("a", 1)));
  const pid_t child = fork();
  if (child == 0) {
    int wrong = 0;
    const auto expect = [&wrong](bool right) { wrong = wrong * 2 + (right ? 0 : 1); };
    Line line;
    expect(!parents.Read(&line));
    expect(!parents.Write(Text("b", 2)));
    expect(absl::IsFailedPrecondition(parents.Finish()));
    CallContext own(absl::Seconds(60));
    auto opened = client().Talk(own);
    expect(!opened.Write(Text("c", 3)));
    expect(!opened.Read(&line));
    expect(absl::IsFailedPrecondition(opened.Finish()));
    _exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  parents.WritesDone();
  Line line;
  while (parents.Read(&line)) {
  }
  EXPECT_TRUE(parents.Finish().ok());
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

// A program that was written for windows of bytes.
TEST_F(StreamTest, ClientThatWritesAllBeforeItReadsGoesOnWithinTheWindowOfTheOptions) {
  channel_options_.stream_window = 200;
  Start(&chat_);
  CallContext context(absl::Seconds(60));
  auto talk = client().Talk(context);
  for (int64_t i = 0; i < 200; ++i) ASSERT_TRUE(talk.Write(Text("a", i))) << i;
  talk.WritesDone();
  Line line;
  for (int64_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(talk.Read(&line));
    ASSERT_EQ(line.number(), i);
  }
  EXPECT_FALSE(talk.Read(&line));
  EXPECT_TRUE(talk.Finish().ok());
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

// The server would wait for the end of the stream, and the client for the server.
TEST_F(StreamTest, MessageOverTheLimitEndsTheCallWithoutAWordOfTheWriter) {
  server_options_.limits.max_large_message_bytes = 50'000;
  Start(&chat_);
  CallContext context = CallContext::NoDeadline();
  Line reply;
  auto numbers = client().Sum(context, &reply);
  EXPECT_FALSE(numbers.Write(Text(std::string(100'000, 'x'))));
  const absl::Status too_large = numbers.Finish();
  EXPECT_EQ(too_large.code(), absl::StatusCode::kResourceExhausted) << too_large;
  chat_.stopped.Wait();
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

// What was not written is not sent, and what was written comes once.
TEST_F(StreamTest, TryWriteStopsAtAFullWindow) {
  CallContext context(absl::Seconds(60));
  auto talk = client().Talk(context);
  Line line;
  ASSERT_TRUE(talk.Write(Text("", 0)) && talk.Read(&line));
  int64_t next = 1;
  WriteAttempt attempt = WriteAttempt::kWritten;
  while (attempt == WriteAttempt::kWritten) {
    attempt = talk.TryWrite(Text("", next));
    if (attempt == WriteAttempt::kWritten) ++next;
    ASSERT_LE(next, 10 * call::StreamEnd::kWindow) << "the window has no end";
  }
  EXPECT_EQ(attempt, WriteAttempt::kWouldWait);
  EXPECT_GT(next, 1);
  for (int64_t i = 1; i < next; ++i) {
    ASSERT_TRUE(talk.Read(&line));
    EXPECT_EQ(line.number(), i);
  }
  ASSERT_TRUE(talk.Write(Text("", next)) && talk.Read(&line));
  EXPECT_EQ(line.number(), next);
  talk.WritesDone();
  EXPECT_FALSE(talk.Read(&line));
  EXPECT_TRUE(talk.Finish().ok());
}

TEST_F(StreamTest, TryWriteWorksInsideACallback) {
  CallContext context(absl::Seconds(60));
  auto talk = client().Talk(context);
  Line line;
  ASSERT_TRUE(talk.Write(Text("", 1)) && talk.Read(&line));
  const Line request = Text("hello");
  Line reply;
  std::optional<WriteAttempt> inside;
  ASSERT_TRUE(client()
                  .StartSay(context, request, &reply,
                            [&](const absl::Status&) { inside = talk.TryWrite(Text("", 2)); })
                  .ok());
  DriveUntil([&] { return inside.has_value(); });
  EXPECT_EQ(*inside, WriteAttempt::kWritten);
  ASSERT_TRUE(talk.Read(&line));
  EXPECT_EQ(line.number(), 2);
  talk.WritesDone();
  EXPECT_TRUE(talk.Finish().ok());
}

TEST_F(StreamTest, TryWriteAfterTheEndSaysSo) {
  server_options_.limits.max_large_message_bytes = 50'000;
  Start(&chat_);
  CallContext context(absl::Seconds(60));
  Line reply;
  auto numbers = client().Sum(context, &reply);
  ASSERT_TRUE(numbers.Write(Text("", 1)));
  EXPECT_EQ(numbers.TryWrite(Text(std::string(100'000, 'x'))), WriteAttempt::kEnded);
  EXPECT_EQ(numbers.Finish().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(numbers.TryWrite(Text("", 1)), WriteAttempt::kEnded);
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

// Sends initial metadata at once, and what it hears of that as text.
class Greeter final : public testing_support::ChatCoServiceBase {
 public:
  static absl::Status Greet(ServerContext& context) {
    Metadata metadata;
    EXPECT_TRUE(metadata.Add("version", "7").ok());
    return context.SendInitialMetadata(metadata);
  }
  Task<absl::Status> Say(ServerContext& context, const Line&, Line*) override {
    co_return Greet(context);
  }
  Task<absl::Status> Tail(ServerContext& context, const Line& request,
                          ServerWriter<Line> writer) override {
    if (request.text() == "executor") co_await RunOn(&pool_);
    const absl::Status greeted = Greet(context);
    Line line;
    line.set_text(Greet(context).ToString());
    if (!greeted.ok() || !co_await writer.Write(line)) co_return greeted;
    line.set_text(Greet(context).ToString());
    co_await writer.Write(line);
    EXPECT_TRUE(context.AddReplyMetadata("end", "here").ok());
    co_return absl::OkStatus();
  }
  Task<absl::Status> Sum(ServerContext& context, ServerReader<Line> reader, Line* reply) override {
    if (const absl::Status greeted = Greet(context); !greeted.ok()) co_return greeted;
    Line line;
    while (co_await reader.Read(&line)) reply->set_number(reply->number() + line.number());
    co_return absl::OkStatus();
  }
  Task<absl::Status> Talk(ServerContext& context, ServerReader<Line> reader,
                          ServerWriter<Line> writer) override {
    if (const absl::Status greeted = Greet(context); !greeted.ok()) co_return greeted;
    Line line;
    while (co_await reader.Read(&line)) {
      if (!co_await writer.Write(line)) break;
    }
    co_return absl::OkStatus();
  }

 private:
  ThreadPool pool_{1};
};

class GreetedTest : public ChatWorld {
 protected:
  void SetUp() override { Start(&greeter_); }
  static std::string VersionIn(const Metadata& metadata) {
    const auto version = metadata.Find("version");
    return version.has_value() ? std::string(*version) : "none";
  }

  Greeter greeter_;
};

// The handler waits for the client by then: nothing else can have brought it.
TEST_F(GreetedTest, InitialMetadataComesBeforeTheStreamEnds) {
  CallContext context(absl::Seconds(60));
  auto talk = client().Talk(context);
  Metadata metadata;
  ASSERT_TRUE(talk.ReadInitialMetadata(&metadata));
  EXPECT_EQ(VersionIn(metadata), "7");
  ASSERT_TRUE(talk.Write(Text("a", 1)));
  Line line;
  ASSERT_TRUE(talk.Read(&line));
  EXPECT_EQ(line.number(), 1);
  talk.WritesDone();
  EXPECT_TRUE(talk.Finish().ok());
  Metadata again;
  EXPECT_TRUE(talk.ReadInitialMetadata(&again)) << "also after the end";
  EXPECT_EQ(VersionIn(again), "7");
  EXPECT_TRUE(context.reply_metadata().entries().empty());

  Line reply;
  auto numbers = client().Sum(context, &reply);
  ASSERT_TRUE(numbers.ReadInitialMetadata(&metadata));
  ASSERT_TRUE(numbers.Write(Text("", 5)));
  numbers.WritesDone();
  EXPECT_TRUE(numbers.Finish().ok());
  EXPECT_EQ(reply.number(), 5);
}

TEST_F(GreetedTest, ItIsSentOnceAndBeforeTheFirstMessageAlsoFromAnExecutor) {
  for (const char* where : {"home", "executor"}) {
    SCOPED_TRACE(where);
    CallContext context(absl::Seconds(60));
    auto lines = client().Tail(context, Text(where));
    Metadata metadata;
    ASSERT_TRUE(lines.ReadInitialMetadata(&metadata));
    EXPECT_EQ(VersionIn(metadata), "7");
    Line line;
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(lines.Read(&line));
      EXPECT_NE(line.text().find("has been sent before"), std::string::npos) << line.text();
    }
    EXPECT_FALSE(lines.Read(&line));
    EXPECT_TRUE(lines.Finish().ok());
    EXPECT_EQ(context.reply_metadata().Find("end"), "here");
  }
}

TEST_F(GreetedTest, MethodThatDoesNotStreamHasNone) {
  CallContext context(absl::Seconds(60));
  const absl::Status status = client().Say(context, Text("")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find("AddReplyMetadata"), std::string::npos) << status;
}

TEST_F(GreetedTest, ClientThatDoesNotAskReadsMessagesOnly) {
  CallContext context(absl::Seconds(60));
  auto lines = client().Tail(context, Text(""));
  Line line;
  int count = 0;
  while (lines.Read(&line)) ++count;
  EXPECT_EQ(count, 2);
  EXPECT_TRUE(lines.Finish().ok());
}

TEST_F(GreetedTest, CoroutinesAndCallbacksReadIt) {
  const auto talk = [](ChatClient client) -> Task<std::string> {
    CallContext context(absl::Seconds(60));
    auto stream = client.Talk(context);
    Metadata metadata;
    const bool read = co_await stream.CoReadInitialMetadata(&metadata);
    stream.WritesDone();
    const absl::Status end = co_await stream.CoFinish();
    EXPECT_TRUE(read && end.ok()) << end;
    co_return VersionIn(metadata);
  };
  std::optional<std::string> version;
  Spawn(talk(client()), [&](std::string result) { version = std::move(result); });
  DriveUntil([&] { return version.has_value(); });
  EXPECT_EQ(*version, "7");

  CallContext context(absl::Seconds(60));
  auto second = client().Talk(context);
  Metadata called_back;
  std::optional<bool> called;
  second.StartReadInitialMetadata(&called_back, [&](bool ok) { called = ok; });
  DriveUntil([&] { return called.has_value(); });
  EXPECT_TRUE(*called);
  EXPECT_EQ(VersionIn(called_back), "7");
  std::optional<bool> inside;
  const Line request = Text("hello");
  Line reply;
  ASSERT_TRUE(client()
                  .StartSay(context, request, &reply,
                            [&](const absl::Status&) {
                              Metadata metadata;
                              inside = second.ReadInitialMetadata(&metadata);
                            })
                  .ok());
  DriveUntil([&] { return inside.has_value(); });
  EXPECT_FALSE(*inside) << "a callback can't wait";
  second.WritesDone();
  EXPECT_TRUE(second.Finish().ok());
}

TEST_F(StreamTest, StreamWithoutInitialMetadataSaysSoAtItsFirstMessageOrItsEnd) {
  CallContext context(absl::Seconds(60));
  Metadata metadata;
  auto lines = client().Tail(context, Text("x", 1));
  EXPECT_FALSE(lines.ReadInitialMetadata(&metadata));
  Line line;
  EXPECT_TRUE(lines.Read(&line)) << "the message is still there";
  EXPECT_TRUE(lines.Finish().ok());
  auto none = client().Tail(context, Text("fail", 0));
  EXPECT_FALSE(none.ReadInitialMetadata(&metadata));
  EXPECT_TRUE(absl::IsDataLoss(none.Finish()));
  CallContext late(absl::ZeroDuration());
  auto not_started = client().Tail(late, Text("x", 1));
  EXPECT_FALSE(not_started.ReadInitialMetadata(&metadata));
}

}  // namespace stream_test
}  // namespace sluice
