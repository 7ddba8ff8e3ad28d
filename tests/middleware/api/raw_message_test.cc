// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/raw_message.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "google/protobuf/arena.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "middleware/api/client_call.h"
#include "tests/middleware/api/chat_service.h"

namespace sluice {
namespace raw_message_test {

using testing_support::ChatClient;
using tests::chat::Line;

constexpr Method kSay("/sluice.tests.chat.Chat/Say");
constexpr Method kTail("/sluice.tests.chat.Chat/Tail", call::Streams::kServer);
constexpr Method kSum("/sluice.tests.chat.Chat/Sum", call::Streams::kClient);
constexpr Method kTalk("/sluice.tests.chat.Chat/Talk", call::Streams::kBoth);

TEST(RawMessageTest, KeepsBytesOfAnyLength) {
  // Around the sizes at which protobuf reads from a copy, and far above.
  for (const size_t size : {0, 1, 15, 16, 17, 32, 33, 1000, 1'000'000}) {
    std::string bytes(size, '\xff');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i);
    RawMessage read(std::string("before"));
    ASSERT_TRUE(read.ParseFromString(bytes)) << size;
    EXPECT_EQ(read.bytes(), bytes) << size;
    EXPECT_EQ(read.SerializeAsString(), bytes) << size;
    EXPECT_EQ(read.ByteSizeLong(), size);

    // In pieces, of a length that nobody says.
    google::protobuf::io::ArrayInputStream pieces(bytes.data(), static_cast<int>(size),
                                                  /*block_size=*/7);
    RawMessage of_stream;
    ASSERT_TRUE(of_stream.ParseFromZeroCopyStream(&pieces)) << size;
    EXPECT_EQ(of_stream.bytes(), bytes) << size;

    RawMessage moved(std::move(read));
    EXPECT_EQ(moved.TakeBytes(), bytes);
    EXPECT_EQ(moved.bytes(), "");
  }
}

TEST(RawMessageTest, ParsingReplacesWhatWasThere) {
  RawMessage message = RawMessage::Referring("outside");
  ASSERT_TRUE(message.ParseFromString(std::string(100, 'a')));
  EXPECT_EQ(message.bytes(), std::string(100, 'a'));
  ASSERT_TRUE(message.ParseFromString("b"));
  EXPECT_EQ(message.bytes(), "b");
}

TEST(RawMessageTest, SerialisesWhatItRefersTo) {
  const std::string bytes(40, 'x');
  RawMessage message = RawMessage::Referring(bytes);
  EXPECT_EQ(message.bytes().data(), bytes.data()) << "it was copied";
  EXPECT_EQ(message.ByteSizeLong(), bytes.size());
  EXPECT_EQ(message.SerializeAsString(), bytes);
  RawMessage moved(std::move(message));
  EXPECT_EQ(moved.bytes().data(), bytes.data()) << "it was copied";
  EXPECT_EQ(moved.TakeBytes(), bytes);
  EXPECT_EQ(moved.bytes(), "");
}

// The undefined-behaviour sanitizer judges this: memcpy() takes no null pointer, whatever the size.
TEST(RawMessageTest, MessageOfNoBytesSerialises) {
  const RawMessage message = RawMessage::Referring(std::string_view(nullptr, 0));
  EXPECT_EQ(message.SerializeAsString(), "");
  RawMessage copy;
  copy.CheckTypeAndMergeFrom(message);
  EXPECT_EQ(copy.TakeBytes(), "");
}

TEST(RawMessageTest, CopyOwnsItsBytes) {
  std::string bytes(40, 'x');
  const RawMessage message = RawMessage::Referring(bytes);
  const std::unique_ptr<google::protobuf::MessageLite> copy(message.New(nullptr));
  copy->CheckTypeAndMergeFrom(message);
  bytes.assign(40, 'y');
  EXPECT_EQ(copy->SerializeAsString(), std::string(40, 'x'));
}

TEST(RawMessageTest, MergingDoesNotWriteWhereItRefersTo) {
  const std::string bytes = "ab";
  RawMessage message = RawMessage::Referring(bytes);
  message.CheckTypeAndMergeFrom(RawMessage(std::string("cd")));
  EXPECT_EQ(message.bytes(), "abcd");
  EXPECT_EQ(bytes, "ab");
  message.CheckTypeAndMergeFrom(message);
  EXPECT_EQ(message.bytes(), "abcdabcd");
}

TEST(RawMessageTest, ArenaOwnsAMessageThatIsMadeInIt) {
  google::protobuf::Arena arena;
  RawMessage* const message = RawMessage().New(&arena);
  ASSERT_TRUE(message->ParseFromString(std::string(1000, 'x')));
  EXPECT_EQ(message->bytes().size(), 1000u);
}

class RawCallTest : public testing_support::ChatWorld {
 protected:
  static RawMessage RawText(const std::string& text, int64_t number = 0) {
    return RawMessage(Text(text, number).SerializeAsString());
  }
  static Line LineOf(const RawMessage& raw) {
    Line line;
    EXPECT_TRUE(line.ParseFromString(std::string(raw.bytes())));
    return line;
  }
};

TEST_F(RawCallTest, CallsTypedHandlersOfEachKind) {
  CallContext context(absl::Seconds(60));
  RawMessage reply;
  ASSERT_TRUE(channel_->Call(kSay, context, RawText("hello"), &reply).ok());
  EXPECT_EQ(LineOf(reply).text(), "hello");

  const RawMessage three = RawText("line", 3);
  RawStream tail(channel_.get(), kTail, context, &three, nullptr);
  std::vector<int64_t> numbers;
  while (tail.Read(&reply)) numbers.push_back(LineOf(reply).number());
  EXPECT_TRUE(tail.Finish().ok());
  EXPECT_EQ(numbers, (std::vector<int64_t>{0, 1, 2}));

  RawStream sum(channel_.get(), kSum, context, nullptr, &reply);
  for (int i = 1; i <= 4; ++i) ASSERT_TRUE(sum.Write(RawText("", i)));
  sum.WritesDone();
  EXPECT_TRUE(sum.Finish().ok());
  EXPECT_EQ(LineOf(reply).number(), 10);

  RawStream talk(channel_.get(), kTalk, context, nullptr, nullptr);
  ASSERT_TRUE(talk.Write(RawText("a")) && talk.Read(&reply));
  EXPECT_EQ(LineOf(reply).text(), "a");
  talk.WritesDone();
  EXPECT_FALSE(talk.Read(&reply));
  EXPECT_TRUE(talk.Finish().ok());
}

TEST_F(RawCallTest, StreamTriesToWrite) {
  CallContext context(absl::Seconds(60));
  RawMessage reply;
  RawStream sum(channel_.get(), kSum, context, nullptr, &reply);
  ASSERT_TRUE(sum.Write(RawText("", 1)));
  while (sum.TryWrite(RawText("", 2)) == WriteAttempt::kWouldWait) std::this_thread::yield();
  sum.WritesDone();
  EXPECT_TRUE(sum.Finish().ok());
  EXPECT_EQ(LineOf(reply).number(), 3);
}

TEST_F(RawCallTest, BytesThatAreNoMessageAreRefusedByTheReceiver) {
  CallContext context(absl::Seconds(60));
  RawMessage reply;
  EXPECT_FALSE(channel_->Call(kSay, context, RawMessage(std::string("\xff\xff")), &reply).ok());
}

// Answers with what it gets, for whatever message.
class RawEcho final : public Service {
 public:
  const char* name() const override { return "sluice.tests.chat.Chat"; }
  void Bind(MethodBinder& binder) override {
    binder.BindTask<RawEcho, RawMessage, RawMessage, &RawEcho::Say>(kSay, this);
    binder.BindTask<RawEcho, RawMessage, RawMessage, &RawEcho::Talk>(kTalk, this);
  }
  Task<absl::Status> Say(ServerContext&, const RawMessage& request, RawMessage* reply) {
    reply->set_bytes(std::string(request.bytes()));
    co_return absl::OkStatus();
  }
  Task<absl::Status> Talk(ServerContext&, ServerReader<RawMessage> reader,
                          ServerWriter<RawMessage> writer) {
    RawMessage message;
    while (co_await reader.Read(&message)) {
      if (!co_await writer.Write(message)) break;
    }
    co_return absl::OkStatus();
  }
};

TEST_F(RawCallTest, ServesTypedClients) {
  RawEcho echo;
  Start(&echo);
  CallContext context(absl::Seconds(60));
  const auto reply = client().Say(context, Text("hello", 5));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->text(), "hello");
  EXPECT_EQ(reply->number(), 5);
  auto talk = client().Talk(context);
  Line line;
  ASSERT_TRUE(talk.Write(Text("a", 1)) && talk.Read(&line));
  EXPECT_EQ(line.text(), "a");
  talk.WritesDone();
  EXPECT_FALSE(talk.Read(&line));
  EXPECT_TRUE(talk.Finish().ok());
  TearDown();  // the service is older than the server, and goes first
}

