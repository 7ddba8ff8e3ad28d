// SPDX-License-Identifier: Apache-2.0
//
// sluice.h over softdc: channels, calls, errors, and the order in which objects are freed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/middleware/c_api/c_world.h"

namespace sluice {
namespace c_api_test {

using testing::HasSubstr;
using testing_support::Bytes;
using testing_support::CCall;
using testing_support::CChannel;
using testing_support::CMessage;
using testing_support::CodeOf;
using testing_support::COptions;
using testing_support::CStatus;
using testing_support::CWorld;
using testing_support::LineOf;
using testing_support::TextOf;

using CApiTest = CWorld;

TEST_F(CApiTest, CallReturnsTheReply) {
  CMessage reply;
  const CStatus status = Say("hello", kLongNs, &reply);
  ASSERT_EQ(status, nullptr) << TextOf(status);
  EXPECT_EQ(LineOf(reply).text(), "hello");
  EXPECT_EQ(Say("nobody wants the reply"), nullptr);
  EXPECT_THAT(sluice_channel_device(channel_.get()), HasSubstr("softdc0"));
  EXPECT_EQ(sluice_c_version(), static_cast<uint32_t>(SLUICE_C_VERSION));
}

TEST_F(CApiTest, EmptyAndLargeMessagesPass) {
  CMessage reply;
  ASSERT_EQ(Say("", kLongNs, &reply), nullptr);
  EXPECT_EQ(sluice_message_bytes(reply.get()), 0u);
  EXPECT_EQ(sluice_message_data(reply.get()), nullptr);
  const std::string large(3 << 20, 'x');
  ASSERT_EQ(Say(large, kLongNs, &reply), nullptr);
  EXPECT_EQ(LineOf(reply).text(), large);
}

TEST_F(CApiTest, MetadataGoesBothWays) {
  const char value[] = {'A', '\0', 'd', 'a'};
  const sluice_metadata entries[] = {{"who", value, sizeof(value)}, {"other", nullptr, 0}};
  sluice_call_options options = SLUICE_CALL_OPTIONS_INIT;
  options.metadata = entries;
  options.metadata_count = 2;
  sluice_message* message = nullptr;
  const CStatus status(sluice_call_unary(channel_.get(), kSay, nullptr, 0, &options, &message));
  const CMessage reply(message);
  ASSERT_EQ(status, nullptr) << TextOf(status);
  EXPECT_EQ(LineOf(reply).text(), std::string(value, sizeof(value)));
  ASSERT_EQ(sluice_message_metadata_count(reply.get()), 1u);
  const char* key = nullptr;
  const void* seen = nullptr;
  size_t bytes = 0;
  ASSERT_EQ(sluice_message_metadata(reply.get(), 0, &key, &seen, &bytes), 1);
  EXPECT_STREQ(key, "seen");
  EXPECT_EQ(std::string(static_cast<const char*>(seen), bytes), std::string(value, sizeof(value)));
  EXPECT_EQ(sluice_message_metadata(reply.get(), 1, &key, &seen, &bytes), 0);
  EXPECT_EQ(key, nullptr);
}

TEST_F(CApiTest, AttachmentsGoBothWays) {
  for (const size_t size : {size_t{1}, size_t{1000}, size_t{1} << 20}) {
    const std::string bytes(size, 'a');
    sluice_call_options options = SLUICE_CALL_OPTIONS_INIT;
    options.attachment = bytes.data();
    options.attachment_bytes = bytes.size();
    const auto sent_back = [&bytes](const CMessage& reply) {
      size_t received = 0;
      const void* data = sluice_message_attachment(reply.get(), &received);
      return data != nullptr && std::string(static_cast<const char*>(data), received) == bytes;
    };
    sluice_message* message = nullptr;
    CStatus status(sluice_call_unary(channel_.get(), kSay, nullptr, 0, &options, &message));
    EXPECT_EQ(status, nullptr) << TextOf(status);
    EXPECT_TRUE(sent_back(CMessage(message))) << size;
    sluice_call* call = nullptr;
    status.reset(sluice_call_start(channel_.get(), kSay, nullptr, 0, &options, 0, &call));
    CMessage reply;
    EXPECT_EQ(Finish(CCall(call), &reply), nullptr);
    EXPECT_TRUE(sent_back(reply)) << size;
  }
}

TEST_F(CApiTest, ErrorHasTheMetadataThatCameWithIt) {
  const CStatus status = Say("refuse");
  EXPECT_EQ(CodeOf(status), SLUICE_ABORTED);
  ASSERT_EQ(sluice_status_metadata_count(status.get()), 1u);
  const char* key = nullptr;
  const void* value = nullptr;
  size_t bytes = 0;
  ASSERT_EQ(sluice_status_metadata(status.get(), 0, &key, &value, &bytes), 1);
  EXPECT_STREQ(key, "reason");
  EXPECT_STREQ(static_cast<const char*>(value), "tired");
}

TEST_F(CApiTest, ErrorOfAHandlerHasItsPayloads) {
  const CStatus missing = Say("fail");
  EXPECT_EQ(CodeOf(missing), SLUICE_NOT_FOUND);
  EXPECT_EQ(TextOf(missing), "nothing of that name");
  EXPECT_STREQ(sluice_status_detail(missing.get(), SLUICE_DETAIL_LAYER), "");
  EXPECT_EQ(sluice_status_payload_count(missing.get()), 0u);

  const CStatus order = Say("order");
  EXPECT_EQ(CodeOf(order), SLUICE_FAILED_PRECONDITION);
  std::map<std::string, std::string> payloads;
  for (size_t i = 0; i < sluice_status_payload_count(order.get()); ++i) {
    const char* url = nullptr;
    const void* data = nullptr;
    size_t bytes = 0;
    ASSERT_EQ(sluice_status_payload(order.get(), i, &url, &data, &bytes), 1);
    payloads[url] = std::string(static_cast<const char*>(data), bytes);
  }
  EXPECT_EQ(payloads["type.googleapis.com/shop.OutOfStock"], std::string("\0\xff", 2));
  EXPECT_EQ(payloads["type.googleapis.com/shop.Hint"].size(), 6000u);
}

TEST_F(CApiTest, ErrorOfSluiceHasDetails) {
  sluice_message* reply = nullptr;
  const CStatus status(sluice_call_unary(channel_.get(), "sluice.tests.chat.Chat/Nothing", nullptr,
                                         0, nullptr, &reply));
  EXPECT_EQ(CodeOf(status), SLUICE_UNIMPLEMENTED);
  EXPECT_EQ(reply, nullptr);
  EXPECT_STREQ(sluice_code_name(CodeOf(status)), "UNIMPLEMENTED");
  EXPECT_STRNE(sluice_status_detail(status.get(), SLUICE_DETAIL_LAYER), "");
  EXPECT_STRNE(sluice_status_detail(status.get(), SLUICE_DETAIL_CAUSE), "");
  EXPECT_STRNE(sluice_status_detail(status.get(), SLUICE_DETAIL_REMEDY), "");
  EXPECT_STREQ(sluice_status_detail(status.get(), 99), "");
  EXPECT_STREQ(sluice_code_name(17), "");
  EXPECT_STREQ(sluice_code_name(-1), "");
}

TEST_F(CApiTest, NullIsOkEverywhere) {
  EXPECT_EQ(sluice_status_code(nullptr), SLUICE_OK);
  EXPECT_STREQ(sluice_status_message(nullptr), "");
  EXPECT_STREQ(sluice_status_detail(nullptr, 0), "");
  EXPECT_EQ(sluice_status_retry_safe(nullptr), 0);
  EXPECT_EQ(sluice_status_payload_count(nullptr), 0u);
  EXPECT_EQ(sluice_status_payload(nullptr, 0, nullptr, nullptr, nullptr), 0);
  EXPECT_EQ(sluice_status_metadata(nullptr, 0, nullptr, nullptr, nullptr), 0);
  EXPECT_EQ(sluice_message_bytes(nullptr), 0u);
  EXPECT_EQ(sluice_message_attachment(nullptr, nullptr), nullptr);
  sluice_status_free(nullptr);
  sluice_options_free(nullptr);
  sluice_channel_close(nullptr);
  sluice_channel_free(nullptr);
  sluice_message_free(nullptr);
  sluice_call_free(nullptr);
  sluice_stream_free(nullptr);
}

TEST_F(CApiTest, WrongArgumentsAreRefusedByName) {
  sluice_channel* channel = nullptr;
  EXPECT_THAT(TextOf(CStatus(sluice_channel_connect(nullptr, nullptr, &channel))),
              HasSubstr("address or channel of sluice_channel_connect: it is NULL"));
  const auto called = [&](const char* method, const sluice_call_options* options,
                          const void* request = nullptr, size_t bytes = 0) {
    const CStatus status(
        sluice_call_unary(channel_.get(), method, request, bytes, options, nullptr));
    EXPECT_EQ(CodeOf(status), SLUICE_INVALID_ARGUMENT);
    return TextOf(status);
  };
  for (const char* method : {"", "/", "x", "x/", "/x", "a/b/c", "/a/b/"}) {
    EXPECT_THAT(called(method, nullptr), HasSubstr("write package.Service/Method")) << method;
  }
  EXPECT_EQ(
      sluice_status_retry_safe(
          CStatus(sluice_call_unary(channel_.get(), "x", nullptr, 0, nullptr, nullptr)).get()),
      1);
  EXPECT_THAT(called(nullptr, nullptr), HasSubstr("method of sluice_call_unary: it is NULL"));
  EXPECT_THAT(called(kSay, nullptr, nullptr, 5), HasSubstr("its size is 5"));
  EXPECT_THAT(called(kSay, nullptr, "", size_t{1} << 31), HasSubstr("2147483648 bytes"));
  sluice_call_options options = SLUICE_CALL_OPTIONS_INIT;
  options.struct_bytes = 3;
  EXPECT_THAT(called(kSay, &options), HasSubstr("struct_bytes is 3"));
  options = SLUICE_CALL_OPTIONS_INIT;
  options.metadata_count = 1;
  EXPECT_THAT(called(kSay, &options), HasSubstr("metadata is NULL"));
  const sluice_metadata bad = {"UPPER", "", 0};
  options.metadata = &bad;
  EXPECT_THAT(called(kSay, &options), HasSubstr("UPPER"));
}

TEST_F(CApiTest, ProgramWithAnOlderStructureHasDefaults) {
  // It knows the first two fields. What stands behind them in its memory is none of the library's.
  sluice_call_options options;
  std::memset(&options, 0x5a, sizeof(options));
  options.struct_bytes = offsetof(sluice_call_options, wait_for_ready);
  options.timeout_ns = kLongNs;
  const CStatus status(sluice_call_unary(channel_.get(), kSay, nullptr, 0, &options, nullptr));
  EXPECT_EQ(status, nullptr) << TextOf(status);
  // A newer one has fields that this library does not know.
  struct {
    sluice_call_options known = SLUICE_CALL_OPTIONS_INIT;
    int64_t later = 17;
  } newer;
  newer.known.struct_bytes = sizeof(newer);
  EXPECT_EQ(sluice_call_unary(channel_.get(), kSay, nullptr, 0, &newer.known, nullptr), nullptr);
}

TEST_F(CApiTest, OptionsAreSetByName) {
  const COptions options = Device();
  const auto set = [&](const char* name, const char* value) {
    return TextOf(CStatus(sluice_options_set(options.get(), name, value)));
  };
  EXPECT_EQ(set("connect_timeout", "2s"), "");
  EXPECT_EQ(set("limits.credits_per_peer", "8"), "");
  EXPECT_EQ(set("connect_in_background", "true"), "");
  EXPECT_THAT(set("limits.credits_per_per", "8"), HasSubstr("limits.credits_per_peer"));
  EXPECT_THAT(set("connect_timeout", "soon"), HasSubstr("soon"));
  EXPECT_THAT(set("connect_in_background", "maybe"), HasSubstr("true or false"));
  EXPECT_THAT(TextOf(CStatus(sluice_options_set(nullptr, "device", "auto"))), HasSubstr("NULL"));

  sluice_channel* channel = nullptr;
  CStatus status(sluice_channel_connect(address_.c_str(), options.get(), &channel));
  ASSERT_EQ(status, nullptr) << TextOf(status);
  const CChannel owned(channel);
  status.reset(sluice_channel_wait_connected(channel, kLongNs));
  EXPECT_EQ(status, nullptr) << TextOf(status);
}

TEST_F(CApiTest, BadAddressesAndDevicesAreErrors) {
  const auto connect = [&](const char* address, const char* device) {
    const COptions options = Device();
    EXPECT_EQ(sluice_options_set(options.get(), "device", device), nullptr);
    sluice_channel* channel = nullptr;
    CStatus status(sluice_channel_connect(address, options.get(), &channel));
    EXPECT_EQ(channel, nullptr);
    return status;
  };
  EXPECT_EQ(CodeOf(connect("no address", "softdc0")), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(connect(address_.c_str(), "mlx5_99")), SLUICE_NOT_FOUND);
  server_.reset();
  const CStatus refused = connect(address_.c_str(), "softdc0");
  EXPECT_EQ(CodeOf(refused), SLUICE_UNAVAILABLE);
  EXPECT_EQ(sluice_status_detail(refused.get(), SLUICE_DETAIL_PEER), address_);
}

TEST_F(CApiTest, DeadlineEndsACall) {
  const CStatus late = Say("wait", 20'000'000);
  EXPECT_EQ(CodeOf(late), SLUICE_DEADLINE_EXCEEDED);
  EXPECT_EQ(CodeOf(Say("hello", 0)), SLUICE_DEADLINE_EXCEEDED);
  EXPECT_EQ(CodeOf(Say("hello", -5)), SLUICE_DEADLINE_EXCEEDED);
  EXPECT_EQ(Say("hello", SLUICE_FOREVER), nullptr);
}

TEST_F(CApiTest, StartedCallIsWaitedFor) {
  for (const int64_t wait_ns : {int64_t{0}, int64_t{1}, kLongNs}) {
    const CCall call = Start("hello", wait_ns);
    EXPECT_EQ(sluice_call_wait(call.get(), kLongNs), 1);
    CMessage reply;
    ASSERT_EQ(Finish(call, &reply), nullptr);
    EXPECT_EQ(LineOf(reply).text(), "hello");
    EXPECT_EQ(sluice_call_wait(call.get(), 0), 1);
    const CStatus again = Finish(call);
    EXPECT_EQ(CodeOf(again), SLUICE_FAILED_PRECONDITION);
    EXPECT_THAT(TextOf(again), HasSubstr("the call is finished"));
  }
}

TEST_F(CApiTest, WaitsOfACallHaveTheirOwnTimeouts) {
  const CCall call = Start("wait", 1'000'000);
  EXPECT_EQ(sluice_call_wait(call.get(), 0), 0);
  EXPECT_EQ(sluice_call_wait(call.get(), 1'000'000), 0);
  EXPECT_EQ(Say("hello"), nullptr) << "another call while one is in flight";
  sluice_call_cancel(call.get());
  EXPECT_EQ(sluice_call_wait(call.get(), SLUICE_FOREVER), 1);
  EXPECT_EQ(CodeOf(Finish(call)), SLUICE_CANCELLED);
}

TEST_F(CApiTest, RequestOfAStartedCallIsCopied) {
  std::string request = Bytes("first");
  sluice_call* call = nullptr;
  ASSERT_EQ(
      sluice_call_start(channel_.get(), kSay, request.data(), request.size(), nullptr, 0, &call),
      nullptr);
  request.assign(request.size(), '\xff');
  const CCall owned(call);
  CMessage reply;
  ASSERT_EQ(Finish(owned, &reply), nullptr);
  EXPECT_EQ(LineOf(reply).text(), "first");
}

TEST_F(CApiTest, AnotherThreadCancels) {
  const CCall call = Start("wait");
  std::thread other([&] {
    chat_.waiting.Wait();
    sluice_call_cancel(call.get());
  });
  EXPECT_EQ(CodeOf(Finish(call)), SLUICE_CANCELLED);
  other.join();
  chat_.stopped.Wait();  // the handler is told
}

TEST_F(CApiTest, FreeingACallCancelsIt) {
  CCall call = Start("wait");
  chat_.waiting.Wait();
  call.reset();
  chat_.stopped.Wait();
}

TEST_F(CApiTest, ManyThreadsCallAtOnce) {
  constexpr int kThreads = 8;
  constexpr int kCalls = 50;
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < kCalls; ++j) {
        const std::string text = absl::StrCat(i, ":", j);
        CMessage reply;
        CStatus status;
        if (j % 2 == 0) {
          status = Say(text, kLongNs, &reply);
        } else {
          status = Finish(Start(text, j % 3 == 0 ? kLongNs : 0), &reply);
        }
        EXPECT_EQ(status, nullptr) << TextOf(status);
        good += status == nullptr && LineOf(reply).text() == text;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, kThreads * kCalls);
}

TEST_F(CApiTest, CloseEndsCallsOfAllThreads) {
  std::thread in_unary([&] { EXPECT_EQ(CodeOf(Say("wait")), SLUICE_CANCELLED); });
  chat_.waiting.Wait();  // it is at the server
  const CCall started = Start("wait");
  std::thread in_wait([&] { EXPECT_EQ(CodeOf(Finish(started)), SLUICE_CANCELLED); });
  sluice_channel_close(channel_.get());
  in_unary.join();
  in_wait.join();
  const CStatus later = Say("hello");
  EXPECT_EQ(CodeOf(later), SLUICE_FAILED_PRECONDITION);
  EXPECT_THAT(TextOf(later), HasSubstr("the channel is closed"));
  sluice_channel_close(channel_.get());
}

TEST_F(CApiTest, CloseEndsAWaitForAConnection) {
  const COptions options = Device();
  ASSERT_EQ(sluice_options_set(options.get(), "connect_in_background", "true"), nullptr);
  address_ = "127.0.0.1:1";  // no server
  const CChannel channel = Connect(options);
  ASSERT_NE(channel, nullptr);
  std::atomic<bool> waits = false;
  CStatus status;
  std::thread waiter([&] {
    waits = true;
    waits.notify_one();
    status.reset(sluice_channel_wait_connected(channel.get(), kLongNs));
  });
  waits.wait(false);
  sluice_channel_close(channel.get());
  waiter.join();
  EXPECT_EQ(CodeOf(status), SLUICE_FAILED_PRECONDITION) << TextOf(status);
  EXPECT_THAT(TextOf(status), HasSubstr("the channel is closed"));
}

TEST_F(CApiTest, WaitForAConnectionHasATimeout) {
  const COptions options = Device();
  ASSERT_EQ(sluice_options_set(options.get(), "connect_in_background", "true"), nullptr);
  address_ = "127.0.0.1:1";  // no server
  const CChannel channel = Connect(options);
  // Shorter and longer than a turn.
  for (const int64_t timeout_ns :
       {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1'000'000}, int64_t{250'000'000}}) {
    const auto since = std::chrono::steady_clock::now();
    const CStatus status(sluice_channel_wait_connected(channel.get(), timeout_ns));
    EXPECT_EQ(CodeOf(status), SLUICE_DEADLINE_EXCEEDED) << TextOf(status);
    EXPECT_GE(std::chrono::steady_clock::now() - since, std::chrono::nanoseconds(timeout_ns));
  }
}

