// SPDX-License-Identifier: Apache-2.0
//
// Attachments in buffers, over the fake network: where they go without a copy, where they are copied all the same, and that
// every piece of memory comes back, however the call ends.
#include "middleware/call/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "middleware/call/client_engine.h"
#include "middleware/call/server_engine.h"
#include "proto/error_detail.pb.h"  // any message will do as request and reply
#include "tests/support/fake_endpoint.h"
#include "tests/support/manual_clock.h"

namespace sluice::call {
namespace buffer_test {

using testing_support::FakeEndpoint;
using testing_support::FakeNetwork;
using Text = ErrorDetail;

constexpr Method kEcho("/test.Service/Echo");
constexpr Method kLater("/test.Service/Later");
constexpr int64_t kMs = 1'000'000;
constexpr size_t kMiB = 1 << 20;

struct Outcome {
  CallSpec Spec(const Method* method) {
    CallSpec spec;
    spec.method = method;
    spec.request = &request;
    spec.reply = &reply;
    spec.timeout_ns = 1000 * kMs;
    spec.metadata = metadata;
    spec.attachment = buffer.bytes();
    spec.buffer = &buffer;
    spec.reply_beside = &beside;
    spec.argument = this;
    spec.done = [](void* argument, const absl::Status& status) {
      auto* outcome = static_cast<Outcome*>(argument);
      ++outcome->ended;
      outcome->status = status;
    };
    return spec;
  }

  Buffer buffer;
  std::string metadata;
  Text request;
  Text reply;
  Beside beside;
  int ended = 0;
  absl::Status status = absl::UnknownError("has not ended");
};

struct Host {
  std::unique_ptr<ServerEngine> engine;
  std::unique_ptr<FakeEndpoint> end;
};

class BufferTest : public testing::Test {
 protected:
  void Connect(int servers = 1,
               FakeNetwork::Options fake = {.max_large_bytes = 4 * kMiB,
                                            .large_memory_bytes = 8 * kMiB},
               uint32_t servers_message_bytes = 0) {
    client_options_.max_message_bytes = server_options_.max_message_bytes = fake.max_message_bytes;
    FakeNetwork::Options of_servers = fake;
    if (servers_message_bytes != 0) {
      of_servers.max_message_bytes = server_options_.max_message_bytes = servers_message_bytes;
    }
    client_options_.max_large_bytes = fake.max_large_bytes;
    std::vector<ServerAddress> addresses;
    for (int i = 0; i < servers; ++i) {
      Host& host = hosts_.emplace_back();
      host.engine = std::make_unique<ServerEngine>(server_options_, &clock_, nullptr);
      host.end = network_.Create(host.engine->handler(), &clock_, of_servers);
      host.engine->Attach(host.end.get());
      ASSERT_TRUE(host.engine->Register(Echo()).ok());
      ASSERT_TRUE(host.engine->Register(Later()).ok());
      addresses.push_back({"h" + std::to_string(i), 1});
      ASSERT_TRUE(host.end->Listen(addresses.back().host, 1).ok());
    }
    client_ = std::make_unique<ClientEngine>(client_options_, &clock_, &random_);
    end_ = network_.Create(client_->handler(), &clock_, fake);
    client_->Attach(end_.get());
    client_->SetServers(addresses);
    client_->Dial();
    Settle();
    ASSERT_EQ(client_->counters().connections, static_cast<uint64_t>(servers));
  }
  MethodHandler Echo() {
    MethodHandler handler;
    handler.method = &kEcho;
    handler.service = this;
    handler.run = [](void* self, const Incoming& incoming,
                     const google::protobuf::MessageLite& request,
                     google::protobuf::MessageLite* reply) {
      return static_cast<BufferTest*>(self)->Answer(incoming, static_cast<const Text&>(request),
                                                    static_cast<Text*>(reply));
    };
    handler.request = std::make_unique<Text>();
    handler.reply = std::make_unique<Text>();
    return handler;
  }
  MethodHandler Later() {
    MethodHandler handler = Echo();
    handler.method = &kLater;
    handler.run = nullptr;
    handler.start = [this](ServerCall* call) { later_ = call; };
    return handler;
  }
  // Answers with the attachment, its first byte changed, in a buffer.
  absl::Status Answer(const Incoming& incoming, const Text& request, Text* reply) {
    saw_.assign(reinterpret_cast<const char*>(incoming.attachment.data()),
                incoming.attachment.size());
    reply->set_cause(request.cause());
    if (saw_.empty() || request.cause() == "nothing") return answer_;
    auto back = incoming.engine->MakeBuffer(incoming.from, saw_.size());
    if (!back.ok()) return back.status();
    std::copy(incoming.attachment.begin(), incoming.attachment.end(), back->data());
    back->data()[0] = std::byte{'!'};
    incoming.reply->attachment = *std::move(back);
    return answer_;
  }
  Buffer Made(size_t size) {
    auto buffer = client_->MakeBuffer(size);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    if (!buffer.ok()) return {};
    std::fill(buffer->bytes().begin(), buffer->bytes().end(), std::byte{'a'});
    return *std::move(buffer);
  }
  void Start(Outcome* outcome, const Method& method = kEcho, uint64_t* id = nullptr) {
    ASSERT_TRUE(client_->Start(outcome->Spec(&method), id).ok());
  }
  void ExpectEcho(Outcome* outcome) {
    Start(outcome);
    Settle();
    ASSERT_EQ(outcome->ended, 1);
    ASSERT_TRUE(outcome->status.ok()) << outcome->status;
    EXPECT_EQ(saw_, outcome->buffer.text());
    const std::string_view back = outcome->beside.attachment.text();
    ASSERT_EQ(back.size(), saw_.size());
    EXPECT_EQ(back[0], '!');
    EXPECT_EQ(back.substr(1), std::string_view(saw_).substr(1));
    EXPECT_EQ(outcome->reply.cause(), outcome->request.cause());
  }
  void Settle() {
    for (int quiet = 0; quiet < 40;) {
      int done = client_->Poll();
      for (const Host& host : hosts_) done += host.engine->Poll();
      quiet = done > 0 ? 0 : quiet + 1;
    }
  }
  void ExpectNothingOut() {
    Settle();
    EXPECT_EQ(end_->large_out(), 0u);
    for (const Host& host : hosts_) EXPECT_EQ(host.end->large_out(), 0u);
  }
  uint64_t InPlace() const { return client_->session_counters().large_in_place; }