// Answers the first message with bytes that are no Line, and then reads on. Its other methods keep why their streams ended.
class RawNonsense final : public Service {
 public:
  const char* name() const override { return "sluice.tests.chat.Chat"; }
  void Bind(MethodBinder& binder) override {
    binder.BindTask<RawNonsense, RawMessage, RawMessage, &RawNonsense::Talk>(kTalk, this);
    binder.BindTask<RawNonsense, Line, Line, &RawNonsense::Sum>(kSum, this);
  }
  Task<absl::Status> Talk(ServerContext&, ServerReader<RawMessage> reader,
                          ServerWriter<RawMessage> writer) {
    RawMessage message;
    const RawMessage nonsense(std::string("\xff\xff"));
    while (co_await reader.Read(&message)) co_await writer.Write(nonsense);
    ended_with = reader.status();
    ended.Open();
    co_return absl::OkStatus();
  }
  Task<absl::Status> Sum(ServerContext&, ServerReader<Line> reader, Line*) {
    Line line;
    while (co_await reader.Read(&line)) {
    }
    ended_with = reader.status();
    ended.Open();
    co_return absl::OkStatus();
  }

  testing_support::Gate ended;
  absl::Status ended_with;  // read after `ended`
};

class NonsenseTest : public RawCallTest {
 protected:
  void SetUp() override {
    RawCallTest::SetUp();
    Start(&service_);
  }
  RawNonsense service_;
};

