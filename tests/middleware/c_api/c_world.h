// SPDX-License-Identifier: Apache-2.0
//
// CWorld: BesideChat on softdc and a channel of the C API to it, with owners for the objects of sluice.h.
#ifndef SLUICE_TESTS_MIDDLEWARE_C_API_C_WORLD_H_
#define SLUICE_TESTS_MIDDLEWARE_C_API_C_WORLD_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "middleware/api/server.h"
#include "middleware/c_api/sluice.h"
#include "tests/middleware/c_api/beside_chat.h"

namespace sluice::testing_support {

template <auto free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    free(object);
  }
};
template <typename T, auto free>
using Owned = std::unique_ptr<T, Freer<free>>;

using COptions = Owned<sluice_options, sluice_options_free>;
using CStatus = Owned<sluice_status, sluice_status_free>;
using CChannel = Owned<sluice_channel, sluice_channel_free>;
using CMessage = Owned<sluice_message, sluice_message_free>;
using CCall = Owned<sluice_call, sluice_call_free>;
using CStream = Owned<sluice_stream, sluice_stream_free>;

inline int32_t CodeOf(const CStatus& status) { return sluice_status_code(status.get()); }
inline std::string TextOf(const CStatus& status) { return sluice_status_message(status.get()); }

inline std::string Bytes(const std::string& text, int64_t number = 0) {
  Line line;
  line.set_text(text);
  line.set_number(number);
  return line.SerializeAsString();
}
inline Line LineOf(const CMessage& message) {
  Line line;
  EXPECT_NE(message, nullptr);
  EXPECT_TRUE(line.ParseFromArray(sluice_message_data(message.get()),
                                  static_cast<int>(sluice_message_bytes(message.get()))));
  return line;
}

inline sluice_call_options Timeout(int64_t timeout_ns) {
  sluice_call_options options = SLUICE_CALL_OPTIONS_INIT;
  options.timeout_ns = timeout_ns;
  return options;
}

class CWorld : public ::testing::Test {
 protected:
  static constexpr int64_t kLongNs = 60'000'000'000;
  static constexpr char kSay[] = "sluice.tests.chat.Chat/Say";
  static constexpr char kTail[] = "/sluice.tests.chat.Chat/Tail";
  static constexpr char kSum[] = "sluice.tests.chat.Chat/Sum";
  static constexpr char kTalk[] = "sluice.tests.chat.Chat/Talk";

  void SetUp() override {
    ServerOptions options;
    options.device = "softdc0";
    auto server = Server::Create(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->Register(&service_).ok());
    const auto port = server_->Listen("127.0.0.1:0");
    ASSERT_TRUE(port.ok()) << port.status();
    address_ = absl::StrCat("127.0.0.1:", *port);
    channel_ = Connect();
    ASSERT_NE(channel_, nullptr);
  }

  static COptions Device() {
    COptions options(sluice_options_new());
    const CStatus status(sluice_options_set(options.get(), "device", "softdc0"));
    EXPECT_EQ(status, nullptr) << TextOf(status);
    return options;
  }
  CChannel Connect() { return Connect(Device()); }
  CChannel Connect(const COptions& options) {
    sluice_channel* channel = nullptr;
    const CStatus status(sluice_channel_connect(address_.c_str(), options.get(), &channel));
    EXPECT_EQ(status, nullptr) << TextOf(status);
    return CChannel(channel);
  }
  // Calls Say, and returns the status. `reply`: nullptr, or gets the reply.
  CStatus Say(const std::string& text, int64_t timeout_ns = kLongNs, CMessage* reply = nullptr) {
    const std::string request = Bytes(text);
    const sluice_call_options options = Timeout(timeout_ns);
    sluice_message* message = nullptr;
    CStatus status(sluice_call_unary(channel_.get(), kSay, request.data(), request.size(), &options,
                                     &message));
    CMessage owned(message);
    if (reply != nullptr) *reply = std::move(owned);
    return status;
  }
  CCall Start(const std::string& text, int64_t wait_ns = 0, int64_t timeout_ns = kLongNs) {
    const std::string request = Bytes(text);
    const sluice_call_options options = Timeout(timeout_ns);
    sluice_call* call = nullptr;
    const CStatus status(sluice_call_start(channel_.get(), kSay, request.data(), request.size(),
                                           &options, wait_ns, &call));
    EXPECT_EQ(status, nullptr) << TextOf(status);
    return CCall(call);
  }
  CStream Open(const char* method, int32_t streams, const std::string& request = "",
               int64_t timeout_ns = kLongNs) {
    const sluice_call_options options = Timeout(timeout_ns);
    sluice_stream* stream = nullptr;
    const CStatus status(sluice_stream_open(channel_.get(), method, streams, request.data(),
                                            request.size(), &options, &stream));
    EXPECT_EQ(status, nullptr) << TextOf(status);
    return CStream(stream);
  }
  static CStatus Finish(const CCall& call, CMessage* reply = nullptr) {
    sluice_message* message = nullptr;
    CStatus status(sluice_call_finish(call.get(), &message));
    CMessage owned(message);
    if (reply != nullptr) *reply = std::move(owned);
    return status;
  }
  static CStatus Finish(const CStream& stream, CMessage* reply = nullptr) {
    sluice_message* message = nullptr;
    CStatus status(sluice_stream_finish(stream.get(), &message));
    CMessage owned(message);
    if (reply != nullptr) *reply = std::move(owned);
    return status;
  }
  static int32_t Read(const CStream& stream, CMessage* message, int64_t timeout_ns = kLongNs) {
    sluice_message* read = nullptr;
    const int32_t result = sluice_stream_read(stream.get(), timeout_ns, &read);
    message->reset(read);
    return result;
  }
  static int32_t Write(const CStream& stream, const std::string& bytes,
                       int64_t timeout_ns = kLongNs) {
    return sluice_stream_write(stream.get(), bytes.data(), bytes.size(), timeout_ns);
  }

  BesideChat service_;
  ChatService& chat_ = service_.chat;
  std::unique_ptr<Server> server_;
  std::string address_;
  CChannel channel_;
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_MIDDLEWARE_C_API_C_WORLD_H_