  testing_support::ManualClock clock_;
  base::SeededRandom random_{1};
  FakeNetwork network_;
  ClientEngineOptions client_options_;
  ServerEngineOptions server_options_;
  std::vector<Host> hosts_;
  std::unique_ptr<FakeEndpoint> end_;
  std::unique_ptr<ClientEngine> client_;
  ServerCall* later_ = nullptr;
  std::string saw_;
  absl::Status answer_;
};

TEST_F(BufferTest, GoesThereAndBackWithoutACopy) {
  Connect();
  {
    Outcome outcome;
    outcome.buffer = Made(kMiB);
    ExpectEcho(&outcome);
    EXPECT_EQ(InPlace(), 1u);
    EXPECT_EQ(client_->session_counters().large_held, 1u) << "the reply is where it came in";
    EXPECT_EQ(hosts_[0].engine->session_counters().large_in_place, 1u);
    EXPECT_EQ(end_->large_out(), 2u) << "both are in the caller's hands";
    EXPECT_EQ(hosts_[0].end->large_out(), 0u) << "its inline handler held nothing";
  }
  ExpectNothingOut();
}

// The peer reads the very bytes that the caller has written: what is written until then, against the rules, is seen.
TEST_F(BufferTest, IsReadWhereItStands) {
  Connect();
  Outcome outcome;
  outcome.buffer = Made(kMiB);
  hosts_[0].end->set_hold_fetches(true);
  Start(&outcome);
  Settle();
  outcome.buffer.data()[kMiB / 2] = std::byte{'z'};
  hosts_[0].end->set_hold_fetches(false);
  Settle();
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(saw_[kMiB / 2], 'z');
}

TEST_F(BufferTest, HasRoomForMetadataAndAMessage) {
  Connect();
  Outcome outcome;
  outcome.buffer = Made(kMiB);
  outcome.metadata = std::string(frame::kMaxMetadataBytes, 'm');
  outcome.request.set_cause(std::string(Buffer::kRoomBehind - 16, 'c'));
  ExpectEcho(&outcome);
  EXPECT_EQ(InPlace(), 1u);
  outcome.ended = 0;
  outcome.request.set_cause(std::string(Buffer::kRoomBehind, 'c'));
  ExpectEcho(&outcome);
  EXPECT_EQ(InPlace(), 1u) << "copied: the message is too large to stand behind it";
}

TEST_F(BufferTest, IsSentAgainAndAgain) {
  Connect();
  {
    Outcome outcome;
    outcome.buffer = Made(kMiB);
    for (int i = 1; i < 4; ++i) {
      ExpectEcho(&outcome);
      EXPECT_EQ(InPlace(), static_cast<uint64_t>(i));
      outcome.ended = 0;
    }
    outcome.buffer.Shrink(kMiB / 2);
    ExpectEcho(&outcome);
    EXPECT_EQ(InPlace(), 4u);
  }
  ExpectNothingOut();
}

// What says that it was read comes before the reply.
TEST_F(BufferTest, IsSentAgainInTheCallback) {
  Connect();
  Outcome outcome;
  outcome.buffer = Made(kMiB);
  outcome.request.set_cause("nothing");  // a large reply would be fetched first
  struct Chain {
    ClientEngine* client;
    CallSpec spec;
    int left;
  } chain{client_.get(), outcome.Spec(&kEcho), 5};
  CallSpec& spec = chain.spec;
  spec.argument = &chain;
  spec.done = [](void* argument, const absl::Status& status) {
    auto* chain = static_cast<Chain*>(argument);
    EXPECT_TRUE(status.ok()) << status;
    if (--chain->left == 0) return;
    chain->spec.reply_beside->Clear();
    EXPECT_TRUE(chain->client->Start(chain->spec).ok());
  };
  ASSERT_TRUE(client_->Start(spec).ok());
  Settle();
  EXPECT_EQ(chain.left, 0);
  EXPECT_EQ(InPlace(), 5u);
}

TEST_F(BufferTest, IsCopiedWhileItIsBeingRead) {
  Connect();
  Outcome first;
  Outcome second;
  first.buffer = Made(kMiB);
  hosts_[0].end->set_hold_fetches(true);
  Start(&first);
  CallSpec spec = second.Spec(&kEcho);
  spec.buffer = &first.buffer;
  spec.attachment = first.buffer.bytes();
  ASSERT_TRUE(client_->Start(spec).ok());
  hosts_[0].end->set_hold_fetches(false);
  Settle();
  EXPECT_TRUE(first.status.ok()) << first.status;
  EXPECT_TRUE(second.status.ok()) << second.status;
  EXPECT_EQ(second.beside.attachment.size(), kMiB);
  EXPECT_EQ(InPlace(), 1u);
}

TEST_F(BufferTest, IsCopiedToAnotherServer) {
  client_options_.balancing = Balancing::kRoundRobin;
  Connect(2);
  Outcome outcome;
  outcome.buffer = Made(kMiB);
  const auto is_of = [&](size_t host) {
    return client_->connections()[host]->peer == outcome.buffer.peer();
  };
  const size_t of = is_of(0) ? 0 : 1;
  ASSERT_TRUE(is_of(of));
  for (int i = 0; i < 3; ++i) {
    outcome.ended = 0;
    ExpectEcho(&outcome);
  }
  EXPECT_EQ(hosts_[of].engine->counters().requests, 3u) << "it goes to the server it was made for";
  EXPECT_EQ(InPlace(), 3u);
  hosts_[of].end->Kill();
  Settle();
  outcome.ended = 0;
  outcome.status = absl::OkStatus();
  ExpectEcho(&outcome);
  EXPECT_EQ(hosts_[1 - of].engine->counters().requests, 1u);
  EXPECT_EQ(InPlace(), 3u);
}

TEST_F(BufferTest, IsMadeForEachServerInTurn) {
  client_options_.balancing = Balancing::kRoundRobin;
  Connect(2);
  const Buffer one = Made(kMiB);
  const Buffer other = Made(kMiB);
  EXPECT_FALSE(one.peer() == other.peer());
}

TEST_F(BufferTest, SmallOnesTravelInTheirMessage) {
  Connect();
  Outcome outcome;
  outcome.buffer = Made(100);
  ExpectEcho(&outcome);
  EXPECT_EQ(client_->session_counters().large_sent, 0u);
  EXPECT_EQ(Made(0).size(), 0u);
  ExpectNothingOut();
}

// What is small for its sender may be large for the server.
TEST_F(BufferTest, TheLowerLimitSaysWhatIsSmall) {
  Connect(1, {.max_message_bytes = 65536, .max_large_bytes = kMiB, .large_memory_bytes = kMiB},
          /*servers_message_bytes=*/4096);
  Outcome outcome;
  outcome.buffer = Made(20'000);
  ExpectEcho(&outcome);
  EXPECT_EQ(InPlace(), 1u);
}

// Whatever becomes of the call, the memory stays as long as the peer may read it, and then goes back.
TEST_F(BufferTest, ComesBackAfterACancelWhileItIsRead) {
  Connect();
  uint64_t id = 0;
  {
    Outcome outcome;
    outcome.buffer = Made(kMiB);
    hosts_[0].end->set_hold_fetches(true);
    Start(&outcome, kEcho, &id);
    Settle();
    ASSERT_TRUE(client_->Cancel(id));
    EXPECT_EQ(outcome.ended, 1);
  }
  client_->Poll();
  EXPECT_EQ(end_->large_out(), 1u) << "it is lent still";
  hosts_[0].end->set_hold_fetches(false);
  ExpectNothingOut();
  EXPECT_EQ(saw_, "") << "the handler never ran";
}

TEST_F(BufferTest, ComesBackAfterADeadline) {
  Connect();
  {
    Outcome outcome;
    outcome.buffer = Made(kMiB);
    hosts_[0].end->set_hold_fetches(true);
    Start(&outcome);
    Settle();
    clock_.Advance(1001 * kMs);
    Settle();
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kDeadlineExceeded);
  }
  hosts_[0].end->set_hold_fetches(false);
  ExpectNothingOut();
}

TEST_F(BufferTest, ComesBackAfterThePeersDeath) {
  Connect();
  {
    Outcome outcome;
    outcome.buffer = Made(kMiB);
    hosts_[0].end->set_hold_fetches(true);
    Start(&outcome);
    Settle();
    hosts_[0].end->Kill();
    Settle();
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(end_->large_out(), 1u);
    EXPECT_EQ(outcome.buffer.text(), std::string(kMiB, 'a')) << "it is the caller's still";
  }
  client_->Poll();
  EXPECT_EQ(end_->large_out(), 0u);
}

TEST_F(BufferTest, IsLetGoOfBeforeTheReplyComes) {
  Connect();
  Outcome outcome;
  outcome.buffer = Made(kMiB);
  Start(&outcome, kLater);
  Settle();
  ASSERT_NE(later_, nullptr);
  EXPECT_EQ(later_->incoming().attachment.size(), kMiB);
  EXPECT_EQ(hosts_[0].end->large_out(), 1u) << "the call reads it where it came in";
  EXPECT_EQ(hosts_[0].engine->session_counters().large_held, 1u);
  outcome.buffer = {};
  client_->Poll();
  EXPECT_EQ(end_->large_out(), 0u) << "it was read";
  later_->Finish(Answer(later_->incoming(), static_cast<const Text&>(later_->request()),
                        static_cast<Text*>(later_->reply())));
  Settle();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(saw_.size(), kMiB);
  outcome.beside.Clear();
  ExpectNothingOut();
}

TEST_F(BufferTest, AnErrorTakesNoReplyBufferAlong) {
  Connect();
  answer_ = absl::NotFoundError("no");
  Outcome outcome;
  outcome.buffer = Made(kMiB);
  Start(&outcome);
  Settle();
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(outcome.beside.attachment.empty());
  outcome.buffer = {};
  ExpectNothingOut();
}

// Half of the memory is for messages that nobody keeps.
TEST_F(BufferTest, RepliesBeyondAHalfAreCopied) {
  Connect();
  std::vector<std::unique_ptr<Outcome>> kept;
  for (int i = 0; i < 4; ++i) {
    Outcome& outcome = *kept.emplace_back(std::make_unique<Outcome>());
    outcome.buffer = Made(kMiB + kMiB / 2);
    ExpectEcho(&outcome);
    outcome.buffer = {};
    client_->Poll();
  }
  EXPECT_EQ(client_->session_counters().large_held, 2u);
  EXPECT_EQ(end_->large_out(), 2u);
  kept.clear();
  ExpectNothingOut();
}

TEST_F(BufferTest, AFewBytesBesideALargeMessageAreCopied) {
  Connect();
  Outcome outcome;
  outcome.buffer = Made(10);
  outcome.request.set_cause(std::string(kMiB, 'c'));
  ExpectEcho(&outcome);
  EXPECT_EQ(client_->session_counters().large_received, 1u);
  EXPECT_EQ(client_->session_counters().large_held, 0u);
  ExpectNothingOut();
}

TEST_F(BufferTest, OutlivesItsChannel) {
  Connect();
  Outcome outcome;
  outcome.buffer = Made(kMiB);
  ExpectEcho(&outcome);
  client_->Close();
  end_.reset();
  client_.reset();
  EXPECT_EQ(outcome.buffer.text(), std::string(kMiB, 'a'));
  EXPECT_EQ(outcome.beside.attachment.size(), kMiB);
  std::fill(outcome.buffer.bytes().begin(), outcome.buffer.bytes().end(), std::byte{'b'});
}

TEST_F(BufferTest, MakeSaysWhyNot) {
  Connect();
  const auto too_large = client_->MakeBuffer(4 * kMiB);
  EXPECT_EQ(too_large.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(too_large.status().message().find("4194308 bytes, the limit is 4194304"),
            std::string_view::npos)
      << too_large.status();
  std::vector<Buffer> made;
  for (int i = 0; i < 2; ++i) made.push_back(Made(3 * kMiB));
  const auto none = client_->MakeBuffer(3 * kMiB);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kResourceExhausted) << none.status();
  EXPECT_NE(none.status().message().find("buffer not made"), std::string_view::npos);
  made.clear();
  EXPECT_TRUE(client_->MakeBuffer(3 * kMiB).ok()) << "one that was let go of is there at once";
  hosts_[0].end->Kill();
  Settle();
  EXPECT_EQ(client_->MakeBuffer(kMiB).status().code(), absl::StatusCode::kUnavailable);
}

// What is kept for later is not there for a request that has none.
TEST_F(BufferTest, ADeadlineThatPassesForWantOfMemorySaysSo) {
  Connect();
  const Buffer one = Made(3 * kMiB);
  const Buffer other = Made(3 * kMiB);
  Outcome outcome;
  outcome.request.set_cause(std::string(3 * kMiB, 'c'));
  Start(&outcome);
  Settle();
  EXPECT_EQ(outcome.ended, 0);
  clock_.Advance(1001 * kMs);
  Settle();
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(outcome.status.message().find("no memory for a large request"), std::string_view::npos)
      << outcome.status;
  EXPECT_NE(outcome.status.message().find("release buffers"), std::string_view::npos)
      << outcome.status;
}

TEST_F(BufferTest, MakeOfASizeThatWrapsAroundIsTooLarge) {
  Connect();
  for (const size_t size : {SIZE_MAX, SIZE_MAX - 3, SIZE_MAX - 100, SIZE_MAX / 2}) {
    EXPECT_EQ(client_->MakeBuffer(size).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

// All memory there is may be one message's: then there is no room around an attachment that nearly fills it.
TEST_F(BufferTest, IsCopiedIfItsRoomsDoNotFit) {
  Connect(1, {.max_large_bytes = kMiB, .large_memory_bytes = kMiB});
  Outcome outcome;
  outcome.buffer = Made(kMiB - 1000);
  ASSERT_EQ(outcome.buffer.size(), kMiB - 1000);
  outcome.request.set_cause("nothing");
  Start(&outcome);
  Settle();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(saw_, outcome.buffer.text());
  EXPECT_EQ(InPlace(), 0u);
}

TEST_F(BufferTest, MemoryThatTheDeviceRefusesIsNotLent) {
  Connect();
  end_->set_slow_lending(true);
  Outcome outcome;
  outcome.buffer = Made(kMiB);
  end_->FinishLending(absl::ResourceExhaustedError("memlock"));
  end_->set_slow_lending(false);
  ExpectEcho(&outcome);
  EXPECT_EQ(InPlace(), 0u);
}

TEST_F(BufferTest, WaitsUntilTheDeviceKnowsIt) {
  Connect();
  end_->set_slow_lending(true);
  Outcome outcome;
  outcome.buffer = Made(kMiB);
  Start(&outcome);
  Settle();
  EXPECT_EQ(outcome.ended, 0);
  end_->FinishLending(absl::OkStatus());
  Settle();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(InPlace(), 1u);
}

}  // namespace buffer_test
}  // namespace sluice::call
