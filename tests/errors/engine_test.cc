// SPDX-License-Identifier: Apache-2.0
//
// docs/errors.md, "Calls": what needs a moment that only virtual time can hold still.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/wrappers.pb.h"
#include "tests/errors/catalogue.h"
#include "tests/middleware/call/cluster.h"

namespace sluice::call {
namespace {

using testing_support::ExpectCatalogued;

class EngineErrors : public Cluster {
 protected:
  EngineErrors() { options_.retry.max_attempts = 1; }

  absl::Status EndOf(const Outcome& outcome) {
    EXPECT_EQ(outcome.ended, 1);
    return outcome.status;
  }
};

TEST_F(EngineErrors, CallThatCrossesTheNewsOfADrain) {
  Connect(1);
  const int64_t now_ns = clock_.NowNs();
  nodes_[0]->engine->StartDrain(now_ns + 100 * kMs, now_ns + 200 * kMs);
  Outcome& late = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&late).ok());
  Settle();
  ExpectCatalogued("draining", EndOf(late));
}

TEST_F(EngineErrors, CallThatIsTooLongForADrain) {
  Connect(1);
  Outcome& held = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&held, kHold).ok());
  Settle();
  const int64_t now_ns = clock_.NowNs();
  nodes_[0]->engine->StartDrain(now_ns + 100 * kMs, now_ns + 200 * kMs);
  Advance(100 * kMs);
  FinishHeld(0, absl::CancelledError("the handler has heard of it"));
  ExpectCatalogued("ended-by-drain", EndOf(held));
}

// The other side may be gone by then; its device says no more than that it refuses the read.
TEST_F(EngineErrors, RequestThatCannotBeReadAnyMore) {
  fake_options_.max_large_bytes = options_.max_large_bytes = 1 << 20;
  Connect(1);
  nodes_[0]->end->set_fail_fetches(absl::PermissionDeniedError("refused"));
  Outcome& large = outcomes_.emplace_back();
  large.request.set_cause(std::string(100'000, 'q'));
  ASSERT_TRUE(Start(&large).ok());
  Settle();
  ExpectCatalogued("taken-back", EndOf(large));
}

TEST_F(EngineErrors, CallsOfAnotherProto) {
  Connect(1);
  Outcome outcome;
  google::protobuf::UInt64Value unlike;  // a number where a text should be
  google::protobuf::BytesValue bytes;
  bytes.set_value("\xff\xfe is no UTF-8");
  CallSpec spec;
  spec.method = &kOnce;
  spec.request = &bytes;
  spec.reply = &outcome.reply;
  spec.timeout_ns = 1000 * kMs;
  spec.argument = &outcome;
  spec.done = [](void* argument, const absl::Status& status) {
    auto* of = static_cast<Outcome*>(argument);
    ++of->ended;
    of->status = status;
  };
  ASSERT_TRUE(client_->Start(spec).ok());
  Settle();
  ExpectCatalogued("request-garbled", EndOf(outcome));
  outcome = {};
  const Method streams("/test.Service/Once", Streams::kServer);
  spec.method = &streams;
  spec.request = &unlike;
  ASSERT_TRUE(client_->Start(spec).ok());
  Settle();
  ExpectCatalogued("other-shape", EndOf(outcome));
}

constexpr Method kTalk("/test.Service/Talk", Streams::kBoth);

TEST_F(EngineErrors, ClientThatWritesWithoutReading) {
  Connect(1);
  std::vector<ServerCall*> taken;
  MethodHandler handler;
  handler.method = &kTalk;
  handler.start = [&taken](ServerCall* call) { taken.push_back(call); };
  handler.request = std::make_unique<Text>();
  handler.reply = std::make_unique<Text>();
  ASSERT_TRUE(nodes_[0]->engine->Register(std::move(handler)).ok());
  Outcome outcome;
  ClientStream stream;
  CallSpec spec;
  spec.method = &kTalk;
  spec.reply = &outcome.reply;
  spec.timeout_ns = 1000 * kMs;
  spec.stream = &stream;
  spec.argument = &outcome;
  spec.done = [](void* argument, const absl::Status& status) {
    auto* of = static_cast<Outcome*>(argument);
    ++of->ended;
    of->status = status;
  };
  ASSERT_TRUE(client_->Start(spec).ok());
  Settle();
  ASSERT_EQ(taken.size(), 1u);
  Text message;
  while (taken[0]->Write(message).ok()) Settle();
  while (client_->Write(&stream, message).ok()) Settle();
  clock_.Advance(1001 * kMs);
  // The end that notices first: the server, whose answer knows less.
  for (int pass = 0; pass < 40; ++pass) nodes_[0]->engine->Poll();
  EXPECT_NE(std::string(taken[0]->why_cancelled().message()).find("does not read the stream"),
            std::string::npos)
      << taken[0]->why_cancelled();
  const absl::Status why = taken[0]->why_cancelled();
  std::exchange(taken[0], nullptr)->Finish(why);
  nodes_[0]->engine->Poll();
  Settle();
  ExpectCatalogued("unread", EndOf(outcome));
  EXPECT_NE(std::string(outcome.status.message()).find("a Write() here waits"), std::string::npos)
      << outcome.status;
}

}  // namespace
}  // namespace sluice::call