TEST_F(CApiTest, WaitForAConnectionThatIsUpNeedsNoTime) {
  for (const int64_t timeout_ns : {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1}, INT64_MAX - 1}) {
    const CStatus status(sluice_channel_wait_connected(channel_.get(), timeout_ns));
    EXPECT_EQ(status, nullptr) << timeout_ns << ": " << TextOf(status);
  }
}

TEST_F(CApiTest, TimeoutsAtTheEndsOfTheirRangeDoNotOverflow) {
  EXPECT_EQ(CodeOf(Say("hello", INT64_MIN)), SLUICE_DEADLINE_EXCEEDED);
  EXPECT_EQ(Say("hello", INT64_MAX - 1), nullptr);
  const CCall call = Start("wait", INT64_MIN);
  EXPECT_EQ(sluice_call_wait(call.get(), INT64_MIN), 0);
  EXPECT_EQ(sluice_call_wait(call.get(), INT64_MIN + 1), 0);
  sluice_call_cancel(call.get());
  EXPECT_EQ(sluice_call_wait(call.get(), INT64_MAX - 1), 1);
  EXPECT_EQ(CodeOf(Finish(call)), SLUICE_CANCELLED);
  const CCall late = Start("wait", INT64_MAX - 1, INT64_MIN);
  EXPECT_EQ(CodeOf(Finish(late)), SLUICE_DEADLINE_EXCEEDED);
}

