// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <thread>
#include <vector>

#include "tests/tools/gateway/gateway_world.h"
#include "tests/tools/gateway/raw_http2_client.h"
#include "tools/gateway/rpc_status.pb.h"

namespace sluice::gateway {
namespace gateway_call_test {

using ::testing::HasSubstr;
using testing_support::Feature;
using testing_support::kStockUrl;
using testing_support::Point;
using testing_support::Rectangle;
using testing_support::RouteNote;
using testing_support::RouteSummary;

class GatewayCallTest : public testing_support::GatewayWorld {
 protected:
  static std::vector<std::string> ValuesOf(
      const std::multimap<grpc::string_ref, grpc::string_ref>& metadata, const std::string& key) {
    std::vector<std::string> values;
    const auto [begin, end] = metadata.equal_range(key);
    for (auto it = begin; it != end; ++it)
      values.emplace_back(it->second.data(), it->second.size());
    return values;
  }
  static void ExpectOutOfStock(const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(status.error_message(), testing_support::OutOfStock().message());
    RpcStatus details;
    ASSERT_TRUE(details.ParseFromString(status.error_details()));
    EXPECT_EQ(details.code(), 9);
    EXPECT_EQ(details.message(), status.error_message());
    ASSERT_EQ(details.details_size(), 1);
    EXPECT_EQ(details.details(0).type_url(), kStockUrl);
    EXPECT_EQ(details.details(0).value(), std::string("\x08\x00\xff", 3));
  }
};

TEST_F(GatewayCallTest, PassesCallsOfAllFourKinds) {
  grpc::ClientContext unary;
  Feature feature;
  const grpc::Status got = stub_->GetFeature(&unary, At(7), &feature);
  ASSERT_TRUE(got.ok()) << got.error_message();
  EXPECT_EQ(feature.name(), "feature 7");
  EXPECT_EQ(feature.location().latitude(), 7);

  grpc::ClientContext listing;
  const auto reader = stub_->ListFeatures(&listing, Between(1, 100));
  int count = 0;
  while (reader->Read(&feature)) EXPECT_EQ(feature.location().latitude(), ++count);
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(count, 100);

  grpc::ClientContext recording;
  RouteSummary summary;
  const auto writer = stub_->RecordRoute(&recording, &summary);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(writer->Write(At(i)));
  writer->WritesDone();
  EXPECT_TRUE(writer->Finish().ok());
  EXPECT_EQ(summary.point_count(), 100);

  grpc::ClientContext chatting;
  const auto chat = stub_->RouteChat(&chatting);
  RouteNote note;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(chat->Write(Note(absl::StrCat(i))));
    ASSERT_TRUE(chat->Read(&note));
    EXPECT_EQ(note.message(), absl::StrCat(i));
  }
  chat->WritesDone();
  EXPECT_FALSE(chat->Read(&note));
  EXPECT_TRUE(chat->Finish().ok());
  EXPECT_EQ(route_.ended.count(), 4);
}

TEST_F(GatewayCallTest, PassesEmptyMessagesAndEmptyStreams) {
  grpc::ClientContext listing;
  const auto reader = stub_->ListFeatures(&listing, Between(2, 1));
  Feature feature;
  EXPECT_FALSE(reader->Read(&feature));
  EXPECT_TRUE(reader->Finish().ok());

  grpc::ClientContext recording;
  RouteSummary summary;
  const auto writer = stub_->RecordRoute(&recording, &summary);
  ASSERT_TRUE(writer->Write(Point()));
  writer->WritesDone();
  EXPECT_TRUE(writer->Finish().ok());
  EXPECT_EQ(summary.point_count(), 1);

  grpc::ClientContext nothing;
  const auto none = stub_->RecordRoute(&nothing, &summary);
  none->WritesDone();
  EXPECT_TRUE(none->Finish().ok());
  EXPECT_EQ(summary.point_count(), 0);
}

TEST_F(GatewayCallTest, PassesMetadataBothWays) {
  const std::string bytes("\x00\xff\x7f", 3);
  grpc::ClientContext unary;
  unary.AddMetadata("echo-one", "a");
  unary.AddMetadata("echo-one", "b");
  unary.AddMetadata("echo-raw-bin", bytes);
  Feature feature;
  ASSERT_TRUE(stub_->GetFeature(&unary, At(1), &feature).ok());
  EXPECT_THAT(ValuesOf(unary.GetServerTrailingMetadata(), "echo-one"),
              ::testing::UnorderedElementsAre("a", "b"));
  EXPECT_THAT(ValuesOf(unary.GetServerTrailingMetadata(), "echo-raw-bin"),
              ::testing::ElementsAre(bytes));

  // A stream's come at the beginning as well, before the first message.
  grpc::ClientContext chatting;
  chatting.AddMetadata("echo-one", "a");
  const auto chat = stub_->RouteChat(&chatting);
  chat->WaitForInitialMetadata();
  EXPECT_THAT(ValuesOf(chatting.GetServerInitialMetadata(), "echo-one"),
              ::testing::ElementsAre("a"));
  chat->WritesDone();
  EXPECT_TRUE(chat->Finish().ok());
  EXPECT_THAT(ValuesOf(chatting.GetServerTrailingMetadata(), "echo-one"),
              ::testing::ElementsAre("a"));

  // And an error's.
  grpc::ClientContext failing;
  failing.AddMetadata("echo-one", "a");
  failing.AddMetadata("do", "fail");
  ExpectOutOfStock(stub_->GetFeature(&failing, At(1), &feature));
  EXPECT_THAT(ValuesOf(failing.GetServerTrailingMetadata(), "echo-one"),
              ::testing::ElementsAre("a"));
}

TEST_F(GatewayCallTest, RefusesMetadataThatSluiceCannotCarry) {
  grpc::ClientContext long_key;
  long_key.AddMetadata(std::string(65, 'k'), "v");
  Feature feature;
  const grpc::Status refused = stub_->GetFeature(&long_key, At(1), &feature);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("metadata not added"));
  EXPECT_EQ(route_.started.count(), 0);
}

