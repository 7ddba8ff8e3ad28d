// SPDX-License-Identifier: Apache-2.0
//
// Streams of a client that were written before there was a connection.
#include <gtest/gtest.h>

#include <memory>
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
}

}  // namespace client_streams_test
}  // namespace sluice::call
