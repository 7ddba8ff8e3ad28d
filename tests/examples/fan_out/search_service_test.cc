// SPDX-License-Identifier: Apache-2.0
#include "examples/fan_out/search_service.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "middleware/api/in_process.h"
#include "middleware/api/signal.h"

namespace sluice::examples::fan_out {
namespace {

// "stuck" never answers, "broken" fails; others find themselves.
class FakeShard final : public ShardCoServiceBase {
 public:
  explicit FakeShard(std::string word) : word_(std::move(word)) {}
  Task<absl::Status> Find(ServerContext& context, const Query&, Words* reply) override {
    if (word_ == "broken") co_return absl::InternalError("broken");
    const std::stop_token stop = context.stop_token();
    while (word_ == "stuck" && !stop.stop_requested()) co_await never_.Wait(stop);
    reply->add_words(word_);
    co_return absl::OkStatus();
  }

 private:
  const std::string word_;
  Signal never_;
};

TEST(SearchServiceTest, AnswersWithWhatCameInTime) {
  std::vector<std::unique_ptr<FakeShard>> shards;
  std::vector<std::unique_ptr<InProcess>> worlds;
  std::vector<std::shared_ptr<Channel>> channels;
  for (const char* word : {"zebra", "stuck", "apple", "broken"}) {
    shards.push_back(std::make_unique<FakeShard>(word));
    auto world = InProcess::Start({shards.back().get()});
    ASSERT_TRUE(world.ok()) << world.status();
    worlds.push_back(*std::move(world));
    auto channel = worlds.back()->NewChannel();
    ASSERT_TRUE(channel.ok()) << channel.status();
    channels.push_back(*std::move(channel));
  }
  SearchService service(std::move(channels), absl::Seconds(2));
  auto front = InProcess::Start({&service});
  ASSERT_TRUE(front.ok()) << front.status();
  auto channel = (*front)->NewChannel();
  ASSERT_TRUE(channel.ok()) << channel.status();
  CallContext context(absl::Seconds(60));
  const auto results = SearchClient(*channel).Search(context, Query());
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->words_size(), 2);
  EXPECT_EQ(results->words(0), "apple");
  EXPECT_EQ(results->words(1), "zebra");
  ASSERT_EQ(results->missing_size(), 2);
  EXPECT_EQ(results->missing(0), "in-process:1 DEADLINE_EXCEEDED");
  EXPECT_EQ(results->missing(1), "in-process:1 INTERNAL");
  channel->reset();
  front->reset();
}

TEST(SearchServiceTest, WithoutShardsFindsNothing) {
  SearchService service({}, absl::Seconds(1));
  auto front = InProcess::Start({&service});
  ASSERT_TRUE(front.ok()) << front.status();
  auto channel = (*front)->NewChannel();
  ASSERT_TRUE(channel.ok()) << channel.status();
  CallContext context(absl::Seconds(60));
  const auto results = SearchClient(*channel).Search(context, Query());
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->words_size() + results->missing_size(), 0);
}

}  // namespace
}  // namespace sluice::examples::fan_out