TEST_F(GatewayCallTest, PassesStatusAndDetailsOfEachKind) {
  Feature feature;
  grpc::ClientContext unary;
  unary.AddMetadata("do", "fail");
  ExpectOutOfStock(stub_->GetFeature(&unary, At(1), &feature));

  grpc::ClientContext listing;
  listing.AddMetadata("do", "fail");
  const auto reader = stub_->ListFeatures(&listing, Between(1, 2));
  EXPECT_FALSE(reader->Read(&feature));
  ExpectOutOfStock(reader->Finish());

  grpc::ClientContext recording;
  recording.AddMetadata("do", "fail");
  RouteSummary summary;
  const auto writer = stub_->RecordRoute(&recording, &summary);
  ExpectOutOfStock(writer->Finish());

  // In the middle, while the client still sends.
  grpc::ClientContext chatting;
  const auto chat = stub_->RouteChat(&chatting);
  ASSERT_TRUE(chat->Write(Note("fail")));
  RouteNote note;
  EXPECT_FALSE(chat->Read(&note));
  ExpectOutOfStock(chat->Finish());
}

TEST_F(GatewayCallTest, TheDeadlineReachesTheHandler) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::hours(1));
  Feature feature;
  ASSERT_TRUE(stub_->GetFeature(&context, At(1), &feature).ok());
  EXPECT_GT(route_.time_left_ns.load(), absl::ToInt64Nanoseconds(absl::Minutes(50)));
  // (gRPC rounds a long time up on the wire, to 3610 s here.)
  EXPECT_LE(route_.time_left_ns.load(), absl::ToInt64Nanoseconds(absl::Minutes(70)));

  grpc::ClientContext without;
  ASSERT_TRUE(stub_->GetFeature(&without, At(1), &feature).ok());
  EXPECT_EQ(route_.time_left_ns.load(), -1);

  grpc::ClientContext late;
  late.AddMetadata("do", "wait");
  late.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  EXPECT_EQ(stub_->GetFeature(&late, At(1), &feature).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  // On a busy machine the deadline may pass before the handler begins.
  if (route_.started.count() == 3) route_.stopped.WaitFor(1);
}

TEST_F(GatewayCallTest, AClientThatCancelsStopsTheHandlerOfEachKind) {
  grpc::ClientContext unary;
  unary.AddMetadata("do", "wait");
  std::thread caller([&] {
    Feature feature;
    EXPECT_EQ(stub_->GetFeature(&unary, At(1), &feature).error_code(), grpc::StatusCode::CANCELLED);
  });
  route_.started.WaitFor(1);
  unary.TryCancel();
  caller.join();
  route_.stopped.WaitFor(1);

  grpc::ClientContext listing;
  Rectangle endless;
  const auto reader = stub_->ListFeatures(&listing, endless);
  Feature feature;
  ASSERT_TRUE(reader->Read(&feature));
  listing.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  route_.stopped.WaitFor(2);

  // Half a route is not a route.
  grpc::ClientContext recording;
  RouteSummary summary;
  const auto writer = stub_->RecordRoute(&recording, &summary);
  ASSERT_TRUE(writer->Write(At(1)));
  route_.read.WaitFor(1);
  recording.TryCancel();
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  route_.stopped.WaitFor(3);

  grpc::ClientContext chatting;
  const auto chat = stub_->RouteChat(&chatting);
  ASSERT_TRUE(chat->Write(Note("a")));
  route_.read.WaitFor(2);
  chatting.TryCancel();
  EXPECT_EQ(chat->Finish().error_code(), grpc::StatusCode::CANCELLED);
  route_.stopped.WaitFor(4);
  EXPECT_EQ(route_.ended.count(), 0);
}