TEST_F(CApiTest, ObjectsAreFreedInAnyOrder) {
  const auto objects = [&](auto free_them) {
    CChannel other = Connect();
    std::swap(channel_, other);
    CCall waiting = Start("wait");
    CCall done = Start("hello");
    EXPECT_EQ(sluice_call_wait(done.get(), kLongNs), 1);
    CMessage reply;
    EXPECT_EQ(Say("kept", kLongNs, &reply), nullptr);
    CStatus status = Say("fail");
    std::swap(channel_, other);
    free_them(other, waiting, done);
    EXPECT_EQ(LineOf(reply).text(), "kept") << "values outlive the channel";
    EXPECT_EQ(TextOf(status), "nothing of that name");
  };
  objects([](CChannel& channel, CCall& waiting, CCall& done) {
    channel.reset();
    EXPECT_EQ(CodeOf(Finish(waiting)), SLUICE_CANCELLED);
    EXPECT_EQ(Finish(done), nullptr);
  });
  objects([](CChannel& channel, CCall& waiting, CCall& done) {
    channel.reset();
    done.reset();
    waiting.reset();
  });
  objects([](CChannel& channel, CCall& waiting, CCall& done) {
    waiting.reset();
    channel.reset();
    done.reset();
  });
  EXPECT_EQ(Say("hello"), nullptr) << "the first channel goes on";
}

TEST_F(CApiTest, ForkedChildIsRefused) {
  const CCall call = Start("hello");
  EXPECT_EQ(sluice_call_wait(call.get(), kLongNs), 1);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    sluice_status* const status =
        sluice_call_unary(channel_.get(), kSay, nullptr, 0, nullptr, nullptr);
    const bool refused =
        sluice_status_code(status) == SLUICE_FAILED_PRECONDITION &&
        std::string(sluice_status_message(status)).find("another process") != std::string::npos;
    // None of these may wait for threads that are not here.
    sluice_call_cancel(call.get());
    sluice_channel_close(channel_.get());
    sluice_call_free(call.get());
    sluice_channel_free(channel_.get());
    _exit(refused ? 0 : 1);
  }
  int how = -1;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0) << how;
  EXPECT_EQ(Say("hello"), nullptr) << "the parent goes on";
}

}  // namespace c_api_test
}  // namespace sluice
