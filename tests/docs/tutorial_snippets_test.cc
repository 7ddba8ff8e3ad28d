// SPDX-License-Identifier: Apache-2.0
//
// The test that docs/tutorial.md shows. (What else the page shows is in examples/tutorial.)
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "examples/tutorial/quotes.sluice.h"
#include "middleware/api/in_process.h"

namespace sluice::docs {
namespace tutorial_snippets_test {
namespace {

using namespace sluice::examples::tutorial;

class QuotesService final : public QuotesServiceBase {
  absl::Status Get(ServerContext&, const GetRequest& request, Quote* reply) override {
    reply->set_symbol(request.symbol());
    return absl::OkStatus();
  }
  Task<absl::Status> Watch(ServerContext&, const WatchRequest&, ServerWriter<Quote>) override {
    co_return absl::OkStatus();
  }
};

TEST(TutorialSnippetsTest, AServerThatDiesIsNoticed) {
  QuotesService quotes;
  auto world = sluice::InProcess::Start({&quotes});
  ASSERT_TRUE(world.ok()) << world.status();
  auto channel = (*world)->NewChannel();
  ASSERT_TRUE(channel.ok()) << channel.status();
  QuotesClient client(*channel);
  CallContext context = CallContext::NoDeadline();
  EXPECT_TRUE(client.Get(context, GetRequest()).ok());
  (*world)->KillServer();  // as if its process had died
  EXPECT_TRUE(absl::IsUnavailable(client.Get(context, GetRequest()).status()));
}

}  // namespace
}  // namespace tutorial_snippets_test
}  // namespace sluice::docs