// gRPC reports the end of a client's messages and the end of a client by the same failed read.
TEST_F(GatewayCallTest, HalfARouteIsNeverTakenForTheWhole) {
  constexpr int kRounds = 300;
  for (int round = 1; round <= kRounds; ++round) {
    grpc::ClientContext recording;
    RouteSummary summary;
    const auto writer = stub_->RecordRoute(&recording, &summary);
    ASSERT_TRUE(writer->Write(At(1)));
    route_.read.WaitFor(round);
    recording.TryCancel();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  while (route_.stopped.count() + route_.ended.count() < kRounds) std::this_thread::yield();
  EXPECT_EQ(route_.ended.count(), 0);
}

// gRPC would report a message that it cannot inflate like the end of the client's messages.
TEST_F(GatewayCallTest, ARouteWithAMessageThatIsNotGzipIsNotTheWhole) {
  using testing_support::RawHttp2Client;
  for (int round = 0; round < 20; ++round) {
    RawHttp2Client client(gateway_->port(), "/sluice.tests.route.RouteGuide/RecordRoute", "gzip");
    client.SendData(RawHttp2Client::Message("", 0));
    client.SendData(RawHttp2Client::Message("garbage!", 1));
    EXPECT_THAT(client.ReadUntil("grpc-status"), HasSubstr("grpc-status"));
  }
  gateway_->Drain(absl::Hours(1));
  EXPECT_EQ(route_.ended.count(), 0);
}

TEST_F(GatewayCallTest, CompressedMessagesAreRefused) {
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    RouteNote note = Note(std::string(10'000, 'x'));
    Feature feature;
    const grpc::Status status =
        CallByName(&context, "/sluice.tests.route.RouteGuide/GetFeature", note, &feature);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  }
  EXPECT_EQ(route_.started.count(), 0);
}

// The client neither sends more nor ends: nothing but the gateway can end the call.
TEST_F(GatewayCallTest, AMessageOverTheLimitOfTheServerEndsAStream) {
  channel_options_.limits.max_large_message_bytes = 64 << 10;
  Start();
  grpc::ClientContext chatting;
  const auto chat = stub_->RouteChat(&chatting);
  RouteNote note;
  ASSERT_TRUE(chat->Write(Note("short")) && chat->Read(&note));
  ASSERT_TRUE(chat->Write(Note(std::string(100'000, 'x'))));
  EXPECT_FALSE(chat->Read(&note));
  const grpc::Status status = chat->Finish();
  EXPECT_NE(status.error_code(), grpc::StatusCode::CANCELLED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("65536"));
  route_.stopped.WaitFor(1);
}

TEST_F(GatewayCallTest, AReplyWithAnAttachmentIsAnError) {
  grpc::ClientContext unary;
  unary.AddMetadata("do", "attach");
  Feature feature;
  const grpc::Status status = stub_->GetFeature(&unary, At(1), &feature);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(status.error_message(), HasSubstr("attachment of 8 bytes"));
}

TEST_F(GatewayCallTest, TheLimitOfAMessageIsToldInBothDirections) {
  options_.max_message_bytes = 100'000;
  Start();
  Feature feature;
  grpc::ClientContext fits;
  fits.AddMetadata("length", "99900");
  ASSERT_TRUE(stub_->GetFeature(&fits, At(1), &feature).ok());
  EXPECT_EQ(feature.name().size(), 99'900u);

  grpc::ClientContext unary;
  unary.AddMetadata("length", "100001");
  const grpc::Status too_long = stub_->GetFeature(&unary, At(1), &feature);
  EXPECT_EQ(too_long.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(too_long.error_message(), HasSubstr("the limit of the gateway is 100000"));

  grpc::ClientContext listing;
  listing.AddMetadata("length", "100001");
  const auto reader = stub_->ListFeatures(&listing, Rectangle());
  EXPECT_FALSE(reader->Read(&feature));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  route_.stopped.WaitFor(1);

  grpc::ClientContext chatting;
  const auto chat = stub_->RouteChat(&chatting);
  RouteNote note;
  // The handler runs: a call that ends earlier may never reach it.
  ASSERT_TRUE(chat->Write(Note("short")));
  ASSERT_TRUE(chat->Read(&note));
  (void)chat->Write(Note(std::string(100'001, 'x')));
  EXPECT_FALSE(chat->Read(&note));
  const grpc::Status refused = chat->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("a request of"));
  route_.stopped.WaitFor(2);

  grpc::ClientContext noting;
  const int started = route_.started.count();
  const RouteNote long_note = Note(std::string(100'001, 'x'));
  const grpc::Status unary_refused =
      CallByName(&noting, "/sluice.tests.route.RouteGuide/GetFeature", long_note, &feature);
  EXPECT_EQ(unary_refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(route_.started.count(), started);
}

TEST_F(GatewayCallTest, MessagesOfMegabytesPass) {
  Feature feature;
  grpc::ClientContext unary;
  unary.AddMetadata("length", "3000000");
  ASSERT_TRUE(stub_->GetFeature(&unary, At(1), &feature).ok());
  EXPECT_EQ(feature.name(), std::string(3'000'000, 'x'));
  grpc::ClientContext chatting;
  const auto chat = stub_->RouteChat(&chatting);
  const RouteNote sent = Note(std::string(3'000'000, 'y'));
  RouteNote note;
  ASSERT_TRUE(chat->Write(sent));
  ASSERT_TRUE(chat->Read(&note));
  EXPECT_EQ(note.message(), sent.message());
  chat->WritesDone();
  EXPECT_TRUE(chat->Finish().ok());
}

TEST_F(GatewayCallTest, ARequestWithoutAMessageIsRefused) {
  // As a stream, which sends none.
  Feature feature;
  grpc::ClientContext get;
  ASSERT_TRUE(stub_->GetFeature(&get, At(1), &feature).ok());
  grpc::TemplatedGenericStub<Point, Feature> generic(client_);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  const auto call =
      generic.PrepareCall(&context, "/sluice.tests.route.RouteGuide/GetFeature", &queue);
  const auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    return ok;
  };
  call->StartCall(nullptr);
  EXPECT_TRUE(next());
  call->WritesDone(nullptr);
  EXPECT_TRUE(next());
  grpc::Status status;
  call->Finish(&status, nullptr);
  EXPECT_TRUE(next());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("has no request"));
}

TEST_F(GatewayCallTest, CallsInFlightEndWithUnavailableWhenTheServerDies) {
  grpc::ClientContext unary;
  unary.AddMetadata("do", "wait");
  std::thread caller([&] {
    Feature feature;
    EXPECT_EQ(stub_->GetFeature(&unary, At(1), &feature).error_code(),
              grpc::StatusCode::UNAVAILABLE);
  });
  grpc::ClientContext chatting;
  const auto chat = stub_->RouteChat(&chatting);
  ASSERT_TRUE(chat->Write(Note("a")));
  RouteNote note;
  ASSERT_TRUE(chat->Read(&note));
  route_.started.WaitFor(2);
  world_->KillServer();
  caller.join();
  EXPECT_FALSE(chat->Read(&note));
  EXPECT_EQ(chat->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// Ends come from both sides at once; a sanitizer or an assertion judges.
TEST_F(GatewayCallTest, ManyCallsEndInAnyOrder) {
  constexpr int kThreads = 4, kRounds = 60;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([this, thread] {
      for (int round = 0; round < kRounds; ++round) {
        grpc::ClientContext context;
        Feature feature;
        RouteNote note;
        switch ((thread + round) % 4) {
          case 0:
            EXPECT_TRUE(stub_->GetFeature(&context, At(round), &feature).ok());
            break;
          case 1: {
            const auto reader = stub_->ListFeatures(&context, Rectangle());
            for (int i = 0; i < round; ++i) (void)reader->Read(&feature);
            context.TryCancel();
            EXPECT_FALSE(reader->Finish().ok());
            break;
          }
          case 2: {
            const auto chat = stub_->RouteChat(&context);
            for (int i = 0; i < round % 7; ++i) (void)chat->Write(Note("a"));
            (void)chat->Write(Note("fail"));
            for (int i = 0; i < 100; ++i) (void)chat->Write(Note("more"));
            while (chat->Read(&note)) {
            }
            EXPECT_EQ(chat->Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
            break;
          }
          default: {
            context.set_deadline(std::chrono::system_clock::now() +
                                 std::chrono::milliseconds(round % 5));
            RouteSummary summary;
            const auto writer = stub_->RecordRoute(&context, &summary);
            while (writer->Write(At(1))) {
            }
            EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  gateway_->Drain(absl::Seconds(30));
}

}  // namespace gateway_call_test
}  // namespace sluice::gateway