// Without the end of the call both sides would wait for the other.
TEST_F(NonsenseTest, MessageThatTheClientCanNotReadEndsTheCall) {
  CallContext context = CallContext::NoDeadline();
  auto talk = client().Talk(context);
  Line line;
  ASSERT_TRUE(talk.Write(Text("a", 1)));
  EXPECT_FALSE(talk.Read(&line));
  const absl::Status status = talk.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_NE(status.message().find("/sluice.tests.chat.Chat/Talk can't be parsed"),
            absl::string_view::npos)
      << status;
  EXPECT_NE(status.message().find("not a sluice.tests.chat.Line"), absl::string_view::npos)
      << status;
  service_.ended.Wait();
  EXPECT_EQ(service_.ended_with.code(), absl::StatusCode::kCancelled) << service_.ended_with;
}

TEST_F(NonsenseTest, HandlerHearsThatTheStreamEndedWithAMessageItCanNotRead) {
  CallContext context(absl::Seconds(60));
  RawMessage reply;
  RawStream sum(channel_.get(), kSum, context, nullptr, &reply);
  ASSERT_TRUE(sum.Write(RawText("", 1)));
  ASSERT_TRUE(sum.Write(RawMessage(std::string("\xff\xff"))));
  sum.WritesDone();
  const absl::Status status = sum.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_NE(status.message().find("/sluice.tests.chat.Chat/Sum can't be parsed"),
            absl::string_view::npos)
      << status;
  service_.ended.Wait();
  EXPECT_EQ(service_.ended_with.code(), absl::StatusCode::kInvalidArgument) << service_.ended_with;
}

TEST_F(NonsenseTest, HandlerHearsThatTheClientEndedItsStream) {
  CallContext context(absl::Seconds(60));
  RawMessage reply;
  RawStream sum(channel_.get(), kSum, context, nullptr, &reply);
  ASSERT_TRUE(sum.Write(RawText("", 1)));
  sum.WritesDone();
  EXPECT_TRUE(sum.Finish().ok());
  service_.ended.Wait();
  EXPECT_TRUE(service_.ended_with.ok()) << service_.ended_with;
}

}  // namespace raw_message_test
}  // namespace sluice
