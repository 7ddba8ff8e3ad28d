// SPDX-License-Identifier: Apache-2.0
//
// Streams of a client that were written before there was a connection; windows; initial metadata as the engines see it.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "tests/middleware/call/cluster.h"

namespace sluice::call {
namespace client_streams_test {

constexpr Method kUp("/test.Service/Up", Streams::kClient);

class ClientStreamsTest : public Cluster, protected ClientStream::Observer {
 protected:
  // A server of kUp, and a client that knows of no server. The stream is started.
  void SetUp() override {
    StartServer(0);
    MethodHandler handler;
    handler.method = &kUp;
    handler.start = [this](ServerCall* call) { taken_ = call; };
    handler.request = std::make_unique<Text>();
    handler.reply = std::make_unique<Text>();
    ASSERT_TRUE(nodes_[0]->engine->Register(std::move(handler)).ok());
    ConnectClient(0);
    stream_.observer = this;
    CallSpec spec;
    spec.method = &kUp;
    spec.reply = &outcome_.reply;
    spec.timeout_ns = 60'000 * kMs;
    spec.wait_for_ready = true;
    spec.stream = &stream_;
    spec.argument = &outcome_;
    spec.done = [](void* argument, const absl::Status& status) {
      auto* ended = static_cast<Outcome*>(argument);
      ++ended->ended;
      ended->status = status;
    };
    ASSERT_TRUE(client_->Start(spec).ok());
  }
  void OnWritable() override { ++writable_; }
  void Appear() {
    client_->SetServers({AddressOf(0)});
    Settle();
    ASSERT_NE(taken_, nullptr);
  }
  void TearDown() override {
    if (taken_ != nullptr) taken_->Finish(absl::OkStatus());
    Settle();
    EXPECT_EQ(outcome_.ended, 1);
    Cluster::TearDown();
  }

