// SPDX-License-Identifier: Apache-2.0
//
// sluice.h over softdc: streams of each shape, their time-outs and ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <thread>

#include "tests/middleware/c_api/c_world.h"

namespace sluice {
namespace c_stream_test {

using testing::HasSubstr;
using testing_support::Bytes;
using testing_support::CMessage;
using testing_support::CodeOf;
using testing_support::COptions;
using testing_support::CStatus;
using testing_support::CStream;
using testing_support::CWorld;
using testing_support::LineOf;
using testing_support::TextOf;

using CStreamTest = CWorld;

TEST_F(CStreamTest, ServersMessagesComeInOrderAndEnd) {
  const CStream stream = Open(kTail, SLUICE_SERVER_STREAMS, Bytes("x", 500));
  CMessage message;
  for (int64_t i = 0; i < 500; ++i) {
    ASSERT_EQ(Read(stream, &message), SLUICE_STREAM_DONE) << i;
    ASSERT_EQ(LineOf(message).number(), i);
  }
  EXPECT_EQ(Read(stream, &message), SLUICE_STREAM_END);
  EXPECT_EQ(Read(stream, &message), SLUICE_STREAM_END) << "and stays at its end";
  EXPECT_EQ(message, nullptr);
  EXPECT_EQ(Write(stream, "x"), SLUICE_STREAM_END) << "the client does not stream";
  EXPECT_EQ(Finish(stream), nullptr);
  EXPECT_THAT(TextOf(Finish(stream)), HasSubstr("the call is finished"));
}

TEST_F(CStreamTest, ErrorComesAfterWhatWasSentBefore) {
  const CStream stream = Open(kTail, SLUICE_SERVER_STREAMS, Bytes("fail", 5));
  CMessage message;
  int count = 0;
  while (Read(stream, &message) == SLUICE_STREAM_DONE) ++count;
  EXPECT_EQ(count, 5);
  const CStatus status = Finish(stream);
  EXPECT_EQ(CodeOf(status), SLUICE_DATA_LOSS);
  EXPECT_EQ(TextOf(status), "the rest is lost");
}

TEST_F(CStreamTest, ClientsMessagesAreSummed) {
  const CStream stream = Open(kSum, SLUICE_CLIENT_STREAMS);
  for (int64_t i = 1; i <= 500; ++i) ASSERT_EQ(Write(stream, Bytes("", i)), SLUICE_STREAM_DONE);
  CMessage message;
  EXPECT_EQ(Read(stream, &message), SLUICE_STREAM_END) << "the server does not stream";
  sluice_stream_end_writes(stream.get());
  CMessage reply;
  const CStatus status = Finish(stream, &reply);
  ASSERT_EQ(status, nullptr) << TextOf(status);
  EXPECT_EQ(LineOf(reply).number(), 125'250);
}

TEST_F(CStreamTest, BothTalk) {
  const CStream stream = Open(kTalk, SLUICE_BOTH_STREAM);
  CMessage message;
  // The server says nothing before it hears something: a read that times out takes nothing away.
  EXPECT_EQ(Read(stream, &message, 0), SLUICE_STREAM_TIMEOUT);
  EXPECT_EQ(Read(stream, &message, 1'000'000), SLUICE_STREAM_TIMEOUT);
  for (int64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(Write(stream, Bytes("a", i)), SLUICE_STREAM_DONE);
    ASSERT_EQ(Read(stream, &message), SLUICE_STREAM_DONE);
    ASSERT_EQ(LineOf(message).number(), i);
  }
  EXPECT_EQ(sluice_stream_wait(stream.get(), 0), 0);
  sluice_stream_end_writes(stream.get());
  EXPECT_EQ(Read(stream, &message), SLUICE_STREAM_END);
  EXPECT_EQ(sluice_stream_wait(stream.get(), SLUICE_FOREVER), 1);
  EXPECT_EQ(Finish(stream), nullptr);
}

// A write that times out is not sent: what the server reads in the end is what was written.
TEST_F(CStreamTest, WriteIntoAFullWindowTimesOut) {
  const CStream stream = Open(kTalk, SLUICE_BOTH_STREAM);
  int64_t written = 0;
  // No thread reads the replies, so that both windows fill. On a busy machine a write may time out before.
  int timeouts = 0;
  while (timeouts < 3) {
    const int32_t result = Write(stream, Bytes("a", written), 20'000'000);
    ASSERT_NE(result, SLUICE_STREAM_END);
    timeouts += result == SLUICE_STREAM_TIMEOUT;
    written += result == SLUICE_STREAM_DONE;
  }
  CMessage message;
  for (int64_t i = 0; i < written; ++i) {
    ASSERT_EQ(Read(stream, &message), SLUICE_STREAM_DONE) << i;
    ASSERT_EQ(LineOf(message).number(), i);
  }
  sluice_stream_end_writes(stream.get());
  EXPECT_EQ(Read(stream, &message), SLUICE_STREAM_END);
  EXPECT_EQ(Finish(stream), nullptr);
}

// The server waits for the message, and the client for the server: the call would not end.
TEST_F(CStreamTest, MessageThatIsTooLargeEndsTheCall) {
  const COptions options = Device();
  ASSERT_EQ(sluice_options_set(options.get(), "limits.max_large_message_bytes", "0"), nullptr);
  channel_ = Connect(options);
  for (const char* method : {kSum, kTalk}) {
    const CStream stream = Open(method, method == kSum ? SLUICE_CLIENT_STREAMS : SLUICE_BOTH_STREAM,
                                "", SLUICE_FOREVER);
    ASSERT_EQ(Write(stream, Bytes("a", 1)), SLUICE_STREAM_DONE);
    EXPECT_EQ(Write(stream, Bytes(std::string(1 << 20, 'x'))), SLUICE_STREAM_END);
    ASSERT_EQ(sluice_stream_wait(stream.get(), kLongNs), 1) << "it does not end";
    const CStatus status = Finish(stream);
    EXPECT_EQ(CodeOf(status), SLUICE_RESOURCE_EXHAUSTED) << TextOf(status);
    EXPECT_THAT(TextOf(status), HasSubstr("16336"));
  }
}

TEST_F(CStreamTest, MessageThatIsNullEndsTheCall) {
  const CStream stream = Open(kSum, SLUICE_CLIENT_STREAMS);
  EXPECT_EQ(sluice_stream_write(stream.get(), nullptr, 4, kLongNs), SLUICE_STREAM_END);
  const CStatus status = Finish(stream);
  EXPECT_EQ(CodeOf(status), SLUICE_INVALID_ARGUMENT);
  EXPECT_THAT(TextOf(status), HasSubstr("data of sluice_stream_write"));
}

TEST_F(CStreamTest, EmptyMessageIsWritten) {
  const CStream stream = Open(kTalk, SLUICE_BOTH_STREAM);
  EXPECT_EQ(sluice_stream_write(stream.get(), nullptr, 0, kLongNs), SLUICE_STREAM_DONE);
  CMessage message;
  EXPECT_EQ(Read(stream, &message), SLUICE_STREAM_DONE);
}

TEST_F(CStreamTest, OneThreadReadsAndAnotherWrites) {
  const CStream stream = Open(kTalk, SLUICE_BOTH_STREAM);
  constexpr int64_t kMessages = 1000;
  std::thread writer([&] {
    for (int64_t i = 0; i < kMessages; ++i) {
      ASSERT_EQ(Write(stream, Bytes("a", i)), SLUICE_STREAM_DONE);
    }
    sluice_stream_end_writes(stream.get());
  });
  CMessage message;
  int64_t count = 0;
  while (Read(stream, &message) == SLUICE_STREAM_DONE) {
    EXPECT_EQ(LineOf(message).number(), count++);
  }
  writer.join();
  EXPECT_EQ(count, kMessages);
  EXPECT_EQ(Finish(stream), nullptr);
}

TEST_F(CStreamTest, DeadlineEndsAStream) {
  const CStream stream = Open(kTalk, SLUICE_BOTH_STREAM, "", 20'000'000);
  CMessage message;
  EXPECT_EQ(Read(stream, &message), SLUICE_STREAM_END);
  EXPECT_EQ(Write(stream, "", kLongNs), SLUICE_STREAM_END);
  EXPECT_EQ(CodeOf(Finish(stream)), SLUICE_DEADLINE_EXCEEDED);
}

TEST_F(CStreamTest, CancelWakesTheReader) {
  const CStream stream = Open(kTalk, SLUICE_BOTH_STREAM);
  std::thread other([&] { sluice_stream_cancel(stream.get()); });
  CMessage message;
  EXPECT_EQ(Read(stream, &message), SLUICE_STREAM_END);
  other.join();
  EXPECT_EQ(CodeOf(Finish(stream)), SLUICE_CANCELLED);
}

TEST_F(CStreamTest, FreeingAStreamCancelsIt) {
  CStream stream = Open(kTail, SLUICE_SERVER_STREAMS, Bytes("x", -1));
  CMessage message;
  ASSERT_EQ(Read(stream, &message), SLUICE_STREAM_DONE);
  stream.reset();
  chat_.stopped.Wait();
}

TEST_F(CStreamTest, StreamOutlivesItsChannel) {
  const CStream stream = Open(kTalk, SLUICE_BOTH_STREAM);
  const CStream other = Open(kTalk, SLUICE_BOTH_STREAM);
  std::thread reader([&] {
    CMessage message;
    EXPECT_EQ(Read(stream, &message), SLUICE_STREAM_END);
  });
  sluice_channel_close(channel_.get());
  reader.join();
  channel_.reset();
  CMessage message;
  EXPECT_EQ(Read(other, &message), SLUICE_STREAM_END);
  EXPECT_EQ(Write(other, "x"), SLUICE_STREAM_END);
  EXPECT_EQ(CodeOf(Finish(stream)), SLUICE_CANCELLED);
  EXPECT_EQ(CodeOf(Finish(other)), SLUICE_CANCELLED);
}

TEST_F(CStreamTest, TimeoutsAtTheEndsOfTheirRangeDoNotOverflow) {
  const CStream stream = Open(kTalk, SLUICE_BOTH_STREAM);
  CMessage message;
  EXPECT_EQ(Read(stream, &message, INT64_MIN), SLUICE_STREAM_TIMEOUT);
  EXPECT_EQ(sluice_stream_wait(stream.get(), INT64_MIN), 0);
  EXPECT_EQ(Write(stream, Bytes("a", 7), INT64_MAX - 1), SLUICE_STREAM_DONE);
  EXPECT_EQ(Read(stream, &message, INT64_MAX - 1), SLUICE_STREAM_DONE);
  EXPECT_EQ(LineOf(message).number(), 7);
  // Until both windows are full: no thread reads the replies.
  int32_t result = SLUICE_STREAM_DONE;
  while (result == SLUICE_STREAM_DONE) result = Write(stream, Bytes("a"), INT64_MIN);
  EXPECT_EQ(result, SLUICE_STREAM_TIMEOUT);
  const CStream late = Open(kTalk, SLUICE_BOTH_STREAM, "", INT64_MIN);
  EXPECT_EQ(CodeOf(Finish(late)), SLUICE_DEADLINE_EXCEEDED);
}

// The messages of the client are those that it writes.
TEST_F(CStreamTest, RequestBesideAStreamOfRequestsIsRefused) {
  for (const int32_t streams : {SLUICE_CLIENT_STREAMS, SLUICE_BOTH_STREAM}) {
    sluice_stream* stream = nullptr;
    const CStatus status(
        sluice_stream_open(channel_.get(), kTalk, streams, "abc", 3, nullptr, &stream));
    EXPECT_EQ(CodeOf(status), SLUICE_INVALID_ARGUMENT);
    EXPECT_THAT(TextOf(status), HasSubstr("request of sluice_stream_open: it has 3 bytes"));
    EXPECT_EQ(stream, nullptr);
  }
  const CStream empty = Open(kTalk, SLUICE_BOTH_STREAM, "");
  EXPECT_NE(empty, nullptr);
}

TEST_F(CStreamTest, WrongArgumentsAreRefused) {
  sluice_stream* stream = nullptr;
  for (const int32_t streams : {0, 4, -1}) {
    const CStatus status(
        sluice_stream_open(channel_.get(), kTalk, streams, nullptr, 0, nullptr, &stream));
    EXPECT_THAT(TextOf(status), HasSubstr("streams of sluice_stream_open"));
    EXPECT_EQ(stream, nullptr);
  }
  const CStream unlike = Open(kSay, SLUICE_SERVER_STREAMS);
  CMessage message;
  EXPECT_EQ(Read(unlike, &message), SLUICE_STREAM_END);
  EXPECT_THAT(TextOf(Finish(unlike)), HasSubstr("is not called as it is declared"));
}

}  // namespace c_stream_test
}  // namespace sluice