  ClientStream stream_;
  Outcome outcome_;
  ServerCall* taken_ = nullptr;
  int writable_ = 0;
};

TEST_F(ClientStreamsTest, AWriterThatWaitedForTheConnectionIsToldWhenItIsUp) {
  Text message;
  EXPECT_TRUE(absl::IsResourceExhausted(client_->Write(&stream_, message)));
  Appear();
  EXPECT_EQ(writable_, 1);
  EXPECT_TRUE(client_->Write(&stream_, message).ok());
}

TEST_F(ClientStreamsTest, AnEndThatWasSaidBeforeTheConnectionIsSentWhenItIsUp) {
  client_->EndWrites(&stream_);
  Appear();
  Text message;
  EXPECT_EQ(taken_->Read(&message), ReadResult::kEnd);
}

// The handler's streams have ended early, which it may take for their end.
TEST_F(ClientStreamsTest, ADeadlineThatTheServerNoticesFirstIsNoSuccess) {
  Appear();
  clock_.Advance(60'001 * kMs);
  for (int pass = 0; pass < 40; ++pass) nodes_[0]->engine->Poll();
  Text message;
  EXPECT_EQ(taken_->Read(&message), ReadResult::kEnd);
  std::exchange(taken_, nullptr)->Finish(absl::OkStatus());
  nodes_[0]->engine->Poll();
  client_->Poll();
  EXPECT_EQ(outcome_.ended, 1);
  EXPECT_EQ(outcome_.status.code(), absl::StatusCode::kDeadlineExceeded) << outcome_.status;
  ASSERT_TRUE(base::DetailOf(outcome_.status).has_value());
  EXPECT_EQ(base::DetailOf(outcome_.status)->peer(), "s0:1") << "not the client itself";
}

constexpr Method kBoth("/test.Service/Both", Streams::kBoth);

class WindowsTest : public Cluster, protected ClientStream::Observer {
 protected:
  void Begin() {
    StartServer(0);
    MethodHandler handler;
    handler.method = &kBoth;
    handler.start = [this](ServerCall* call) { taken_ = call; };
    handler.request = std::make_unique<Text>();
    handler.reply = std::make_unique<Text>();
    ASSERT_TRUE(nodes_[0]->engine->Register(std::move(handler)).ok());
    ConnectClient(1);
    stream_.observer = this;
    CallSpec spec;
    spec.method = &kBoth;
    spec.timeout_ns = 60'000 * kMs;
    spec.stream = &stream_;
    spec.argument = &outcome_;
    spec.done = [](void* argument, const absl::Status& status) {
      auto* ended = static_cast<Outcome*>(argument);
      ++ended->ended;
      ended->status = status;
    };
    ASSERT_TRUE(client_->Start(spec).ok());
    Settle();
    ASSERT_NE(taken_, nullptr);
  }
  void OnOpened() override { ++opened_; }
  // Messages until there is no room.
  uint32_t ServerWrites() {
    uint32_t count = 0;
    while (taken_->Write(Text()).ok()) {
      ++count;
      Settle();
    }
    return count;
  }
  uint32_t ClientWrites() {
    uint32_t count = 0;
    while (client_->Write(&stream_, Text()).ok()) {
      ++count;
      Settle();
    }
    return count;
  }
  void TearDown() override {
    if (taken_ != nullptr) taken_->Finish(absl::OkStatus());
    Settle();
    EXPECT_EQ(outcome_.ended, 1);
    Cluster::TearDown();
  }

  ClientStream stream_;
  Outcome outcome_;
  ServerCall* taken_ = nullptr;
  int opened_ = 0;
};

TEST_F(WindowsTest, WithoutOptionsBothSendSixteenMessages) {
  Begin();
  EXPECT_EQ(ServerWrites(), StreamEnd::kWindow);
  EXPECT_EQ(ClientWrites(), StreamEnd::kWindow);
}

TEST_F(WindowsTest, EachSideSendsAsMuchAsTheOtherOnesOptionSays) {
  options_.stream_window = 100;
  server_options_.stream_window = 50;
  Begin();
  EXPECT_EQ(ServerWrites(), 100u);
  EXPECT_EQ(ClientWrites(), 50u);
  Text message;
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(client_->Read(&stream_, &message), ReadResult::kMessage);
  }
  Settle();
  EXPECT_EQ(ServerWrites(), 50u) << "half of the window has been read";
}

TEST_F(WindowsTest, InitialMetadataComesBeforeMessages) {
  Begin();
  stream_.wants_opened = true;
  ASSERT_TRUE(taken_->SendInitialMetadata("").ok());
  Settle();
  EXPECT_EQ(opened_, 1);
  EXPECT_TRUE(stream_.opened && stream_.has_initial_metadata);
  EXPECT_TRUE(absl::IsFailedPrecondition(taken_->SendInitialMetadata("x"))) << "once";
  EXPECT_TRUE(taken_->Write(Text()).ok());
  Settle();
  EXPECT_EQ(opened_, 1);
}

TEST_F(WindowsTest, MessageThatComesFirstSaysThatThereIsNoInitialMetadata) {
  Begin();
  stream_.wants_opened = true;
  ASSERT_TRUE(taken_->Write(Text()).ok());
  Settle();
  EXPECT_EQ(opened_, 1);
  EXPECT_TRUE(stream_.opened && !stream_.has_initial_metadata);
  EXPECT_TRUE(absl::IsFailedPrecondition(taken_->SendInitialMetadata("x")));
}

TEST_F(WindowsTest, InitialMetadataOverTheLimitIsRefusedAndLessIsSent) {
  Begin();
  EXPECT_TRUE(absl::IsResourceExhausted(taken_->SendInitialMetadata(std::string(4096, 'x'))));
  EXPECT_TRUE(taken_->SendInitialMetadata(std::string(1024, 'x')).ok());
  Settle();
  EXPECT_EQ(stream_.initial_metadata, std::string(1024, 'x'));
}

// It waits for credit behind the replies, and what follows waits behind it.
TEST_F(WindowsTest, InitialMetadataWithoutCreditKeepsItsPlace) {
  fake_options_.credits = 1;
  Begin();
  Outcome* const other = &outcomes_.emplace_back();
  ASSERT_TRUE(Start(other).ok());
  client_->Flush();
  for (int pass = 0; pass < 4; ++pass) nodes_[0]->engine->Poll();  // its reply takes the credit
  ASSERT_TRUE(taken_->SendInitialMetadata("abc").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(taken_->Write(Text())));
  Settle();
  EXPECT_EQ(other->ended, 1);
  EXPECT_EQ(stream_.initial_metadata, "abc");
  EXPECT_TRUE(stream_.end.empty());
}

TEST_F(WindowsTest, InitialMetadataOfACallThatNobodyWaitsForIsRefused) {
  Begin();
  ASSERT_TRUE(client_->Cancel(stream_.call_id));
  Settle();
  EXPECT_TRUE(absl::IsCancelled(taken_->SendInitialMetadata("abc")));
}

}  // namespace client_streams_test
}  // namespace sluice::call
